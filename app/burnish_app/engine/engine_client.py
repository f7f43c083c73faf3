"""Talks to `burnish serve`: one child process, JSON lines both ways, restarted when it dies.

Lines are parsed in a thread of their own: a long list of runs or a dataset's facts must not hold up the window.
"""

from __future__ import annotations

import itertools
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import shiboken6
from pydantic import ValidationError
from PySide6.QtCore import QIODevice, QObject, QProcess, QTimer, Signal

from burnish_app.engine.threads import start_thread
from burnish_app.engine_setup.engine_command import serve_command
from burnish_app.look.language import tr
from burnish_app.state.preferences import studio_dir
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.facts.hardware import HardwareLine
from burnish_engine.contract.files import make_private
from burnish_engine.contract.serve.messages import (
    Canceled,
    Failure,
    HardwareReading,
    Hello,
    Message,
    Piece,
    Progress,
    Result,
)
from burnish_engine.contract.serve.protocol import CancelRequest, parse_message
from burnish_engine.contract.serve.protocol_line import PROTOCOL_VERSION

ClientState = Literal["starting", "ready", "restarting", "down"]
_RESTART_AFTER_MS = (200, 1000, 3000)  # the last one from then on
_STEADY_S = 10.0  # a server that lived this long is not counted as failing to start
_DOWN_AFTER = 3
_END_WAIT_MS = 1500
_LONGEST_LINE = 64 * 2**20  # bytes
_LOST = tr("The engine stopped unexpectedly")


@dataclass(frozen=True)
class _Open:
    """A request whose last answer has not come yet, with its callbacks."""

    owner: QObject | None
    on_result: Callable[[Result], object] | None
    on_failure: Callable[[Failure], object] | None
    on_progress: Callable[[Progress], object] | None
    on_piece: Callable[[str], object] | None
    on_canceled: Callable[[], object] | None
    on_hardware: Callable[[HardwareLine], object] | None


class EngineClient(QObject):
    """The window's connection to the engine.

    Args:
        command: command line of the server, or a function that returns it, empty where no engine is set up.
        parent: parent in Qt's object tree.

    Attributes:
        state_changed: signal with "starting", "ready", "restarting", or "down" after several failed starts (the client
            keeps trying).
        closed: signal without arguments, emitted as the connection is closed for good.
    """

    state_changed = Signal(str)
    closed = Signal()
    _ids = itertools.count(1)  # no two requests of the window have one id, whichever engine they go to
    _parsed = Signal(int, object)

    def __init__(
        self, command: Callable[[], tuple[str, ...]] | tuple[str, ...] = serve_command, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._command = command
        self._open: dict[str, _Open] = {}
        self._unsent: dict[str, bytes] = {}
        self._state: ClientState = "starting"
        self._process: QProcess | None = None
        self._generation = 0
        self._rest = b""
        self._failures = 0
        self._started_at = 0.0
        self._closing = False
        self._restart = QTimer(self, singleShot=True)
        self._restart.timeout.connect(self.start)
        self._lines: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()
        self._parsed.connect(self._deliver)
        start_thread(self, self._parse_lines, name="engine-lines")

    @property
    def state(self) -> ClientState:
        """The state of the connection."""
        return self._state

    @property
    def pid(self) -> int | None:
        """The process id of the server; None while there is none."""
        return self._process.processId() or None if self._process is not None else None

    @property
    def generation(self) -> int:
        """The number of the server's start; what a former server was told, this one does not know."""
        return self._generation

    def start(self) -> None:
        """Start the server. Requests may be sent before it is ready; they wait."""
        command = self._command() if callable(self._command) else self._command
        if self._closing or self._process is not None or not command:
            return
        self._generation += 1
        self._rest = b""
        self._started_at = time.monotonic()
        process = QProcess(self)
        # After a failure the log is appended to: the last words of a dead server must outlive the next start.
        mode = QIODevice.OpenModeFlag.Append if self._failures else QIODevice.OpenModeFlag.Truncate
        process.setStandardErrorFile(str(self.log_file()), mode)
        process.readyReadStandardOutput.connect(self._read)
        process.finished.connect(self._ended)
        process.errorOccurred.connect(self._errored)
        self._process = process
        if self._state != "down":
            self._set_state("restarting" if self._failures else "starting")
        process.start(command[0], list(command[1:]))

    def renew(self) -> None:
        """Start the server, anew where one runs: another engine is in use. Runs and exports continue."""
        if self._process is None:
            self.start()
        else:
            self._process.closeWriteChannel()  # it ends, and is started again

    def send(
        self,
        request: type[Any],
        /,
        *,
        on_result: Callable[[Result], object] | None = None,
        on_failure: Callable[[Failure], object] | None = None,
        on_progress: Callable[[Progress], object] | None = None,
        on_piece: Callable[[str], object] | None = None,
        on_canceled: Callable[[], object] | None = None,
        on_hardware: Callable[[HardwareLine], object] | None = None,
        owner: QObject | None = None,
        **fields: Any,
    ) -> str:
        """Send a request to the engine. Callbacks run in the window's thread, and none runs once `owner` is destroyed.

        Args:
            request: request class of `contract.serve.protocol`.
            on_result: callback that gets the result; it ends the request.
            on_failure: callback that gets the failure; it ends the request.
            on_progress: callback that gets each progress message.
            on_piece: callback that gets each piece of a streamed reply.
            on_canceled: callback for a canceled request; it ends the request.
            on_hardware: callback that gets each line of the live recording of the hardware.
            owner: object that the callbacks belong to; None: they always run.
            **fields: fields of the request, without its id.

        Returns:
            The request's id, for `cancel`.
        """
        name = f"r{next(self._ids)}"
        line = request(id=name, **fields).model_dump_json().encode() + b"\n"
        self._open[name] = _Open(owner, on_result, on_failure, on_progress, on_piece, on_canceled, on_hardware)
        self._write(name, line)
        return name

    def cancel(self, name: str) -> None:
        """Cancel a request. It ends with `on_canceled`, or with its result if that comes first.

        Args:
            name: id of the request; an id that is not open is ignored.
        """
        if name not in self._open:
            return
        if self._unsent.pop(name, None) is not None:
            self._finish(name, Canceled(id=name))
            return
        self.send(CancelRequest, request=name)

    def is_open(self, name: str) -> bool:
        """Whether the request with this id still waits for its last answer."""
        return name in self._open

    def close(self) -> None:
        """End the server. Runs and exports continue: they are processes of their own."""
        self._closing = True
        self.closed.emit()
        self._restart.stop()
        self._open.clear()
        self._unsent.clear()
        self._lines.put(None)
        process, self._process = self._process, None
        if process is not None:
            process.blockSignals(True)
            process.closeWriteChannel()
            if not process.waitForFinished(_END_WAIT_MS):
                process.kill()
                process.waitForFinished(_END_WAIT_MS)
            process.deleteLater()

    def _write(self, name: str, line: bytes) -> None:
        if self._process is not None and self._state == "ready":
            self._process.write(line)
        else:
            self._unsent[name] = line

    def _read(self) -> None:
        if self._process is None:
            return
        lines = (self._rest + bytes(self._process.readAllStandardOutput().data())).split(b"\n")
        self._rest = lines.pop()
        if len(self._rest) > _LONGEST_LINE:  # what speaks there is no engine
            self._rest = b""
        for line in lines:
            if line.strip():
                self._lines.put((self._generation, line))

    def _parse_lines(self) -> None:
        while (entry := self._lines.get()) is not None:
            generation, line = entry
            try:
                message: Message | None = parse_message(line) if line else None
            except ValidationError:
                continue  # something printed to standard output; a request it answered ends when the server does
            try:
                self._parsed.emit(generation, message)
            except RuntimeError:
                return  # the window is gone

    def _deliver(self, generation: int, message: Message | None) -> None:
        if generation != self._generation or self._closing:
            return
        if message is None:
            self._over()
        elif isinstance(message, Hello):
            self._greeted(message)
        elif message.id in self._open:
            if isinstance(message, Progress | Piece | HardwareReading):
                self._pass_on(self._open[message.id], message)
            else:
                self._finish(message.id, message)

    def _greeted(self, hello: Hello) -> None:
        if hello.protocol != PROTOCOL_VERSION:
            self._set_state("down")
            return
        if self._process is None:  # it is over already
            return
        self._set_state("ready")
        for line in self._unsent.values():
            self._process.write(line)
        self._unsent.clear()

    def _finish(self, name: str, message: Result | Failure | Canceled) -> None:
        self._pass_on(self._open.pop(name), message)

    @staticmethod
    def _pass_on(request: _Open, message: Message) -> None:
        if request.owner is not None and not shiboken6.isValid(request.owner):
            return
        if isinstance(message, Result) and request.on_result:
            request.on_result(message)
        elif isinstance(message, Failure) and request.on_failure:
            request.on_failure(message)
        elif isinstance(message, Progress) and request.on_progress:
            request.on_progress(message)
        elif isinstance(message, Piece) and request.on_piece:
            request.on_piece(message.text)
        elif isinstance(message, HardwareReading) and request.on_hardware:
            request.on_hardware(message.line)
        elif isinstance(message, Canceled) and request.on_canceled:
            request.on_canceled()

    def _errored(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart:  # the only error after which `finished` does not come
            self._ended()

    def _ended(self, *_outcome: object) -> None:
        if self._process is None or self._closing:
            return
        self._read()
        process, self._process = self._process, None
        process.deleteLater()
        self._lines.put((self._generation, b""))  # its end counts once all that it said is read

    def _over(self) -> None:
        """Start the server again after a moment, and let the requests fail that it had."""
        if self._state == "ready" and time.monotonic() - self._started_at > _STEADY_S:
            self._failures = 0
        self._failures += 1
        self._generation += 1  # what is still being parsed came from the dead server
        self._set_state("down" if self._failures >= _DOWN_AFTER else "restarting")
        wait_ms = _RESTART_AFTER_MS[min(self._failures, len(_RESTART_AFTER_MS)) - 1]
        self._restart.start(wait_ms)
        for name in [name for name in self._open if name not in self._unsent]:
            self._finish(name, self._lost(name))

    def _lost(self, name: str) -> Failure:
        return Failure(
            id=name,
            what=tr("{lost} and is being started again.").format(lost=_LOST),
            remedy=tr("Try again. What it last said is in {log_file}.").format(log_file=self.log_file()),
            exit_code=ExitCode.BUG,
        )

    def _set_state(self, state: ClientState) -> None:
        if state != self._state:
            self._state = state
            self.state_changed.emit(state)

    @staticmethod
    def log_file() -> Path:
        """Return the file of what the engine says."""
        make_private(studio_dir())
        return studio_dir() / "serve.log"
