"""One side of a conversation: the choice of the model that answers, the transcript, and the speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QTimer
from PySide6.QtGui import QColor, QStandardItemModel, QTextBlockFormat, QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QComboBox, QPlainTextEdit, QTextEdit

from burnish_app.look.language import tr
from burnish_app.look.theme import SMALL_PX, UNIT, colors_of
from burnish_app.widgets.basic.buttons import row
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.text import Look, caption, set_tone
from burnish_engine.contract.serve.model_requests import ChatMessage
from burnish_engine.contract.serve.replies import Reply

_MIN_PX = 120  # least width of the box that chooses who answers
_MIN_HEIGHT_PX = 160  # least height of the transcript
_FLUSH_MS = 50
"""Time between writes of streamed pieces, milliseconds: each write lays the text out anew."""


class ChatPane(Card):
    """Shows a transcript that grows while a reply is streamed.

    Args:
        name: name for screen readers.
        choices: (label, value) of each model that may answer.
        usual: value of the model that answers until another is chosen; empty: the first.
    """

    def __init__(self, name: str, choices: Sequence[tuple[str, str]], usual: str = "") -> None:
        super().__init__()
        self._choices, self._usual = list(choices), usual
        self._messages: list[ChatMessage] = []
        self._streamed: list[str] = []
        self._waiting: list[str] = []
        self._can_answer: Callable[[str], bool] = lambda _variant: True
        self._timer = QTimer(self, singleShot=True, interval=_FLUSH_MS)
        self._timer.timeout.connect(self._flush)
        self.who = QComboBox()
        self.who.setAccessibleName(tr("{name}: who answers").format(name=name))
        for label, value in choices:
            self.who.addItem(label, value)
        self.choose(usual)
        self.who.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
        self.who.setMinimumWidth(_MIN_PX)
        self.text = QTextEdit()
        self.text.setReadOnly(True)
        self.text.setAccessibleName(name)
        self.text.setMinimumHeight(_MIN_HEIGHT_PX)
        set_tone(self.text, "plain")
        self.text.setLineWrapMode(QTextEdit.LineWrapMode.WidgetWidth)
        self.who.currentIndexChanged.connect(self._show_hint)
        self.state = caption("")
        self.body.addWidget(row(self.who, None))
        self.body.addWidget(self.text, 1)
        self.body.addWidget(self.state)

    @property
    def variant(self) -> str:
        """The value of the chosen model."""
        return str(self.who.currentData())

    @property
    def messages(self) -> list[ChatMessage]:
        """The conversation so far, without the reply that is being streamed."""
        return list(self._messages)

    def choose(self, variant: str) -> None:
        """Choose the model that answers, by its value."""
        self.who.setCurrentIndex(max(self.who.findData(variant), 0))

    def show_choice(self, variant: str, shown: bool) -> None:
        """Show or leave out a model that only some runs have; the usual one takes its place where it was chosen."""
        number = self.who.findData(variant)
        if shown and number < 0:
            place = [value for _, value in self._choices].index(variant)
            self.who.insertItem(place, self._choices[place][0], variant)
        elif not shown and number >= 0:
            if self.variant == variant:
                self.choose(self._usual)
            self.who.removeItem(number)

    def offer(self, can_answer: Callable[[str], bool]) -> None:
        """Enable only the models that can answer.

        Args:
            can_answer: function that tells whether the model of a value can answer.
        """
        items = self.who.model()
        assert isinstance(items, QStandardItemModel)  # a combo box makes this model for itself
        for number in range(self.who.count()):
            items.item(number).setEnabled(can_answer(str(self.who.itemData(number))))
        self._can_answer = can_answer
        self._show_hint()

    def say(self, text: str) -> None:
        """Add the person's message and start the reply; the transcript shows its end, whatever was looked at before."""
        self._messages.append(ChatMessage(role="user", content=text))
        self._streamed.clear()
        self._add_speaker(tr("You"))
        self._insert(text, self._format("muted"))
        self._add_speaker(self.who.currentText())
        bar = self.text.verticalScrollBar()
        bar.setValue(bar.maximum())
        self.state.setText(tr("Loading the model ..."))
        set_tone(self.state, "muted")

    def stream(self, piece: str) -> None:
        """Add a piece of the streamed reply."""
        self._streamed.append(piece)
        self._waiting.append(piece)
        if not self._timer.isActive():
            self._timer.start()

    def finish(self, reply: Reply) -> None:
        """Complete the reply."""
        self._flush()
        written = "".join(self._streamed)
        if not written:
            self._insert(reply.text, self._format("text"))
        self._messages.append(ChatMessage(role="assistant", content=reply.text or written))
        speed = f"{reply.tokens / reply.seconds:.1f} tokens/s" if reply.seconds > 0 else ""
        end = "" if reply.stopped else tr("cut at the longest reply")
        self.state.setText("  ·  ".join(part for part in (reply.name, speed, end) if part))

    def stop(self, text: str, tone: Look = "muted") -> None:
        """End the reply early; the streamed part stays.

        Args:
            text: reason, shown below the transcript.
            tone: look of that line.
        """
        self._flush()
        written = "".join(self._streamed)
        if written:
            self._messages.append(ChatMessage(role="assistant", content=written))
        elif self._messages and self._messages[-1].role == "user":
            self._messages.pop()
        self.state.setText(text)
        set_tone(self.state, tone)

    def clear(self) -> None:
        """Start a new conversation."""
        self._timer.stop()
        self._messages.clear()
        self._streamed.clear()
        self._waiting.clear()
        self.text.clear()
        self.state.setText("")

    def _show_hint(self) -> None:
        can_answer = self._can_answer(self.variant)
        self.text.setPlaceholderText(tr("Answers appear here.") if can_answer else tr("It cannot answer yet."))

    def _add_speaker(self, who: str) -> None:
        first = self.text.document().isEmpty()
        block = QTextBlockFormat()
        block.setTopMargin(0 if first else 2 * UNIT)
        cursor = self._end()
        if first:
            cursor.setBlockFormat(block)
        else:
            cursor.insertBlock(block)
        small = self._format("muted")
        small.setProperty(QTextCharFormat.Property.FontPixelSize, SMALL_PX)
        cursor.insertText(who, small)
        cursor.insertBlock(QTextBlockFormat())

    def _flush(self) -> None:
        if self._waiting:
            text, self._waiting = "".join(self._waiting), []
            if self.state.text():
                self.state.setText("")
            self._insert(text, self._format("text"))

    def _insert(self, text: str, how: QTextCharFormat) -> None:
        bar = self.text.verticalScrollBar()
        at_end = bar.value() >= bar.maximum() - UNIT
        self._end().insertText(text, how)
        if at_end:
            bar.setValue(bar.maximum())

    def _end(self) -> QTextCursor:
        cursor = QTextCursor(self.text.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        return cursor

    def _format(self, color: str) -> QTextCharFormat:
        made = QTextCharFormat()
        made.setForeground(QColor(getattr(colors_of(self), color)))
        return made


class PromptBox(QPlainTextEdit):
    """The box for the person's message; Ctrl+Return sends it (the page's primary action)."""

    def __init__(self) -> None:
        super().__init__()
        self.setFixedHeight(9 * UNIT)
        self.setTabChangesFocus(True)
        self.setPlaceholderText(tr("Ask all the same. Ctrl+Return sends."))
        self.setAccessibleName(tr("Your message"))
