"""Looks at the data of the workbench: one inspection at a time, of what is chosen now."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from burnish_app.engine_client import EngineClient
from burnish_app.workbench import DatasetInputs, Workbench
from burnish_engine.contract.protocol import Failure, InspectRequest, Progress, Result


class Inspection(QObject):
    """Fills the workbench's dataset facts.

    Attributes:
        started: An inspection began.
        progressed: (what, rows done, rows in all or 0).
        ended: It is over, however it ended.
        failed: What was wrong with the data.
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
        """Whether the data is being looked at."""
        return bool(self._request)

    def look(self) -> None:
        """Inspect what is chosen, unless that is known or under way already."""
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
            on_result=lambda result: self._found(name, asked, result),
            on_failure=lambda failure: self._failed(name, failure),
            on_progress=lambda progress: self._tell(name, progress),
            on_canceled=lambda: self._end(name),
        )
        self.started.emit()

    def cancel(self) -> None:
        """Stop looking."""
        if self._request:
            request, self._request = self._request, ""
            self._client.cancel(request)
            self.ended.emit()

    def _found(self, name: str, asked: DatasetInputs, result: Result) -> None:
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

    def _tell(self, name: str, progress: Progress) -> None:
        if name == self._request:
            self.progressed.emit(progress.what, progress.done, progress.total)

    def _end(self, name: str) -> None:
        if name == self._request:
            self._request = ""
            self.ended.emit()
