"""Whether the run really trains: one calm line, with cause and remedy where something is wrong, and what was done."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout

from burnish_app.guard_words import Stopping, Verdict, bad_steps_words, rollback_words, stopping_words, verdict
from burnish_app.run_state import RunState
from burnish_app.theme import UNIT
from burnish_app.widgets.buttons import quiet
from burnish_app.widgets.card import Card, IconLabel
from burnish_app.widgets.layouts import clear
from burnish_app.widgets.text import body, caption, heading

_ICON_PX = 20


class RunVerdict(Card):
    """Shown where there is a verdict, or something was done about trouble."""

    def __init__(self) -> None:
        super().__init__()
        self._drawn: tuple[object, ...] = ()
        self._icon = QHBoxLayout()
        self.sentence = heading("")
        self.cause, self.remedy = body(""), body("")
        self.checked = caption("")
        self.checked.hide()
        self._more = quiet("", self._toggle)
        self._name_more()
        self._notes = QVBoxLayout()
        self._notes.setSpacing(UNIT // 2)
        top = QHBoxLayout()
        top.setSpacing(UNIT + 4)
        top.addLayout(self._icon)
        top.addWidget(self.sentence, 1)
        top.addWidget(self._more, alignment=Qt.AlignmentFlag.AlignTop)
        words = QVBoxLayout()
        words.setSpacing(4)
        words.setContentsMargins(_ICON_PX + UNIT + 4, 0, 0, 0)  # in line with the sentence
        for widget in (self.cause, self.remedy, self.checked):
            words.addWidget(widget)
        words.addLayout(self._notes)
        self.body.setSpacing(4)
        self.body.addLayout(top)
        self.body.addLayout(words)
        self.hide()

    def draw(self, state: RunState, stopping: Stopping, problem: str = "") -> None:
        """Show what is known; cheap where nothing changed.

        Args:
            state: As folded so far.
            stopping: The run's settings for stopping early.
            problem: Why the run failed, which is said elsewhere and not again here.
        """
        now = (
            problem,
            state.guard,
            state.rollbacks,
            state.bad_steps,
            state.best,
            len(state.evaluation_steps),
            stopping,
        )
        if now == self._drawn:
            return
        self._drawn = now
        found = verdict(state)
        if found is not None and found.sentence in problem:
            found = None
        notes = [(rollback_words(back), "warning") for back in state.rollbacks]
        bad, stops = bad_steps_words(state), stopping_words(state, stopping)
        notes += [(bad, "warning")] if bad else []
        notes += [(stops, "muted")] if stops else []
        self._show_verdict(found)
        clear(self._notes)
        for text, look in notes:
            self._notes.addWidget(body(text, "warning" if look == "warning" else "muted"))
        self.setVisible(found is not None or bool(notes))

    def _show_verdict(self, found: Verdict | None) -> None:
        clear(self._icon)
        if found is not None:
            self._icon.addWidget(
                IconLabel(found.standing, _ICON_PX, found.standing), alignment=Qt.AlignmentFlag.AlignTop
            )
        self.sentence.setText(found.sentence if found else "")
        self.cause.setText(found.cause if found else "")
        self.remedy.setText(found.remedy if found else "")
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
        self._more.setText("▸  Checks" if folded else "▾  Checks")
        self._more.setAccessibleName(f"Checks, {'folded' if folded else 'open'}")
