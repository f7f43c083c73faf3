"""Talks to the engine of another machine: the same lines, carried by the person's ssh.

`burnish serve --on PLACE` is the transport. It says how the connection is made, and why it was not or broke.
"""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QObject, QProcess, QTimer, Signal
from typing_extensions import override

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine_setup.engine_command import serve_command
from burnish_app.look.language import tr
from burnish_app.state.preferences import studio_dir
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.files import make_private
from burnish_engine.contract.serve.messages import Failure, Hello, Message, Progress
from burnish_engine.contract.serve.protocol_line import PROTOCOL_VERSION

_KILL_AFTER_MS = 5000


def serve_on(where: str) -> tuple[str, ...]:
    """Return the command line that carries the lines of another machine's engine."""
    return (*serve_command(), "--on", where)


class ClientThere(EngineClient):
    """The window's connection to the engine of another machine.

    One that broke is made again; one that could not be made is not tried again until `start`.

    Args:
        where: machine as the recipe names it, such as "ssh:office".
        command: command line of the transport.
        parent: parent in Qt's object tree.

    Attributes:
        progressed: signal with what is being done to make the connection.
    """

    progressed = Signal(str)

    def __init__(self, where: str, command: tuple[str, ...], parent: QObject | None = None) -> None:
        super().__init__(command, parent)
        self.where = where
        self._reason: Failure | None = None

    @property
    def reason(self) -> Failure:
        """Why the connection was not made, or broke."""
        return self._reason or Failure(
            id="",
            what=tr("The connection to {where} ended.").format(where=self.where.removeprefix("ssh:")),
            remedy=tr("What was last said is in {log_file}.").format(log_file=self.log_file()),
            exit_code=ExitCode.ENVIRONMENT,
        )

    @override
    def start(self) -> None:
        self._reason = None
        if self._state == "down":
            self._failures = 0
            self._set_state("starting")
        super().start()

    @override
    def close(self) -> None:
        """End the connection at once: the server there ends by itself, and nothing has to be cleaned up."""
        if self._process is not None:
            self._process.blockSignals(True)
            self._process.closeWriteChannel()
            self._process.kill()
        super().close()

    def let_go(self) -> None:
        """End the connection without waiting for it; nothing of it is heard any more."""
        self._closing = True
        self._restart.stop()
        self._open.clear()
        self._unsent.clear()
        self._lines.put(None)
        process, self._process = self._process, None
        if process is None:
            self.deleteLater()
            return
        process.readyReadStandardOutput.disconnect()
        process.finished.connect(self.deleteLater)
        process.closeWriteChannel()
        if process.state() == QProcess.ProcessState.NotRunning:
            self.deleteLater()
        QTimer.singleShot(_KILL_AFTER_MS, process, process.kill)

    @override
    def _deliver(self, generation: int, message: Message | None) -> None:
        if generation == self._generation and isinstance(message, Progress | Failure) and not message.id:
            if isinstance(message, Failure):
                self._reason = message
            elif not self._closing:
                self.progressed.emit(message.what)
            return
        super()._deliver(generation, message)

    @override
    def _greeted(self, hello: Hello) -> None:
        if hello.protocol == PROTOCOL_VERSION:
            super()._greeted(hello)
            return
        self._reason = Failure(
            id="",
            what=tr("The engine of {where} speaks version {there} of the protocol, this window version {here}.").format(
                where=self.where.removeprefix("ssh:"), there=hello.protocol, here=PROTOCOL_VERSION
            ),
            remedy=tr("Use the same version of Burnish on both."),
            exit_code=ExitCode.ENVIRONMENT,
        )
        if self._process is not None:
            self._process.closeWriteChannel()  # it ends, and then it counts as not reached

    @override
    def _over(self) -> None:
        if self._state == "ready":
            super()._over()
            if self.state == "down":
                self._restart.stop()
            return
        self._failures += 1  # the log of the next try follows this one's
        self._unsent.clear()
        self._set_state("down")
        for name in list(self._open):
            self._finish(name, self._lost(name))

    @override
    def _lost(self, name: str) -> Failure:
        return self.reason.model_copy(update={"id": name})

    @staticmethod
    @override
    def log_file() -> Path:
        make_private(studio_dir())
        return studio_dir() / "serve-there.log"
