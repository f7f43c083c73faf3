"""One side of a conversation: the choice of the model that answers, the transcript, and the speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import (
    QColor,
    QGuiApplication,
    QStandardItemModel,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
)
from PySide6.QtWidgets import QHBoxLayout, QTextEdit

from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.theme import SMALL_PX, UNIT, colors_of
from burnish_app.state.answerers import Answerer
from burnish_app.widgets.basic.buttons import quiet
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import Look, ShorteningBox, caption, heading, set_tone
from burnish_app.widgets.try_out.text_boxes import COLOR_PROPERTY, Transcript
from burnish_app.wording.numbers import facts_text
from burnish_engine.contract.serve.model_requests import ChatMessage
from burnish_engine.contract.serve.replies import Reply

_BUTTON_PX = 28  # beside facts that do not break: three panes have to fit the narrowest window
_MIN_HEIGHT_PX = 96  # least height of the transcript
_FLUSH_MS = 50
"""Time between writes of streamed pieces, milliseconds: each write lays the text out anew."""


@dataclass(frozen=True)
class KeptPane:
    """The conversation that a pane showed, which can be brought back.

    Attributes:
        key: key of the model that answered.
        document: transcript.
        messages: conversation.
        question: conversation up to the last question.
        repeats: how often that was asked again.
        facts: what stood below the transcript.
        answered_by: name of the model that wrote the newest reply.
    """

    key: str
    document: QTextDocument
    messages: tuple[ChatMessage, ...]
    question: tuple[ChatMessage, ...]
    repeats: int
    facts: str
    answered_by: str


class ChatPane(Card):
    """Shows a transcript that grows while a reply is streamed.

    Args:
        name: name for screen readers.
        usual: key of the model that answers until another is chosen.

    Attributes:
        choice_changed: signal without arguments, emitted when another model is chosen.
        again_wanted: signal without arguments, emitted when the last question is to be answered once more.
        who: choice of the model that answers.
        question: conversation up to the last question; empty before the first.
        repeats: how often that was asked again.
    """

    choice_changed = Signal()
    again_wanted = Signal()

    def __init__(self, name: str, usual: str) -> None:
        super().__init__()
        self._usual, self._answerers = usual, list[Answerer]()
        self._messages: list[ChatMessage] = []
        self._without_reply: list[ChatMessage] = []  # where the conversation continues if no reply comes
        self.question: list[ChatMessage] = []
        self.repeats = 0
        self._streamed: list[str] = []
        self._reply_at = 0  # where the newest reply begins in the transcript
        self._facts = self._answered_by = ""
        self._waiting: list[str] = []
        self._timer = QTimer(self, singleShot=True, interval=_FLUSH_MS)
        self._timer.timeout.connect(self._flush)
        self.who = ShorteningBox()
        self.who.setAccessibleName(tr("{name}: who answers").format(name=name))
        self._letter = heading("")
        self._letter.hide()
        self.copy = quiet("", self._copy, "copy")
        self.copy.setAccessibleName(tr("{name}: copy the reply").format(name=name))
        self.copy.setToolTip(tr("Copy the reply"))
        room = self.copy.sizePolicy()
        room.setRetainSizeWhenHidden(True)  # the transcript keeps its height, and with it the end in view
        self.copy.setSizePolicy(room)
        self.copy.hide()
        self.again = quiet("", self.again_wanted.emit, "refresh")
        self.again.setAccessibleName(tr("{name}: ask again").format(name=name))
        self.again.setToolTip(
            tr("Ask this model alone again, with the next seed. At temperature 0 the seed changes nothing.")
        )
        self.again.setEnabled(False)
        self.text = Transcript()
        self.text.setReadOnly(True)
        self.text.setAccessibleName(name)
        self.text.setMinimumHeight(_MIN_HEIGHT_PX)
        set_tone(self.text, "plain")
        self.text.setLineWrapMode(QTextEdit.LineWrapMode.WidgetWidth)
        self._at_end = True
        bar = self.text.verticalScrollBar()
        bar.valueChanged.connect(self._scrolled)
        bar.rangeChanged.connect(self._keep_end_in_view)
        self.who.currentIndexChanged.connect(self._choice_changed)
        self.state = caption("")
        head = fill(QHBoxLayout(), self._letter, (self.who, 1), spacing_px=UNIT)
        foot = fill(QHBoxLayout(), (self.state, 1), spacing_px=0)
        for button in (self.again, self.copy):
            button.setFixedWidth(_BUTTON_PX)
            foot.addWidget(button, alignment=Qt.AlignmentFlag.AlignBottom)
        fill(self.body, head, (self.text, 1), foot)

    @property
    def answerer(self) -> Answerer:
        """The chosen model."""
        found: Answerer = self.who.currentData()
        return found

    @property
    def messages(self) -> list[ChatMessage]:
        """The conversation so far, without the reply that is being streamed."""
        return list(self._messages)

    @property
    def has_written(self) -> bool:
        """Whether any of the newest reply has come."""
        return bool(self._streamed)

    def choose(self, key: str) -> None:
        """Choose the model that answers, by its key; the first one where there is none of that key."""
        keys = [one.key for one in self._answerers]
        self.who.setCurrentIndex(keys.index(key) if key in keys else 0)

    def choose_other(self, taken: Sequence[Answerer]) -> None:
        """Choose a model that can answer and does not yet; where there is none, the choice stays."""
        free = [one for one in self._answerers if one.able and one not in taken]
        if free and self.answerer not in free:
            self.choose(free[0].key)

    def offer(self, answerers: Sequence[Answerer]) -> None:
        """Offer models; those that cannot answer are disabled. The choice stays where it is still offered.

        Args:
            answerers: models, at least one.
        """
        if list(answerers) == self._answerers:
            return
        known = [one.key for one in answerers]
        before = self.answerer.key if self._answerers else self._usual
        self._answerers = list(answerers)
        blocked = self.who.blockSignals(True)
        self.who.clear()
        for one in answerers:
            self.who.addItem(one.label, one)
            self.who.setItemData(self.who.count() - 1, one.hint, Qt.ItemDataRole.ToolTipRole)
        items = self.who.model()
        assert isinstance(items, QStandardItemModel)  # a combo box makes this model for itself
        for number, one in enumerate(answerers):
            items.item(number).setEnabled(one.able)
        self.choose(before if before in known else self._usual)
        self.who.blockSignals(blocked)
        self._choice_changed()

    def hide_who(self, letter: str) -> None:
        """Hide who answers behind a letter; empty: show it again, with the letter that it had."""
        self.who.setVisible(not letter)
        if letter:
            self._letter.setText(letter)
        self._letter.setVisible(bool(self._letter.text()))

    def forget_letter(self) -> None:
        """Show who answers, as outside of a blind vote."""
        self._letter.setText("")
        self.hide_who("")

    def say(self, messages: Sequence[ChatMessage]) -> None:
        """Add messages and start the reply; the transcript shows its end, whatever was looked at before.

        Args:
            messages: messages of the person, or a row's turns up to the one that is answered.
        """
        self._without_reply = list(self._messages)
        self._messages += messages
        self.question, self.repeats = list(self._messages), 0
        for message in messages:
            self._add_speaker({"user": tr("You"), "system": tr("System")}.get(message.role, tr("Reply in the data")))
            self._end().setBlockFormat(self.text.bubble("link_soft", own=message.role == "user"))
            self._insert(message.content, self._format("text"))
        self._begin_reply(self._letter.text() if self.who.isHidden() else self.who.currentText())

    def say_again(self) -> None:
        """Start another reply to the last question below what is there; the conversation continues from it."""
        self._without_reply = list(self._messages)
        self._messages = list(self.question)
        self.repeats += 1
        self._begin_reply(tr("{name}, again").format(name=self.who.currentText()))

    def _begin_reply(self, who: str) -> None:
        self._streamed.clear()
        self._add_speaker(who)
        self._end().setBlockFormat(self.text.bubble("raised", own=False))
        self._reply_at = self._end().position()
        self._at_end = True
        self._keep_end_in_view()
        self.state.setText(tr("Loading the model ..."))
        self.state.setToolTip("")
        set_tone(self.state, "muted")
        self._show_copy()

    def stream(self, piece: str) -> None:
        """Add a piece of the streamed reply."""
        self._streamed.append(piece)
        self.copy.show()
        self._waiting.append(piece)
        if not self._timer.isActive():
            self._timer.start()

    def finish(self, reply: Reply, *, secret: bool = False) -> None:
        """Complete the reply.

        Args:
            reply: finished reply.
            secret: whether name and speed, which could tell who wrote it, are left out until `reveal`.
        """
        self._flush()
        written = "".join(self._streamed)
        if not written:
            self._insert(reply.text, self._format("text"))
        self._messages.append(ChatMessage(role="assistant", content=reply.text or written))
        self.text.show_markdown(self._reply_at, reply.text or written)
        blank = "" if (reply.text or written).strip() else tr("only white space")
        pace = reply.tokens / reply.seconds if reply.seconds > 0 else 0.0
        speed = tr("{speed:.1f} tokens/s").format(speed=pace) if pace else ""
        first = reply.first_token_s
        began = "" if first is None else tr("first token {seconds} s").format(seconds=f"{first:.2g}")
        end = "" if reply.stopped else tr("cut at the longest reply")
        waited = tr("after the others: {why}").format(why=tr(reply.waited)) if reply.waited else ""
        self._answered_by = reply.name
        self._facts = facts_text(blank, speed, began, end, waited)
        self._show_copy()
        if secret:
            self.state.setText("")
        else:
            self.reveal()

    def reveal(self) -> None:
        """Show the speed of the finished reply, with the whole name of its model as the tooltip."""
        self.state.setText(self._facts)
        self.state.setToolTip(self._answered_by)

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
        else:
            self._messages = list(self._without_reply)
        self.state.setText(text)
        set_tone(self.state, tone)
        self._show_copy()

    @property
    def reply(self) -> str:
        """The newest reply as it is shown."""
        return self.text.text_from(self._reply_at)

    def mark(self, spans: Sequence[tuple[int, int]]) -> None:
        """Mark stretches of the newest reply, by characters."""
        self.text.mark(self._reply_at, spans)

    def clear(self) -> None:
        """Start a new conversation."""
        self._timer.stop()
        self._messages.clear()
        self.question.clear()
        self._streamed.clear()
        self._waiting.clear()
        self.text.clear()
        self.state.setText("")
        self.state.setToolTip("")
        self._facts = self._answered_by = ""
        self._show_copy()

    def keep(self) -> KeptPane:
        """Return what the pane shows, to be brought back."""
        return KeptPane(
            self.answerer.key,
            self.text.document().clone(),
            tuple(self._messages),
            tuple(self.question),
            self.repeats,
            self.state.text(),
            self.state.toolTip(),
        )

    def bring_back(self, kept: KeptPane) -> None:
        """Show a conversation that was kept, which continues from there."""
        self.clear()
        self.choose(kept.key)
        self.text.setDocument(kept.document.clone(self.text))
        self.text.recolor()
        self._messages, self.question, self.repeats = list(kept.messages), list(kept.question), kept.repeats
        self._facts, self._answered_by = kept.facts, kept.answered_by
        self.reveal()
        self._show_copy()
        self._at_end = True
        self._keep_end_in_view()

    def _newest_reply(self) -> str:
        replies = [message.content for message in self._messages if message.role == "assistant"]
        return replies[-1] if replies else "".join(self._streamed)

    def _show_copy(self) -> None:
        self.copy.setVisible(bool(self._newest_reply()))

    def _copy(self) -> None:
        text = self._newest_reply()
        if text:  # what the clipboard holds is not lost for nothing
            QGuiApplication.clipboard().setText(text)

    def _choice_changed(self) -> None:
        able = self.answerer.able
        self.who.setToolTip(self.answerer.hint)
        missing = (
            tr("It answers once a file is exported.")
            if self.answerer.variant == "exported"
            else tr("It answers once a run has saved what it trained.")
        )
        self.text.setPlaceholderText(tr("Answers appear here.") if able else missing)
        self.choice_changed.emit()

    def _add_speaker(self, who: str) -> None:
        first = self.text.document().isEmpty()
        block = QTextBlockFormat()
        block.setTopMargin(0 if first else 3 * UNIT)
        block.setBottomMargin(UNIT + 4)
        cursor = self._end()
        if first:
            cursor.setBlockFormat(block)
        else:
            cursor.insertBlock(block)
        small = self._format("muted")
        small.setProperty(QTextCharFormat.Property.FontPixelSize, scaled(SMALL_PX))
        cursor.insertText(who, small)
        cursor.insertBlock(QTextBlockFormat())

    def _flush(self) -> None:
        if self._waiting:
            text, self._waiting = "".join(self._waiting), []
            if self.state.text():
                self.state.setText("")
            self._insert(text, self._format("text"))

    def _insert(self, text: str, how: QTextCharFormat) -> None:
        self._end().insertText(text, how)

    def _scrolled(self, value_px: int) -> None:
        self._at_end = value_px >= self.text.verticalScrollBar().maximum() - UNIT

    def _keep_end_in_view(self) -> None:
        """Show the end of the transcript where it was shown before the text grew, or the room for it shrank."""
        if self._at_end:
            bar = self.text.verticalScrollBar()
            bar.setValue(bar.maximum())

    def _end(self) -> QTextCursor:
        cursor = QTextCursor(self.text.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        return cursor

    def _format(self, color: str) -> QTextCharFormat:
        made = QTextCharFormat()
        made.setProperty(COLOR_PROPERTY, color)
        made.setForeground(QColor(getattr(colors_of(self), color)))
        return made
