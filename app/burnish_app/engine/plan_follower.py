"""Asks the engine for the plan of the workbench's recipe, once edits rest, and for the plans of other recipes."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Signal

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.engine_there import EngineThere
from burnish_app.engine.question import Question
from burnish_app.state.workbench import Workbench
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.recipe.place import HERE
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.contract.serve.data_requests import EstimateRequest
from burnish_engine.contract.serve.messages import Failure, Result

_AFTER_MS = 150


class PlanFollower(QObject):
    """Keeps the plan of the workbench's recipe up to date. Plans are made in the engine's process.

    Args:
        client: connection to the engine.
        bench: workbench with the recipe.
        other: engine of the machine elsewhere that the recipe may name.
        parent: parent in Qt's object tree.

    Attributes:
        planned: signal with the plan of the recipe as it is now.
        failed: signal with the failure of a request for it.
        elsewhere: signal with the place where the recipe trains instead, while its memory and speed are not known.
        other_planned: signal with the name of another recipe and its plan; see `ask_others`.
        timer: timer that runs while a person edits.
    """

    planned = Signal(object)
    failed = Signal(object)
    elsewhere = Signal(str)
    other_planned = Signal(str, object)

    def __init__(
        self, client: EngineClient, bench: Workbench, other: EngineThere, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._client, self._bench, self._there = client, bench, other
        self._question = Question(client, self, self._answered, self._refused)
        self._others: dict[str, Recipe] = {}
        self._told_facts = (0, 0)
        self.timer = QTimer(self, singleShot=True, interval=_AFTER_MS)
        self.timer.timeout.connect(self.ask)

    @property
    def is_waiting(self) -> bool:
        """Whether a plan was asked for and has not come."""
        return self.timer.isActive() or self._question.is_waiting

    def ask_soon(self) -> None:
        """Ask once no edit has come for a moment."""
        self.drop()
        self.timer.start()

    def ask(self) -> None:
        """Ask now. The answer to an earlier question is not waited for."""
        self.drop()
        where = self._bench.recipe.devices.where
        if where != HERE:  # this machine's memory and speed say nothing about it
            if where != self._there.where or self._there.machine is None:
                self.elsewhere.emit(where)
                return
            self._there.refresh()
        self._question.ask(
            EstimateRequest, recipe=self._bench.recipe_toml, dataset=self._untold_facts(), machine=self._machine
        )

    def ask_others(self, recipes: dict[str, Recipe]) -> None:
        """Ask for plans of other recipes, one after the other: the engine makes only the newest that it is asked for.

        Args:
            recipes: recipes by name.
        """
        self._others = dict(recipes)
        self._ask_next()

    def drop(self) -> None:
        """Take back every question: its answer would be about another recipe."""
        self.timer.stop()
        self._others = {}
        self._question.drop()

    def _ask_next(self) -> None:
        for name in list(self._others)[:1]:
            recipe = dump_recipe(self._others.pop(name))
            self._question.ask(EstimateRequest, about=name, recipe=recipe, machine=self._machine)

    @property
    def _machine(self) -> MachineFacts | None:
        """Facts of the machine elsewhere that the recipe names; None: this machine is planned for."""
        return self._there.machine if self._bench.recipe.devices.where != HERE else None

    def _answered(self, result: Result) -> None:
        name, plan = self._question.about, result.plan
        if name is None and plan is not None:
            self.planned.emit(plan)
        elif name is not None:
            if plan is not None:
                self.other_planned.emit(name, plan)
            self._ask_next()

    def _refused(self, failure: Failure) -> None:
        if self._question.about is None:
            self.failed.emit(failure)
        else:
            self._ask_next()

    def _untold_facts(self) -> DatasetFacts | None:
        """Return the facts on the data if this server did not get or find them yet, as after a restart."""
        facts = self._bench.dataset
        now = (self._client.generation, id(facts))
        if facts is None or now == self._told_facts or self._bench.data_was_replaced:
            return None
        self._told_facts = now
        return facts
