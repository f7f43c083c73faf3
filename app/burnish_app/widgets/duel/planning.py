"""The planning of a new duel: its two sides, how thoroughly they are compared, and the plan that follows."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QSpinBox, QVBoxLayout, QWidget

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.question import Question
from burnish_app.look.language import tr
from burnish_app.look.tokens import GAP_PX, UNIT
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.pill import Segmented
from burnish_app.widgets.basic.text import body, pad_spin
from burnish_app.widgets.basic.wrapping import FlowLayout, columns_layout
from burnish_app.widgets.duel.plan_card import DuelPlanCard
from burnish_app.widgets.duel.side_card import SideCard
from burnish_engine.contract.run.duels import DuelFacts
from burnish_engine.contract.serve.duel_requests import DuelSideRequest, PlanDuelRequest, StartDuelRequest
from burnish_engine.contract.serve.messages import Result
from burnish_engine.contract.serve.replies import RunSummary

_PLAN_AFTER_MS = 600
_GRID = [0.3, 1.0, 3.0]
_SIDE_PX = 360


class DuelPlanning(QWidget):
    """Chooses two recipes, has their duel planned, and starts it.

    Args:
        client: connection to the engine.
        bench: workbench with the draft.

    Attributes:
        changed: signal without arguments, emitted when there is a plan, none any more, or a duel is being started.
        started: signal with the folder of the duel that was started.
        failed: signal with the `Failure` of one that could not be.
        first, second: cards of the sides.
        card: card with the plan.
    """

    changed = Signal()
    started = Signal(str)
    failed = Signal(object)

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__()
        self._bench = bench
        self._plan: DuelFacts | None = None
        self._anyway = False
        self._duelists: tuple[str, ...] = ()
        self._timer = QTimer(self, singleShot=True, interval=_PLAN_AFTER_MS)
        self._timer.timeout.connect(self.ask)
        self.first = SideCard("A", bench.recipe, "draft")
        self.second = SideCard("B", bench.recipe, "changed")
        self.card = DuelPlanCard()
        self._planning = Question(
            client,
            self,
            self._planned,
            lambda failure: self.card.show_failure(failure.what, failure.remedy),
            progressed=self.card.busy.set_progress,
            changed=self.changed.emit,
        )
        self._starting = Question(client, self, self._started, self.failed.emit, changed=self.changed.emit)
        self.card.anyway.connect(self._plan_anyway)
        for side in (self.first, self.second):
            side.setMinimumWidth(_SIDE_PX)
            side.changed.connect(self.forget)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(GAP_PX)
        column.addLayout(columns_layout((self.first, self.second), GAP_PX, line_px=GAP_PX, even=True, fill=True))
        column.addWidget(self._make_options())
        column.addWidget(self.card)

    @property
    def plan(self) -> DuelFacts | None:
        """The plan for what is chosen now; None: there is none yet."""
        return self._plan

    @property
    def is_starting(self) -> bool:
        """Whether a duel is being started."""
        return self._starting.is_waiting

    def show_runs(self, runs: list[RunSummary]) -> None:
        """Offer runs as sides."""
        for side in (self.first, self.second):
            side.show_runs(runs)

    def show_draft(self) -> None:
        """Take over the draft of the workbench."""
        for side in (self.first, self.second):
            side.show_draft(self._bench.recipe)

    def follow_choosing(self) -> None:
        """Drop the plan while a recipe is chosen that a side will take over, and make one once it is."""
        if self.first.is_of_draft or self.second.is_of_draft:
            self.forget()

    @property
    def _awaits_draft(self) -> bool:
        return self._bench.is_choosing and (self.first.is_of_draft or self.second.is_of_draft)

    def take_duelists(self) -> bool:
        """Choose the runs that were sent here from another page; return whether there are new ones."""
        if self._bench.duelists == self._duelists:
            return False
        self._duelists = self._bench.duelists
        for side, folder in zip((self.first, self.second), self._duelists, strict=False):
            side.choose_run(folder)
        return True

    def forget(self) -> None:
        """Drop the plan, because something else is chosen, and make another one soon."""
        self._anyway = False
        self._plan = None
        self._planning.drop()
        self.plan_soon()

    def plan_soon(self) -> None:
        """Have a plan made once the choice rests, if there is none and the person looks at it."""
        if not self.isVisible() or self._plan is not None:
            return
        if self._awaits_draft:
            self._timer.stop()
            self.card.show_wanting(tr("Choosing a recipe for machine and data ..."))
        elif None in (self.first.side(), self.second.side()):
            self._timer.stop()
            self.card.show_wanting(tr("Mend the value in red."))
        elif not self._planning.is_waiting:
            self.card.show_wanting("")
            self._timer.start()
        self.changed.emit()

    def ask(self) -> None:
        """Have a plan made now."""
        fields = self._fields()
        if fields is None or self.isHidden():
            return
        self.card.show_wanting("")
        self._planning.ask(PlanDuelRequest, **fields)

    def start(self) -> None:
        """Start the duel that was planned."""
        fields = self._fields()
        if fields is None or self._plan is None or self.is_starting:
            return
        self._starting.ask(StartDuelRequest, **fields)

    def _make_options(self) -> Card:
        self.rates = Segmented(
            tr("Learning rates"), [("grid", tr("0.3, 1 and 3 times its own")), ("own", tr("its own alone"))]
        )
        self.rates.choose("grid")
        self.rates.chosen.connect(lambda _value: self.forget())
        self.seeds = QSpinBox()
        self.seeds.setRange(3, 100)
        self.seeds.setAccessibleName(tr("Seeds"))
        self.seeds.valueChanged.connect(lambda _value: self.forget())
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

    def _fields(self) -> dict[str, Any] | None:
        sides = [self.first.side(), self.second.side()]
        chosen = [DuelSideRequest(name=side.name, recipe=side.recipe) for side in sides if side is not None]
        if len(chosen) < 2:
            return None
        factors = _GRID if self.rates.value == "grid" else [1.0]
        return {"sides": chosen, "seeds": self.seeds.value(), "factors": factors, "anyway": self._anyway}

    def _plan_anyway(self) -> None:
        self._anyway = True
        self.ask()

    def _planned(self, result: Result) -> None:
        if result.duels:
            self._plan = result.duels[0]
            self.card.show_plan(self._plan)

    def _started(self, result: Result) -> None:
        self._plan = None
        self.started.emit(result.run or "")
