"""Lets the engine inspect the workbench's data, one inspection at a time."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from burnish_app.engine.engine_client import EngineClient
from burnish_app.state.saved.dataset_inputs import DatasetInputs
from burnish_app.state.workbench import Workbench
from burnish_engine.contract.serve.data_requests import InspectRequest
from burnish_engine.contract.serve.messages import Failure, Progress, Result


class DatasetInspection(QObject):
    """Inspects the chosen data and puts the facts into the workbench.

    Attributes:
        started: signal without arguments, emitted when an inspection begins.
        progressed: signal with (what is done, rows done, all rows or 0 if unknown).
        ended: signal without arguments, emitted when an inspection ends, however it ended.
        failed: signal with the `Failure` that says what is wrong with the data.
    """

    started = Signal()
    progressed = Signal(str, int, int)
    ended = Signal()
    failed = Signal(object)

    def __init__(self, client: EngineClient, bench: Workbench, parent: QObject) -> None:
        super().__init__(parent)
        self._client = client
        self._bench = bench
        self._request = ""
        self._asked_for = ""

    @property
    def busy(self) -> bool:
        """Whether an inspection is running."""
        return bool(self._request)

    def inspect_dataset(self) -> None:
        """Start an inspection of the chosen data, unless its facts are known or the same inspection is running."""
        bench = self._bench
        if bench.dataset is not None and bench.data_was_replaced:
            bench.set_dataset(None)
        if not bench.data_files or bench.dataset is not None:
            return
        recipe = bench.recipe_toml
        if self._request and recipe == self._asked_for:
            return
        self._client.cancel(self._request)
        self._asked_for = recipe
        asked = bench.dataset_inputs()
        self._request = name = self._client.send(
            InspectRequest,
            recipe=recipe,
            owner=self,
            on_result=lambda result: self._on_result(name, asked, result),
            on_failure=lambda failure: self._failed(name, failure),
            on_progress=lambda progress: self._on_progress(name, progress),
            on_canceled=lambda: self._on_canceled(name),
        )
        self.started.emit()

    def cancel(self) -> None:
        """Cancel the running inspection, if there is one."""
        if self._request:
            request, self._request = self._request, ""
            self._client.cancel(request)
            self.ended.emit()

    def _on_result(self, name: str, asked: DatasetInputs, result: Result) -> None:
        if name == self._request:
            self._request = ""
            if asked.recipe == self._bench.dataset_inputs().recipe:  # else it is about what was chosen before
                self._bench.set_dataset(result.dataset, asked)
            self.ended.emit()

    def _failed(self, name: str, failure: Failure) -> None:
        if name == self._request:
            self._request = ""
            self.ended.emit()
            self.failed.emit(failure)

    def _on_progress(self, name: str, progress: Progress) -> None:
        if name == self._request:
            self.progressed.emit(progress.what, progress.done, progress.total)

    def _on_canceled(self, name: str) -> None:
        if name == self._request:
            self._request = ""
            self.ended.emit()
