"""Runs the process that renders chat templates for this one, with limits (`render_child`).

One process serves all templates and threads, and stays until this process ends. It is ended and replaced when a
template exceeds a limit. The requests are:

    {key, template: {source, special_tokens, today}, do: compile}
    ... do: render, messages, add_generation_prompt, tools
    ... do: rows, options (of `WholeRowRenderer`), rows: [[[role, content, extras, supervised], ...], tools] each
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any, BinaryIO, cast

from burnish_engine.contract.errors import SetupError
from burnish_engine.data.sandbox.confine import ended_for_time
from burnish_engine.data.sandbox.frames import frame, read_body, read_length
from burnish_engine.data.sandbox.limits import SPARE_CHARS, text_limit, time_limit

_MODULE = "burnish_engine.data.templates.render_child"
_ANSWER_BYTES, _ANSWER_BYTES_PER_BYTE = 8 * SPARE_CHARS, 64
_TRIES = 2  # tries of a request; something outside may end the process once

Answer = dict[str, Any]


class _EndedError(Exception):
    """The process ended before it answered, or its answer is not valid.

    Args:
        why: phrase that names the reason.
        limit: whether it ended because the template exceeded a limit.
    """

    def __init__(self, why: str, *, limit: bool = False) -> None:
        super().__init__(why)
        self.limit = limit


class RenderProcess:
    """A handle of the render process, which starts when it is first needed. For use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._starting: subprocess.Popen[bytes] | None = None  # launched, and not heard from yet

    @property
    def pid(self) -> int | None:
        """Process id of the running process; None where there is none."""
        return self._child.pid if self._child else None

    def start(self) -> None:
        """Start the process where there is none, without waiting for it; if it fails, the first request says so."""
        with self._lock, suppress(SetupError):
            if self._child is None and self._starting is None:
                self._starting = _launch()

    def ask(self, request: Answer) -> Answer:
        """Answer a request. The process is started where there is none, and replaced where it ended.

        Args:
            request: request in one of the forms that the module describes.

        Returns:
            Answer to the request; {row_error}: reason why the template does not take the conversation; or {fault,
            hostile}: the template's fault, and whether it exceeded a limit or tried to leave its sandbox.

        Raises:
            SetupError: The process cannot be started.
            ValueError: The request is not valid JSON.
        """
        data = frame(request)
        with self._lock:
            for tried in range(_TRIES):
                try:
                    answer = self._exchange(data)
                except _EndedError as error:
                    self._end()
                    if error.limit or tried == _TRIES - 1:
                        return {"fault": str(error), "hostile": True}
                except BaseException:  # Ctrl-C: the answer that is still to come belongs to no one
                    self._end()
                    raise
                else:
                    if answer.get("hostile"):
                        self._end()
                    return answer
        raise AssertionError("the last try returns")

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def forget(self) -> None:
        """Forget the process after a fork, since it belongs to the parent."""
        self.__init__()  # type: ignore[misc]  # the lock may have been held by a thread that is not here

    def _exchange(self, data: bytes) -> Answer:
        if self._child is None:
            starting, self._starting = self._starting, None
            self._child = _greeted(starting) if starting else _start()
        child = self._child
        requests, answers = cast(BinaryIO, child.stdin), cast(BinaryIO, child.stdout)
        try:
            requests.write(data)
            requests.flush()
            length = read_length(answers)
            if length is None:
                raise EOFError
            if length > _ANSWER_BYTES + _ANSWER_BYTES_PER_BYTE * len(data):
                raise _EndedError(text_limit(SPARE_CHARS), limit=True)
            answer = read_body(answers, length)
        except (OSError, EOFError):
            status = child.wait()
            if ended_for_time(status):
                raise _EndedError(time_limit(), limit=True) from None
            raise _EndedError(f"the process that renders it ended with status {status}, twice") from None
        except (ValueError, RecursionError):
            raise _EndedError("the process that renders it answered without sense, twice") from None
        if "bug" in answer:
            raise RuntimeError(f"The process that renders templates failed:\n{answer['bug']}")
        return cast(Answer, answer)

    def _end(self) -> None:
        children = self._child, self._starting
        self._child = self._starting = None
        for child in children:
            if child is not None:
                _kill(child)


def _start() -> subprocess.Popen[bytes]:
    return _greeted(_launch())


def _launch() -> subprocess.Popen[bytes]:
    # A session (group) of its own keeps Ctrl-C in a terminal from the child, which this process ends itself.
    windows = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) | getattr(subprocess, "CREATE_NO_WINDOW", 0)
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=os.name != "nt",
            creationflags=windows,
        )
    except OSError as error:
        raise _not_started(error.strerror or str(error)) from error


def _greeted(child: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    """Wait until a launched process says that it is ready; return it."""
    try:
        answers = cast(BinaryIO, child.stdout)
        length = read_length(answers)
        if length is None:
            raise _not_started(f"it ended with status {child.wait()}")
        read_body(answers, length)
    except BaseException:
        _kill(child)
        raise
    return child


def _not_started(why: str) -> SetupError:
    return SetupError(
        f"The process that renders chat templates did not start: {why}.",
        "Close other programs and try again; else install Burnish again.",
    )


def _kill(child: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        child.kill()
    for stream in (child.stdin, child.stdout):
        with suppress(OSError):  # the rest of a request in the buffer
            cast(BinaryIO, stream).close()
    child.wait()


shared = RenderProcess()
"""The render process of this process; all templates share it."""

atexit.register(shared.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=shared.forget)
