"""Asks the engine for a recipe for the workbench's model, data and target."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.engine_there import EngineThere
from burnish_app.engine.question import Question
from burnish_app.state.workbench import Workbench
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.model_requests import SuggestRequest


class SuggestionFollower(QObject):
    """Asks for a suggestion, and knows whether the last one is about what is chosen now.

    Args:
        client: connection to the engine.
        bench: workbench with the choices.
        other: engine of the machine elsewhere that the recipe may name.
        parent: parent in Qt's object tree.

    Attributes:
        suggested: signal with the suggestion; what it is about has not changed since it was asked for.
        outdated: signal without arguments, emitted instead if that has changed.
        failed: signal with the failure.
        progressed: signal with (what is done, how much, of how much or 0).
        ended: signal without arguments, emitted after one of the others, and when the question was taken back.
    """

    suggested = Signal(object)
    outdated = Signal()
    failed = Signal(object)
    progressed = Signal(str, int, int)
    ended = Signal()

    def __init__(
        self, client: EngineClient, bench: Workbench, other: EngineThere, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._bench, self._there, self._place = bench, other, ""
        self._inputs: tuple[object, ...] = ()
        self._question = Question(
            client, self, self._answered, self._refused, progressed=self.progressed.emit, changed=self._changed
        )

    @property
    def is_waiting(self) -> bool:
        """Whether a suggestion was asked for and has not come."""
        return self._question.is_waiting

    @property
    def is_current(self) -> bool:
        """Whether the recipe is known to be about model, data, objective, target and machine as they are chosen now."""
        return self._inputs == self._wanted()

    def keep(self) -> None:
        """Take the recipe as it is as one for what is chosen now: none is to be suggested."""
        self._inputs = self._wanted()

    def ask(self) -> None:
        """Ask for a suggestion; an earlier question is taken back."""
        bench, there = self._bench, self._there
        machine = there.machine if bench.recipe.devices.where == there.where else None
        self._place = there.where if machine is not None else ""
        self.keep()
        self._question.ask(
            SuggestRequest,
            about=self._inputs,
            model=bench.model_path,
            data=bench.data_files,
            validation=bench.validation_files,
            target=bench.target,
            recipe=bench.recipe_toml,
            machine=machine,
        )

    def cancel(self) -> None:
        """Take the question back."""
        self._question.drop()

    def _answered(self, result: Result) -> None:
        if self._question.about == self._wanted() and result.suggestion is not None:
            self.suggested.emit(result.suggestion)
        elif not self.is_current:  # else what is chosen now has its recipe
            self.outdated.emit()

    def _refused(self, failure: Failure) -> None:
        self._inputs = ()
        self.failed.emit(failure)

    def _changed(self) -> None:
        self._bench.set_choosing(is_choosing=self.is_waiting)
        if not self.is_waiting:
            self.ended.emit()

    def _wanted(self) -> tuple[object, ...]:
        bench, target = self._bench, self._bench.target
        data = bench.data_files, bench.validation_files
        where = bench.recipe.devices.where
        # A machine elsewhere counts once it said what it is, and continues to count where its connection is lost.
        is_known = where == self._there.where and (self._there.machine is not None or where == self._place)
        learned = bench.recipe.preference.objective
        return bench.model_path, *data, learned, target.kind, target.ram_gib, where if is_known else ""
