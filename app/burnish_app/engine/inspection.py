"""Lets the engine inspect the workbench's data, one inspection at a time."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.question import Question
from burnish_app.state.workbench import Workbench
from burnish_engine.contract.serve.data_requests import InspectRequest
from burnish_engine.contract.serve.messages import Result


class DatasetInspection(QObject):
    """Inspects the chosen data and puts the facts into the workbench.

    Attributes:
        progressed: signal with (what is done, rows done, all rows or 0 if unknown).
        failed: signal with the `Failure` that says what is wrong with the data.
        changed: signal without arguments, emitted when an inspection begins and, after `failed`, when it ends.
    """

    progressed = Signal(str, int, int)
    failed = Signal(object)
    changed = Signal()

    def __init__(self, client: EngineClient, bench: Workbench, parent: QObject) -> None:
        super().__init__(parent)
        self._bench = bench
        self._question = Question(
            client, self, self._answered, self.failed.emit, progressed=self.progressed.emit, changed=self.changed.emit
        )

    @property
    def busy(self) -> bool:
        """Whether an inspection is running."""
        return self._question.is_waiting

    def inspect_dataset(self) -> None:
        """Start an inspection of the chosen data, unless its facts are known or the same inspection is running."""
        bench = self._bench
        if bench.dataset is not None and bench.data_was_replaced:
            bench.set_dataset(None)
        if not bench.data_files or bench.dataset is not None:
            return
        recipe = bench.recipe_toml
        if not self.busy or self._question.about[0] != recipe:
            self._question.ask(InspectRequest, about=(recipe, bench.dataset_inputs()), recipe=recipe)

    def cancel(self) -> None:
        """Cancel the running inspection, if there is one."""
        self._question.drop()

    def _answered(self, result: Result) -> None:
        _recipe, asked = self._question.about
        if asked.recipe == self._bench.dataset_inputs().recipe:  # else it is about what was chosen before
            self._bench.set_dataset(result.dataset, asked)
