"""Client side of the channel: a worker process that starts on demand, and again after it died."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from typing import IO

from pydantic import ValidationError

from burnish_engine.channel.job import FailedError, Job
from burnish_engine.channel.stdio import read_lines
from burnish_engine.contract.errors import SetupError, StoppedError
from burnish_engine.contract.run.endings import exit_text
from burnish_engine.contract.serve.messages import Canceled, Failure, Message, Piece, Result
from burnish_engine.contract.serve.protocol import CancelRequest, Request, parse_message
from burnish_engine.contract.serve.protocol_line import MAX_LINE_BYTES

CANCEL_GRACE_S = 3.0
"""Seconds after which a worker that does not react to a cancel (it is inside a library) is ended."""
_CLOSE_S = 1.0
_KEPT_LINES = 100  # lines of its standard error that are kept


class Child:
    """Worker process that answers requests by the protocol. Any thread may ask.

    Args:
        module: name of the module that `python -m` runs.
        name: name for messages, such as "chat process".
    """

    def __init__(self, module: str, name: str) -> None:
        self._module = module
        self._name = name
        self._lock = threading.Lock()
        self._process: _Process | None = None

    def ask(self, request: Request, job: Job, *, about: str) -> Result:
        """Send a request, pass its progress and pieces on, and return its result.

        Args:
            request: request to send.
            job: receiver of progress and pieces; canceling it cancels the request.
            about: subject of the request, for the message when the process dies of it.

        Raises:
            FailedError: The worker reported a failure.
            StoppedError: The job was canceled.
            SetupError: The process ended unexpectedly.
        """
        while True:
            try:
                return self._ask_once(request, job, about)
            except _EndedForAnotherError:
                continue  # the process ends after each canceled request that does not stop, so this loop ends

    def _ask_once(self, request: Request, job: Job, about: str) -> Result:
        process = self._running()
        answers = process.send(request)
        timers: list[threading.Timer] = []

        def stop() -> None:
            process.write(CancelRequest(id=f"{request.id[:50]}-cancel", request=request.id))
            timers.append(threading.Timer(CANCEL_GRACE_S, process.give_up))
            timers[0].daemon = True
            timers[0].start()

        job.on_cancel(stop)
        try:
            return self._follow(process, answers, job, about)
        finally:
            job.on_cancel(None)
            for timer in timers:
                timer.cancel()
            process.forget(request.id)

    def _follow(self, process: _Process, answers: queue.SimpleQueue[Message | None], job: Job, about: str) -> Result:
        answered = False
        while True:
            message = answers.get()
            if message is None:
                job.check()
                if process.given_up and not answered:
                    raise _EndedForAnotherError
                raise SetupError(
                    f"The {self._name} ended unexpectedly while it worked on {about}: {process.cause()}.",
                    "It is started again with the next request. If this repeats, the file may be damaged, or the "
                    "memory too small for it.",
                )
            if isinstance(message, Result):
                return message
            if isinstance(message, Failure):
                raise FailedError(message)
            if isinstance(message, Canceled):
                raise StoppedError("The request was canceled.")
            answered = answered or isinstance(message, Piece)
            job.forward(message)

    def end_if_idle(self) -> bool:
        """End the process and free its memory, unless it is answering; return whether it holds none now."""
        with self._lock:
            if self._process is not None and not self._process.busy:
                self._process.given_up = True  # a request that comes at this moment is sent again
                self._process.close()
                self._process = None
            return self._process is None

    def close(self) -> None:
        """End the process and free its memory, even during a request."""
        with self._lock:
            if self._process is not None:
                self._process.close()
                self._process = None

    def _running(self) -> _Process:
        with self._lock:
            if self._process is None or not self._process.alive:
                self._process = _Process(self._module)
            return self._process


class _EndedForAnotherError(Exception):
    """The process was ended because another, canceled request did not stop; this request can be sent again."""


class _Process:
    """One process of a worker, from its start to its end."""

    def __init__(self, module: str) -> None:
        # A session (group) of its own: Ctrl-C in a terminal reaches only the server, which ends its workers itself.
        windows = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) | getattr(subprocess, "CREATE_NO_WINDOW", 0)
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=os.name != "nt",
            creationflags=windows,
        )
        self._lock = threading.Lock()
        self._answers: dict[str, queue.SimpleQueue[Message | None]] = {}
        self._ended = self._killed = False
        self.given_up = False
        self._said: deque[str] = deque(maxlen=_KEPT_LINES)
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        self._errors = threading.Thread(target=self._drain, args=(self._child.stderr,), daemon=True)
        self._errors.start()
        threading.Thread(target=self._read, args=(self._child.stdout.fileno(),), daemon=True).start()

    @property
    def alive(self) -> bool:
        """Whether the process still answers."""
        return not (self._ended or self._killed)

    @property
    def busy(self) -> bool:
        """Whether a request is open."""
        return bool(self._answers)

    def send(self, request: Request) -> queue.SimpleQueue[Message | None]:
        """Send a request and return the queue of its messages; None in it marks the end of the process."""
        answers: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        with self._lock:
            if self._ended:
                answers.put(None)
            else:
                self._answers[request.id] = answers
        self.write(request)
        return answers

    def write(self, request: Request) -> None:
        """Send a line; a write to a process that is gone is ignored, because its end is noticed anyway."""
        assert self._child.stdin is not None
        data = memoryview(request.model_dump_json().encode() + b"\n")
        with self._lock, suppress(OSError, ValueError):
            while data:
                data = data[self._child.stdin.write(data) or 0 :]

    def forget(self, request_id: str) -> None:
        """Stop collecting messages of the request."""
        with self._lock:
            self._answers.pop(request_id, None)

    def kill(self) -> None:
        """End the process now."""
        self._killed = True
        with suppress(OSError):
            self._child.kill()

    def give_up(self) -> None:
        """End the process because a canceled request does not stop."""
        self.given_up = True
        self.kill()

    def close(self) -> None:
        """End the process by closing its input, by force where that does not help."""
        with self._lock, suppress(OSError):
            if self._child.stdin is not None:
                self._child.stdin.close()
        try:
            self._child.wait(timeout=_CLOSE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            self._child.wait()

    def cause(self) -> str:
        """Describe how the process ended and its last output."""
        status = self._child.wait()
        self._errors.join(timeout=1.0)
        return exit_text(status, list(self._said))

    def _read(self, descriptor: int) -> None:
        for line in read_lines(descriptor, 2 * MAX_LINE_BYTES):
            with suppress(ValidationError):
                message = parse_message(line or b"")
                with self._lock:
                    answers = self._answers.get(getattr(message, "id", ""))
                if answers is not None:
                    answers.put(message)
        self._child.wait()
        with self._lock:
            self._ended = True
            for answers in self._answers.values():
                answers.put(None)

    def _drain(self, stream: IO[bytes]) -> None:
        for line in stream:
            if text := line.decode("utf-8", "replace").strip():
                self._said.append(text[:500])
