"""The planning of a new duel: its two sides, how thoroughly they are compared, and the plan that follows."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QSpinBox, QVBoxLayout, QWidget

from burnish_app.engine.engine_client import EngineClient
from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.tokens import GAP_PX, UNIT
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.buttons import row
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.pill import Pill, PillTone, Segmented
from burnish_app.widgets.basic.text import ElidedLabel, body, caption, pad_spin
from burnish_app.widgets.basic.wrapping import FlowLayout, columns_layout
from burnish_app.widgets.compare.plan_card import PlanCard, PlanContent
from burnish_app.widgets.duel.side_card import DuelSide, SideCard
from burnish_app.widgets.sweep.settings_card import SettingsCard
from burnish_app.wording.comparison_text import key_text
from burnish_app.wording.duel_text import plan_text
from burnish_app.wording.plain_words import plain_words
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.contract.recipe.sweep import SweepSetting
from burnish_engine.contract.run.duels import DuelDifferenceFacts, DuelFacts
from burnish_engine.contract.serve.duel_requests import DuelSideRequest, PlanDuelRequest, StartDuelRequest
from burnish_engine.contract.serve.messages import Result
from burnish_engine.contract.serve.replies import RunSummary

_FIRST_FACTOR = SweepSetting(key="masking.kind", values=["off", "magma"])
_GRID = [0.3, 1.0, 3.0]
_SIDE_PX = 360
_WORDS_PX = 300  # a name or values that are longer are cut
_TONES: dict[str, PillTone] = {"compared": "info", "unfair": "error", "decided": "plain"}


class DuelPlanning(QWidget):
    """Chooses two recipes, has their duel planned, and starts it.

    Args:
        client: connection to the engine.
        bench: workbench with the draft.

    Attributes:
        started: signal with the folder of the duel that was started.
        first, second: cards of the sides.
        kind: choice of two recipes or of all combinations of settings.
        factors: card with these settings.
        card: card with the plan.
    """

    started = Signal(str)

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__()
        self._bench = bench
        self._anyway = False
        self._duelists: tuple[str, ...] = ()
        self.first = SideCard("A", bench.recipe, "draft")
        self.second = SideCard("B", bench.recipe, "changed")
        self.kind = Segmented(
            tr("What is compared"),
            [("recipes", tr("two recipes")), ("factors", tr("all combinations of settings"))],
        )
        self.kind.choose("recipes")
        self.kind.chosen.connect(lambda _value: self._choose_kind())
        self.factors = SettingsCard(
            bench.recipe,
            tr("Settings of the draft"),
            tr("Two values each. The verdict is on what each setting does, and on what two do together."),
        )
        self.factors.choose(_FIRST_FACTOR)
        self.factors.hide()
        self.factors.changed.connect(self._choice_changed)
        self._sides = QWidget()
        self._sides.setLayout(columns_layout((self.first, self.second), GAP_PX, line_px=GAP_PX, even=True, fill=True))
        self.card = PlanCard(
            client,
            heading_text=tr("The plan"),
            busy_text=tr("Looking at recipes and data ..."),
            requests=(PlanDuelRequest, StartDuelRequest),
            choice=self._choice,
            plan_of=lambda result: result.duels[0] if result.duels else None,
            content=_plan_content,
        )
        self.card.started.connect(self._started)
        self.card.anyway.connect(self._plan_anyway)
        for side in (self.first, self.second):
            side.setMinimumWidth(_SIDE_PX)
            side.changed.connect(self._choice_changed)
        fill(
            QVBoxLayout(self),
            row(self.kind, None),
            self._sides,
            self.factors,
            self._make_options(),
            self.card,
            spacing_px=GAP_PX,
        )

    def show_runs(self, runs: list[RunSummary]) -> None:
        """Offer runs as sides."""
        for side in (self.first, self.second):
            side.show_runs(runs)

    def show_draft(self) -> None:
        """Take over the draft of the workbench."""
        for side in (self.first, self.second):
            side.show_draft(self._bench.recipe)
        self.factors.show_recipe(self._bench.recipe)

    def take_duelists(self) -> bool:
        """Choose the runs that were sent here from another page; return whether there are new ones."""
        if self._bench.duelists == self._duelists:
            return False
        self._duelists = self._bench.duelists
        self.kind.choose("recipes")
        self._choose_kind()
        for side, folder in zip((self.first, self.second), self._duelists, strict=False):
            side.choose_run(folder)
        return True

    def review(self) -> None:
        """Have a plan made of what is chosen, if there is none and the person looks at it."""
        if self.isVisible():
            self.card.review()

    def _choose_kind(self) -> None:
        self._sides.setVisible(self.kind.value == "recipes")
        self.factors.setVisible(self.kind.value == "factors")
        self._choice_changed()

    def _choice_changed(self) -> None:
        self._anyway = False
        self.review()

    def _make_options(self) -> Card:
        self.rates = Segmented(
            tr("Learning rates"), [("grid", tr("0.3, 1 and 3 times its own")), ("own", tr("its own alone"))]
        )
        self.rates.choose("grid")
        self.rates.chosen.connect(lambda _value: self._choice_changed())
        self.seeds = QSpinBox()
        self.seeds.setRange(3, 100)
        self.seeds.setAccessibleName(tr("Seeds"))
        self.seeds.valueChanged.connect(lambda _value: self._choice_changed())
        pad_spin(self.seeds)
        card = Card(tr("How thoroughly"), icon_name="recipe")
        line = FlowLayout(GAP_PX, UNIT)
        names = body(tr("Learning rates of each side")), body(tr("Seeds compared"))
        for name, editor in zip(names, (self.rates, self.seeds), strict=True):
            name.setWordWrap(False)
            name.setMinimumHeight(self.rates.sizeHint().height())
            line.addWidget(name)
            line.addWidget(editor)
        card.body.addLayout(line)
        return card

    def _choice(self) -> dict[str, Any] | str:
        """Return the fields of the duel that is chosen, or what is missing for it."""
        by_factors = self.kind.value == "factors"
        if self._bench.is_choosing and (by_factors or self.first.is_of_draft or self.second.is_of_draft):
            return tr("Choosing a recipe for machine and data ...")
        tried = self.factors.settings() if by_factors else []
        sides = [DuelSide(tr("draft"), dump_recipe(self._bench.recipe))] if by_factors else self._both()
        if tried is None or not sides:
            return self.factors.problem if by_factors else tr("Mend the value in red.")
        chosen = [DuelSideRequest(name=side.name, recipe=side.recipe) for side in sides]
        rates = _GRID if self.rates.value == "grid" else [1.0]
        return {
            "sides": chosen, "tried": tried, "seeds": self.seeds.value(), "factors": rates, "anyway": self._anyway
        }  # fmt: skip

    def _both(self) -> list[DuelSide]:
        """Return both sides; none while something is wrong with one."""
        sides = [side for card in (self.first, self.second) if (side := card.side()) is not None]
        return sides if len(sides) == 2 else []

    def _plan_anyway(self) -> None:
        self._anyway = True
        self.card.ask()

    def _started(self, result: Result) -> None:
        self.card.plan = None
        self.started.emit(result.run or "")


def _plan_content(duel: DuelFacts) -> PlanContent:
    rates = len(duel.factors)
    words = (
        tr("Each side tries {rates} learning rates, then {seeds} seeds at its best one. They take turns.")
        if rates > 1
        else tr("Each side runs {seeds} seeds at its own learning rate. They take turns.")
    )
    about = body(words.format(rates=rates, seeds=duel.seeds), "muted")
    differences = [_difference_line(difference) for difference in duel.differences]
    return PlanContent(plan_text(duel), [about], plain_words(" ".join(duel.problems)), differences)


def _difference_line(difference: DuelDifferenceFacts) -> QWidget:
    """Make a line with the key, the values of the sides, and whether it is what is compared."""
    kinds = {"compared": tr("compared"), "unfair": tr("unfair"), "decided": tr("not compared")}
    holder = QWidget()
    line = FlowLayout(UNIT, 4)
    holder.setLayout(line)
    pill = Pill()
    name = ElidedLabel(key_text(difference.key), expands=False)
    values = ElidedLabel(" / ".join(difference.values), tone="muted", expands=False)
    for label in (name, values):
        label.setMaximumWidth(scaled(_WORDS_PX))
    for widget in (pill, name, values):
        line.addWidget(widget)
    pill.set(kinds[difference.kind], _TONES[difference.kind])
    if difference.why:
        line.addWidget(caption(difference.why))
    return holder
