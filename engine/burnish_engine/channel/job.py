"""One request that is being worked on: where its messages go, and whether it was canceled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from burnish_engine.contract.errors import StoppedError
from burnish_engine.contract.protocol import Canceled, Failure, Message, Piece, Progress

_PROGRESS_S = 0.1  # as often as an eye can follow


class FailedError(Exception):
    """A failure that another process reported in full."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.what)
        self.failure = failure


class Job:
    """A request that is being worked on.

    Args:
        request_id: Carried by every message.
        send: Writes one message.
    """

    def __init__(self, request_id: str, send: Callable[[Message], None]) -> None:
        self.id = request_id
        self._send = send
        self._canceled = threading.Event()
        self._lock = threading.Lock()
        self._told: Callable[[], None] | None = None
        self._next_progress = 0.0

    @property
    def canceled(self) -> bool:
        """Whether the client wants no more of it."""
        return self._canceled.is_set()

    def cancel(self) -> None:
        """Ask the work to stop. Once more changes nothing."""
        with self._lock:
            told = None if self._canceled.is_set() else self._told
            self._canceled.set()
        if told is not None:
            told()

    def when_canceled(self, tell: Callable[[], None] | None) -> None:
        """Call `tell` once when the request is canceled, at once where it already was; None: no longer."""
        with self._lock:
            self._told = tell
            late = self._canceled.is_set()
        if late and tell is not None:
            tell()

    def check(self) -> None:
        """Raise where the request was canceled.

        Raises:
            StoppedError: It was.
        """
        if self.canceled:
            raise StoppedError("The request was canceled.")

    def progress(self, what: str, done: int, total: int) -> None:
        """Tell how far it is, at most ten times a second, and always at the end.

        Raises:
            StoppedError: The request was canceled.
        """
        self.check()
        now = time.monotonic()
        if now >= self._next_progress or (total and done >= total):
            self._next_progress = now + _PROGRESS_S
            self._send(Progress(id=self.id, what=what, done=done, total=total))

    def piece(self, text: str) -> None:
        """Send a piece of a streamed reply.

        Raises:
            StoppedError: The request was canceled.
        """
        self.check()
        self._send(Piece(id=self.id, text=text))

    def forward(self, message: Message) -> None:
        """Pass on what a worker says about this request."""
        if not isinstance(message, Canceled | Failure):
            self._send(message)
