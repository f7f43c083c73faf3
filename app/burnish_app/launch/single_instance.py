"""Makes the studio one window: a second start hands its files to the first window, which comes to the front.

The first start holds a lock in the studio's folder and listens under a name of that folder. A lock left behind by a
process that died counts for nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from PySide6.QtCore import QLockFile, QObject, Signal
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from burnish_app.state.preferences import studio_dir
from burnish_engine.contract.files import make_private

_ANSWER_MS = 3000
_TRIES = 3  # a first window that is just being started does not listen yet
_MOST_BYTES = 2**20
_DONE = b"\n"
_TOKEN = "XDG_ACTIVATION_TOKEN"  # noqa: S105 - what a Wayland compositor hands to a program that a person started


class SingleInstance(QObject):
    """The studio's only window, or a start that hands its files to it.

    Attributes:
        called: signal with the paths that another start handed over; the window has to come to the front.
        server: local server that other starts write to.
    """

    called = Signal(list)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        make_private(studio_dir())
        self._name = "burnish-" + hashlib.sha256(str(studio_dir().resolve()).encode()).hexdigest()[:16]
        self._lock = QLockFile(str(studio_dir() / "window.lock"))
        self._lock.setStaleLockTime(0)  # only a dead process's lock is taken over, however long it is held
        self.server = QLocalServer(self)
        self.server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self.server.newConnection.connect(self._welcome)
        self._unread: dict[QLocalSocket, bytes] = {}

    def hand_over(self, paths: Sequence[str]) -> bool:
        """Hand paths to the window that is there; False: there is none, or it does not answer, and this one is to open.

        Args:
            paths: absolute paths; none: the window just comes to the front.
        """
        if self._lock.tryLock(0):
            QLocalServer.removeServer(self._name)
            self.server.listen(self._name)
            return False
        message = {"paths": list(paths), "token": os.environ.get(_TOKEN, "")}
        return any(self._sent(json.dumps(message).encode() + _DONE) for _ in range(_TRIES))

    def close(self) -> None:
        """Stop listening, so that the next start opens a window."""
        self.server.close()
        self._lock.unlock()

    def _sent(self, line: bytes) -> bool:
        socket = QLocalSocket()
        socket.connectToServer(self._name)
        if not socket.waitForConnected(_ANSWER_MS // _TRIES):
            self.thread().msleep(_ANSWER_MS // _TRIES)
            return False
        _let_it_come_forward()
        socket.write(line)
        return socket.waitForReadyRead(_ANSWER_MS) and socket.readAll().data() == _DONE

    def _welcome(self) -> None:
        while (socket := self.server.nextPendingConnection()) is not None:
            self._unread[socket] = b""
            socket.readyRead.connect(lambda socket=socket: self._read(socket))
            socket.disconnected.connect(lambda socket=socket: self._leave(socket))
            self._read(socket)

    def _read(self, socket: QLocalSocket) -> None:
        if socket not in self._unread:
            return
        self._unread[socket] += socket.readAll().data()
        if len(self._unread[socket]) > _MOST_BYTES:
            socket.abort()
        elif self._unread[socket].endswith(_DONE):
            line, self._unread[socket] = self._unread[socket], b""
            socket.write(_DONE)
            socket.flush()
            self.take(line)

    def take(self, line: bytes) -> None:
        """Act on what another start wrote: a line of JSON with its paths; anything else is left alone."""
        with suppress(ValueError, KeyError, TypeError):  # not written by a start of the studio
            message = json.loads(line)
            paths = [str(path) for path in message["paths"]]
            if message["token"]:
                os.environ[_TOKEN] = str(message["token"])  # read by Qt when the window asks to be activated
            self.called.emit(paths)

    def _leave(self, socket: QLocalSocket) -> None:
        self._unread.pop(socket, None)
        socket.deleteLater()


def _let_it_come_forward() -> None:
    """Allow the other process to raise its window: Windows grants that only to whom the person's input went."""
    if sys.platform == "win32":
        import ctypes

        ctypes.windll.user32.AllowSetForegroundWindow(-1)  # ASFW_ANY
