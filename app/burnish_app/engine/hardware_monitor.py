"""Follows the hardware live: asks the engine for samples while the window is seen, and keeps ten minutes of them."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Signal

from burnish_app.engine.engine_client import EngineClient
from burnish_engine.contract.facts.hardware import HardwareLine, HardwareSample
from burnish_engine.contract.run.hardware_log import HardwareHistory, fold_line, newest
from burnish_engine.contract.serve.model_requests import HardwareRequest

KEPT_S = 600.0
_TRIM_S = 660.0
_AGAIN_MS = 2000


class HardwareMonitor(QObject):
    """Receives a sample each second, while started.

    Args:
        client: connection to the engine.
        parent: parent in Qt's object tree.

    Attributes:
        advanced: signal with the `HardwareHistory` of the last ten minutes, at each sample.
    """

    advanced = Signal(object)

    def __init__(self, client: EngineClient, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._client = client
        self._history = HardwareHistory()
        self._request = ""
        self._started = False
        self._again = QTimer(self, singleShot=True, interval=_AGAIN_MS)
        self._again.timeout.connect(self._ask)

    @property
    def history(self) -> HardwareHistory:
        """The samples of the last ten minutes."""
        return self._history

    def start(self) -> None:
        """Ask for samples. A second call changes nothing."""
        self._started = True
        self._ask()

    def stop(self) -> None:
        """Stop the samples, so that the driver is let go of."""
        self._started = False
        self._again.stop()
        self._client.cancel(self._request)

    def _ask(self) -> None:
        if self._started and not self._client.is_open(self._request):
            self._request = self._client.send(
                HardwareRequest,
                owner=self,
                on_hardware=self._received,
                on_failure=lambda _failure: self._ended(),
                on_result=lambda _result: self._ended(),
                on_canceled=self._ended,
            )

    def _received(self, line: HardwareLine) -> None:
        self._history = fold_line(self._history, line)
        t = self._history.t
        if (t.last or 0.0) - (t.first or 0.0) > _TRIM_S:
            self._history = newest(self._history, KEPT_S)
        if isinstance(line, HardwareSample):
            self.advanced.emit(self._history)

    def _ended(self) -> None:
        """Ask again after a moment: the engine is started again, or samples were stopped and started meanwhile."""
        if self._started:
            self._again.start()
