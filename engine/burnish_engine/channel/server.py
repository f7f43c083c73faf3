"""Serve requests from a stream of lines, with one thread per request; only the client ends the server.

`burnish serve` and its worker processes differ only in their handlers.
"""

from __future__ import annotations

import json
import os
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from burnish_engine.channel.job import FailedError, Job
from burnish_engine.channel.log import log, log_file
from burnish_engine.channel.stdio import read_lines
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.serve.messages import Canceled, Failure, Message, Result
from burnish_engine.contract.serve.protocol import CancelRequest, Request, parse_request
from burnish_engine.contract.serve.protocol_line import MAX_LINE_BYTES, MOST_OPEN
from burnish_engine.contract.system_errors import known_error

Handler = Callable[[Any, Job], Result]
"""Function (request, job) -> result that answers a request. Raises BurnishError where it cannot."""

_GRACE_S = 2.0


class LineServer:
    """Read requests and write messages.

    Args:
        target: file descriptor that messages are written to.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._writing = threading.Lock()
        self._open: dict[str, Job] = {}
        self._at_work = 0
        self._changed = threading.Condition()

    def send(self, message: Message) -> None:
        """Write one message as a line; the process ends where the client is gone."""
        data = memoryview(_encoded(message) + b"\n")
        with self._writing:
            try:
                while data:
                    data = data[os.write(self._target, data) :]
            except OSError:
                os._exit(0)  # nobody reads any more; standard input is about to close too

    def serve(self, source: int, handlers: Mapping[str, Handler]) -> None:
        """Answer requests until the client closes its end; requests that are still open are canceled.

        Args:
            source: file descriptor to read from.
            handlers: function for each method.
        """
        for line in read_lines(source, MAX_LINE_BYTES):
            if line is None:
                self._refuse("", f"A line is longer than {MAX_LINE_BYTES} bytes.", "Send shorter requests.")
            elif line.strip():
                self._take(line, handlers)
        with self._changed:
            for job in self._open.values():
                job.cancel()
            self._changed.wait_for(lambda: self._at_work == 0, timeout=_GRACE_S)

    def _take(self, line: bytes, handlers: Mapping[str, Handler]) -> None:
        try:
            request = parse_request(line)
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in found["loc"])
            self._refuse(
                "",
                f"A line is no request: {where + ': ' if where else ''}{found['msg']}.",
                "`burnish serve --protocol` describes the requests.",
            )
            return
        if isinstance(request, CancelRequest):
            self._cancel(request)
            return
        handler = handlers.get(request.method)
        if handler is None:
            self._refuse(request.id, f"This process does not answer {request.method!r}.", "")
            return
        job = Job(request.id, self.send)
        with self._changed:
            if request.id in self._open:
                self._refuse("", f"The id {request.id!r} belongs to a request that is still open.", "Give a new one.")
                return
            if len(self._open) >= MOST_OPEN:
                self._refuse(request.id, f"{MOST_OPEN} requests are open already.", "Wait for some of them.")
                return
            self._open[request.id] = job
            self._at_work += 1
        threading.Thread(target=self._work, args=(handler, request, job), name=request.method, daemon=True).start()

    def _refuse(self, request_id: str, what: str, remedy: str) -> None:
        self.send(Failure(id=request_id, what=what, remedy=remedy, exit_code=int(ExitCode.USAGE)))

    def _cancel(self, request: CancelRequest) -> None:
        with self._changed:
            job = self._open.get(request.request)
        if job is not None:
            job.cancel()
        detail = "" if job else "There is no such open request; it may have ended."
        self.send(Result(id=request.id, detail=detail))

    def _work(self, handler: Handler, request: Request, job: Job) -> None:
        try:
            answer: Message = handler(request, job)
        except BaseException as error:  # noqa: BLE001  the client gets an answer, whatever a handler raises
            answer = Canceled(id=job.id) if job.canceled else failure(job.id, error)
        with self._changed:  # first, because a client may reuse the id as soon as it has the answer
            del self._open[job.id]
        self.send(answer)
        with self._changed:
            self._at_work -= 1
            self._changed.notify_all()


def _encoded(message: Message) -> bytes:
    try:
        return message.model_dump_json().encode()
    except PydanticSerializationError:  # a name on disk that is not Unicode
        return json.dumps(message.model_dump(mode="python"), ensure_ascii=False, default=str).encode("utf-8", "replace")


def failure(request_id: str, error: BaseException) -> Failure:
    """Convert an exception to a message of the protocol, and log an unexpected one."""
    if isinstance(error, FailedError):
        return error.failure.model_copy(update={"id": request_id})
    known = known_error(error)
    if known is not None:
        return Failure(id=request_id, what=known.what, remedy=known.remedy, exit_code=int(known.exit_code))
    return _bug(request_id, error)


def _bug(request_id: str, error: BaseException) -> Failure:
    log("".join(traceback.format_exception(error)))
    return Failure(
        id=request_id,
        what=f"This is a bug in Burnish: {type(error).__name__}: {error}.",
        remedy=f"The traceback is in {log_file()}; please send it with what you did.",
        exit_code=int(ExitCode.BUG),
    )
