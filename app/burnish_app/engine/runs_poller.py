"""Polls the engine for the status of all runs, and for the benchmarks that are running."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Signal

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.question import Question
from burnish_engine.contract.serve.messages import Result
from burnish_engine.contract.serve.run_requests import RunsRequest


class RunsPoller(QObject):
    """Requests the list of all runs at an interval, while started.

    Args:
        client: connection to the engine.
        interval_ms: time from one answer to the next request, milliseconds.
        extra_folders: function that returns the folders of runs outside the usual folder that shall be listed too.
        parent: parent in Qt's object tree.

    Attributes:
        updated: signal with a list of `protocol.RunSummary`, newest first.
        benches_updated: signal with a list of `Bench`, oldest first.
        failed: signal with a `protocol.Failure`.
    """

    updated = Signal(list)
    benches_updated = Signal(list)
    failed = Signal(object)

    def __init__(
        self,
        client: EngineClient,
        interval_ms: int,
        parent: QObject | None = None,
        *,
        extra_folders: Callable[[], list[str]] = list,
    ) -> None:
        super().__init__(parent)
        self._extra_folders = extra_folders
        self._started = False
        self._question = Question(client, self, self._answered, self.failed.emit, changed=self._changed)
        self._timer = QTimer(self, singleShot=True, interval=interval_ms)
        self._timer.timeout.connect(self.poll)

    def set_interval(self, interval_ms: int) -> None:
        """Change the time from one answer to the next request. A shorter time than before takes effect at once.

        Args:
            interval_ms: new interval, milliseconds.
        """
        sooner = interval_ms < self._timer.interval()
        self._timer.setInterval(interval_ms)
        if sooner and self._started:
            self.poll()

    def start(self) -> None:
        """Request the runs now, and from then on at the interval."""
        self._started = True
        self.poll()

    def stop(self) -> None:
        """Stop polling."""
        self._started = False
        self._timer.stop()

    def poll(self) -> None:
        """Request the runs now, unless a request is still open."""
        if not self._question.is_waiting:
            self._question.ask(RunsRequest, folders=self._extra_folders())

    def _answered(self, result: Result) -> None:
        self.updated.emit(result.runs or [])
        self.benches_updated.emit(result.benches or [])

    def _changed(self) -> None:
        if self._started and not self._question.is_waiting:
            self._timer.start()
