"""The lines of the training guard: its verdict with cause and remedy, and notes on rollbacks and early stopping."""

from __future__ import annotations

from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from burnish_app.look.language import say, tr
from burnish_app.look.theme import UNIT
from burnish_app.state.guide_pages import PLACE_PROPERTY
from burnish_app.widgets.basic.buttons import quiet
from burnish_app.widgets.basic.card import IconLabel
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.text import body, caption, heading
from burnish_app.wording.guard_text import (
    EarlyStoppingSettings,
    GuardVerdict,
    bad_steps_text,
    early_stopping_text,
    forgetting_text,
    guard_verdict,
)
from burnish_app.wording.plain_words import plain_words
from burnish_engine.contract.run.fold import RunState
from burnish_engine.contract.wording.sentences import rollback_sentence

_ICON_PX = 20


class RunVerdict(QWidget):
    """Shows the guard's verdict and notes. The widget is hidden while there is neither."""

    def __init__(self) -> None:
        super().__init__()
        self.setProperty(PLACE_PROPERTY, "training-guard.md")
        self._drawn: tuple[object, ...] = ()
        self._icon = QHBoxLayout()
        self.sentence = heading("")
        self.cause, self.remedy = body(""), body("")
        self.checked = caption("")
        self.checked.hide()
        self._more = quiet("", self._toggle)
        self._name_more()
        self._notes = fill(QVBoxLayout(), spacing_px=UNIT // 2)
        top = fill(QHBoxLayout(), self._icon, (self.sentence, 1), self._more, spacing_px=UNIT + 4)
        words = fill(QVBoxLayout(), spacing_px=4)
        words.setContentsMargins(_ICON_PX + UNIT + 4, 0, 0, 0)  # in line with the sentence
        for widget in (self.cause, self.remedy, self.checked):
            words.addWidget(widget)
        words.addLayout(self._notes)
        fill(QVBoxLayout(self), top, words, spacing_px=4, margins_px=(0, UNIT // 2, 0, 0))
        self.hide()

    def draw(self, state: RunState, stopping: EarlyStoppingSettings, problem: str = "", *, over: bool = False) -> None:
        """Show the verdict and the notes of a state; cheap if nothing changed.

        Args:
            state: state folded from the run's events so far.
            stopping: settings of the run for early stopping.
            problem: reason of the run's failure, which the page shows elsewhere and this card does not repeat.
            over: whether the run's process has ended.
        """
        now = (
            problem,
            over,
            state.guard,
            state.rollbacks,
            state.bad_steps,
            state.best,
            len(state.evaluations),
            stopping,
            state.forgetting,
        )
        if now == self._drawn:
            return
        self._drawn = now
        found = guard_verdict(state, over=over)
        if found is not None and found.sentence in problem:
            found = None
        notes = [(say(rollback_sentence(back)), "warning") for back in state.rollbacks]
        bad, stops = bad_steps_text(state), early_stopping_text(state, stopping)
        notes += [(bad, "warning")] if bad else []
        notes += [(stops, "muted")] if stops else []
        if forgetting := state.forgetting:
            notes.append((forgetting_text(forgetting), "warning" if forgetting.is_marked else "muted"))
        self._show_verdict(found)
        clear(self._notes)
        for text, tone in notes:
            self._notes.addWidget(body(plain_words(text), "warning" if tone == "warning" else "muted"))
        self.setVisible(found is not None or bool(notes))

    def _show_verdict(self, found: GuardVerdict | None) -> None:
        clear(self._icon)
        if found is not None:
            self._icon.addWidget(IconLabel(found.status, _ICON_PX, found.status))
        self.sentence.setText(plain_words(found.sentence) if found else "")
        self.cause.setText(plain_words(found.cause) if found else "")
        self.remedy.setText(plain_words(found.remedy) if found else "")
        self.checked.setText("\n".join(f"✓  {check}" for check in found.checked) if found else "")
        for label in (self.sentence, self.cause, self.remedy):
            label.setVisible(bool(label.text()))
        self._more.setVisible(bool(found and found.checked))
        self._name_more()

    def _toggle(self) -> None:
        self.checked.setVisible(self.checked.isHidden())
        self._name_more()

    def _name_more(self) -> None:
        folded = self.checked.isHidden()
        self._more.setText(tr("▸  Checks") if folded else tr("▾  Checks"))
        self._more.setAccessibleName(tr("Checks, folded") if folded else tr("Checks, open"))
