"""The card with the plan of a duel: what is compared, what is fair, how many runs, how long."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.widgets.basic.buttons import secondary
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear
from burnish_app.widgets.basic.pill import Pill, PillTone
from burnish_app.widgets.basic.text import ElidedLabel, body, caption, headline
from burnish_app.widgets.basic.wrapping import FlowLayout
from burnish_app.widgets.page.banner import BusyLine
from burnish_app.wording.comparison_text import key_text
from burnish_app.wording.duel_text import in_window, plan_text
from burnish_app.wording.plain_words import plain_words
from burnish_engine.contract.run.duels import DuelDifferenceFacts, DuelFacts

_WORDS_PX = 300  # a name or values that are longer are cut
_TONES: dict[str, PillTone] = {"compared": "info", "unfair": "error", "decided": "plain"}


class DuelPlanCard(Card):
    """Shows what a duel would compare and take.

    Attributes:
        anyway: signal without arguments, emitted when an unfair duel shall be planned all the same.
    """

    anyway = Signal()

    def __init__(self) -> None:
        super().__init__(tr("The plan"), icon_name="clock")
        self.verdict = headline("")
        self.about = body("", "muted")
        self.problem = body("", "error")
        self.busy = BusyLine(tr("Looking at recipes and data ..."))
        self._differences = QVBoxLayout()
        self._differences.setSpacing(UNIT)
        self.unfair = secondary(tr("Compare anyway"), self.anyway.emit)
        for widget in (self.busy, self.verdict, self.about, self.problem):
            self.body.addWidget(widget)
        self.body.addWidget(self.unfair, alignment=Qt.AlignmentFlag.AlignLeft)
        self.body.addLayout(self._differences)
        self.body.addStretch(1)
        self.show_wanting("")

    def show_wanting(self, text: str) -> None:
        """Show what is missing for a plan; empty: one is being made."""
        self._begin(text)
        self.busy.setVisible(not text)

    def show_failure(self, what: str, remedy: str) -> None:
        """Show why there can be no such duel; one that is only unfair can be compared anyway."""
        can_go_on = "--anyway" in remedy
        self._begin(tr("These two make no fair duel.") if can_go_on else tr("No plan."))
        self.problem.setText(in_window(f"{what} {remedy}").strip())
        self.problem.show()
        self.unfair.setVisible(can_go_on)

    def show_plan(self, duel: DuelFacts) -> None:
        """Show a plan."""
        self._begin(plan_text(duel))
        rates = len(duel.factors)
        words = (
            tr("Each side tries {rates} learning rates, then {seeds} seeds at its best one. They take turns.")
            if rates > 1
            else tr("Each side runs {seeds} seeds at its own learning rate. They take turns.")
        )
        self.about.setText(words.format(rates=rates, seeds=duel.seeds))
        self.about.show()
        self.problem.setText(plain_words(" ".join(duel.problems)))
        self.problem.setVisible(bool(duel.problems))
        for one in duel.differences:
            self._differences.addWidget(_difference(one))

    def _begin(self, verdict: str) -> None:
        clear(self._differences)
        self.busy.hide()
        self.verdict.setText(verdict)
        self.verdict.setVisible(bool(verdict))
        for widget in (self.about, self.problem, self.unfair):
            widget.hide()


def _difference(one: DuelDifferenceFacts) -> QWidget:
    """Make a line with the key, the values of the sides, and whether it is what is compared."""
    kinds = {"compared": tr("compared"), "unfair": tr("unfair"), "decided": tr("not compared")}
    holder = QWidget()
    line = FlowLayout(UNIT, 4)
    holder.setLayout(line)
    pill = Pill()
    name = ElidedLabel(key_text(one.key), expands=False)
    values = ElidedLabel(" / ".join(one.values), tone="muted", expands=False)
    for label in (name, values):
        label.setMaximumWidth(scaled(_WORDS_PX))
    for widget in (pill, name, values):
        line.addWidget(widget)
    pill.set(kinds[one.kind], _TONES[one.kind])
    if one.why:
        line.addWidget(caption(one.why))
    return holder
