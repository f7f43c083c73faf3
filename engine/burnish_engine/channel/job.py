"""State of one request in progress: where its messages go, and whether it was canceled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from burnish_engine.contract.errors import StoppedError
from burnish_engine.contract.facts.hardware import HardwareLine
from burnish_engine.contract.serve.messages import Canceled, Failure, HardwareReading, Message, Piece, Progress

_PROGRESS_S = 0.1  # no eye can follow more


class FailedError(Exception):
    """A failure that another process reported in full."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.what)
        self.failure = failure


class Job:
    """One request in progress.

    Args:
        request_id: id that every message carries.
        send: function that writes one message.
    """

    def __init__(self, request_id: str, send: Callable[[Message], None]) -> None:
        self.id = request_id
        self._send = send
        self._canceled = threading.Event()
        self._lock = threading.Lock()
        self._cancel_listener: Callable[[], None] | None = None
        self._next_progress = 0.0

    @property
    def canceled(self) -> bool:
        """Whether the client canceled the request."""
        return self._canceled.is_set()

    def cancel(self) -> None:
        """Ask the work to stop; a second call changes nothing."""
        with self._lock:
            listener = None if self._canceled.is_set() else self._cancel_listener
            self._canceled.set()
        if listener is not None:
            listener()

    def on_cancel(self, listener: Callable[[], None] | None) -> None:
        """Call `listener` once when the request is canceled, or now if it already was; None removes it."""
        with self._lock:
            self._cancel_listener = listener
            late = self._canceled.is_set()
        if late and listener is not None:
            listener()

    def check(self) -> None:
        """Raise where the request was canceled.

        Raises:
            StoppedError: The request was canceled.
        """
        if self.canceled:
            raise StoppedError("The request was canceled.")

    def progress(self, what: str, done: int, total: int) -> None:
        """Send the progress, at most ten times a second, and always at the end.

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

    def hardware(self, line: HardwareLine) -> None:
        """Send a line of the recording of the hardware.

        Raises:
            StoppedError: The request was canceled.
        """
        self.check()
        self._send(HardwareReading(id=self.id, line=line))

    def wait(self, seconds: float) -> None:
        """Wait, or end at once when the request is canceled.

        Raises:
            StoppedError: The request was canceled.
        """
        self._canceled.wait(seconds)
        self.check()

    def forward(self, message: Message) -> None:
        """Pass on a worker's message about this request."""
        if not isinstance(message, Canceled | Failure):
            self._send(message)
