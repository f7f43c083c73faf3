"""Watches how all runs stand, by asking the engine again and again while somebody wants to know."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer, Signal

from burnish_app.engine_client import EngineClient
from burnish_engine.contract.protocol import Result, RunsRequest

ALIVE = ("running", "paused", "queued")
"""Standings of runs that go on, or will, without anybody doing something."""


class RunsWatch(QObject):
    """Asks for all runs at an interval, while started.

    Args:
        client: Asks the engine.
        interval_ms: From one answer to the next question.
        further: Gives folders of runs outside the usual place that shall be listed too.
        parent: Qt parent.

    Attributes:
        updated: Emits a list of `protocol.RunSummary`, newest first.
        failed: Emits a `protocol.Failure`.
    """

    updated = Signal(list)
    failed = Signal(object)

    def __init__(
        self,
        client: EngineClient,
        interval_ms: int,
        parent: QObject | None = None,
        *,
        further: Callable[[], list[str]] = list,
    ) -> None:
        super().__init__(parent)
        self._client = client
        self._further = further
        self._started = False
        self._asked = ""
        self._timer = QTimer(self, singleShot=True, interval=interval_ms)
        self._timer.timeout.connect(self.ask)

    def set_interval(self, interval_ms: int) -> None:
        """How long to wait from one answer to the next question. A shorter time than before takes effect at once."""
        sooner = interval_ms < self._timer.interval()
        self._timer.setInterval(interval_ms)
        if sooner and self._started:
            self.ask()

    def start(self) -> None:
        """Ask now and then again and again."""
        self._started = True
        self.ask()

    def stop(self) -> None:
        """Ask no more."""
        self._started = False
        self._timer.stop()

    def ask(self) -> None:
        """Ask now (once more, while one question is open, is not needed)."""
        if not self._client.is_open(self._asked):
            self._asked = self._client.send(
                RunsRequest, folders=self._further(), on_result=self._got, on_failure=self._failed, owner=self
            )

    def _got(self, result: Result) -> None:
        self._again()
        self.updated.emit(result.runs or [])

    def _failed(self, failure: object) -> None:
        self._again()
        self.failed.emit(failure)

    def _again(self) -> None:
        if self._started:
            self._timer.start()
