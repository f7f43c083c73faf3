"""Follows the queue of downloads: asks the engine once a second while one is running, else only when told to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from PySide6.QtCore import QObject, QTimer, Signal

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.question import Question
from burnish_engine.contract.facts.downloads import Download
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.model_requests import DownloadRequest, DownloadsRequest

_ASK_EVERY_MS = 1000


class DownloadsFollower(QObject):
    """Knows the downloads and commands them. They are carried out by processes that outlive the window.

    Args:
        client: connection to the engine.
        parent: parent in Qt's object tree.

    Attributes:
        changed: signal with the list of `Download`, after every answer that differs from the one before.
        arrived: signal with the name of a model whose download ended well since it was followed.
        failed: signal with the `Failure` of a command.
    """

    changed = Signal(object)
    arrived = Signal(str)
    failed = Signal(object)

    def __init__(self, client: EngineClient, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._client = client
        self._downloads: list[Download] = []
        self._question = Question(client, self, self._answered)
        self._timer = QTimer(self, interval=_ASK_EVERY_MS)
        self._timer.timeout.connect(self.ask)

    @property
    def downloads(self) -> list[Download]:
        """The downloads as last known, in the order in which they were asked for."""
        return list(self._downloads)

    def of(self, name: str) -> Download | None:
        """Return the download of a model; None: there is none."""
        return next((one for one in self._downloads if one.name == name), None)

    def ask(self) -> None:
        """Ask how the downloads are, unless an answer is still on its way."""
        if not self._question.is_waiting:
            self._question.ask(DownloadsRequest)

    def start(self, name: str, token: str = "") -> None:
        """Queue a model, or continue with its download.

        Args:
            name: name of the model on the hub.
            token: access token for a gated model; it is handed on and not kept.
        """
        self._command(name, "start", token)

    def pause(self, name: str) -> None:
        """Stop a download; what it has stays."""
        self._command(name, "pause")

    def cancel(self, name: str) -> None:
        """Take a download out of the queue, with what it has of an unfinished model."""
        self._command(name, "cancel")

    def _command(self, name: str, do: Literal["start", "pause", "cancel"], token: str = "") -> None:
        told: Callable[[Failure], None] = self.failed.emit
        self._client.send(
            DownloadRequest, name=name, do=do, token=token, owner=self, on_result=self._answered, on_failure=told
        )

    def _answered(self, result: Result) -> None:
        before = {one.name: one.status for one in self._downloads}
        now = result.downloads or []
        if now != self._downloads:
            self._downloads = now
            self.changed.emit(now)
        for one in now:
            if one.status == "finished" and before.get(one.name, "finished") != "finished":
                self.arrived.emit(one.name)
        if any(one.status in ("queued", "running") for one in now):
            self._timer.start()
        else:
            self._timer.stop()
