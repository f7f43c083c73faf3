"""The answers of `burnish serve` without its processes: requests are answered in the test's own."""

import json

from burnish_engine.channel.job import Job
from burnish_engine.channel.server import failure
from burnish_engine.chat import worker as chat_worker
from burnish_engine.contract.serve.protocol import parse_request
from burnish_engine.service import data_worker, serve
from burnish_engine.service.machine import MachineCache


class Here:
    """Stands in for a worker process: its handlers are called."""

    def __init__(self, handlers):
        self._handlers = handlers

    def ask(self, request, job, about=""):
        return self._handlers[request.method](request, job)

    def end_if_idle(self):
        return True

    def close(self):
        pass


class Answers:
    """Answers requests as the server does, failures included."""

    def __init__(self):
        self._handlers = serve.handlers(MachineCache(), Here(data_worker.handlers()), Here(chat_worker.handlers()))

    def ask(self, method, **fields):
        """The result of a request, or the failure that a client would get."""
        request = parse_request(json.dumps({"id": "x", "method": method, **fields}))
        try:
            return self._handlers[method](request, Job("x", lambda _message: None))
        except BaseException as error:  # noqa: BLE001  as the server catches all
            return failure("x", error)
