"""The line that chooses what is asked: the person's own words, saved prompts, or held-out rows one by one."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.state.questions import ChatQuestion, SavedPrompts
from burnish_app.widgets.basic.buttons import quiet, row
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.pill import Segmented
from burnish_app.widgets.basic.text import caption
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_engine.contract.serve.model_requests import ChatMessage

_OWN, _SAVED, _ROWS = "own", "saved", "rows"


class QuestionsBar(QWidget):
    """Chooses what is asked.

    Attributes:
        chosen: signal with the `ChatQuestion` that is shown, or None for the person's own words.
        save_wanted: signal without arguments: the person wants to save what stands in the message box.
        source: choice among own words, saved prompts and held-out rows.
    """

    chosen = Signal(object)
    save_wanted = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._saved = SavedPrompts()
        self._rows: list[ChatQuestion] = []
        self._rows_of = ""
        self._at = 0
        choices = ((_OWN, tr("Own words")), (_SAVED, tr("Saved prompts")), (_ROWS, tr("Held-out rows")))
        self.source = Segmented(tr("Questions"), choices)
        self.source.choose(_OWN)
        self.source.chosen.connect(lambda _value: self._go_to(0))
        self.previous, self.next = quiet("‹", lambda: self._step(-1)), quiet("›", lambda: self._step(1))
        self.previous.setAccessibleName(tr("Previous question"))
        self.next.setAccessibleName(tr("Next question"))
        self._place = caption("")
        self._place.setWordWrap(False)
        self._steps = row(self.previous, self._place, self.next, spacing_px=0)
        self.save = quiet(tr("Save this prompt"), self.save_wanted.emit, "save")
        self.remove = quiet(tr("Remove"), self._remove, "trash")
        self.nothing = caption("")
        self._line = line = fill(FlowLayout(2 * UNIT), self.source, self._steps, self.save, self.remove)
        fill(QVBoxLayout(self), line, self.nothing, spacing_px=4)
        self._show()

    def add_tool(self, widget: QWidget) -> None:
        """Add a widget to the end of the line."""
        self._line.addWidget(widget)

    @property
    def question(self) -> ChatQuestion | None:
        """The question that is shown; None: the person's own words are asked."""
        questions = self._questions()
        return questions[self._at] if self._at < len(questions) else None

    @property
    def has_rows(self) -> bool:
        """Whether there are held-out rows."""
        return bool(self._rows)

    def has_rows_of(self, run: str) -> bool:
        """Whether the held-out rows of a run are known, of which there may be none."""
        return run == self._rows_of

    def show_rows(self, run: str, rows: Sequence[ChatQuestion]) -> None:
        """Replace the held-out rows.

        Args:
            run: path of the run that they are of; empty: none.
            rows: rows as questions.
        """
        self._rows_of, self._rows = run, list(rows)
        if self.source.value == _ROWS:
            self._go_to(0)

    def keep(self, text: str) -> None:
        """Save a prompt; an empty one is ignored."""
        if text.strip():
            self._saved.add(text)
            self.source.choose(_SAVED)
            self._go_to(0)

    def own_words(self) -> None:
        """Go back to the person's own words."""
        self.source.choose(_OWN)
        self._show()

    def _questions(self) -> list[ChatQuestion]:
        if self.source.value == _SAVED:
            return [ChatQuestion((ChatMessage(role="user", content=text),)) for text in self._saved.read()]
        return self._rows if self.source.value == _ROWS else []

    def _step(self, by: int) -> None:
        self._go_to((self._at + by) % max(len(self._questions()), 1))

    def _go_to(self, at: int) -> None:
        self._at = at
        self._show()
        self.chosen.emit(self.question)

    def _remove(self) -> None:
        question = self.question
        if question is not None:
            self._saved.remove(question.text)
            self._go_to(max(self._at - 1, 0))

    def _show(self) -> None:
        count, source = len(self._questions()), self.source.value
        self._steps.setVisible(count > 0)
        self._place.setText(tr("{at} of {count}").format(at=self._at + 1, count=count))
        self.save.setVisible(source != _ROWS)
        self.remove.setVisible(source == _SAVED and count > 0)
        empty = {_SAVED: tr("Nothing is saved yet."), _ROWS: tr("This run keeps no held-out rows.")}
        self.nothing.setText(empty.get(source, ""))
        self.nothing.setVisible(source in empty and not count)
