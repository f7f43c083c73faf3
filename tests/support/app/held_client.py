"""A client of an engine that answers when a test says so, in this process and at once."""

import json

from burnish_app.engine.engine_client import EngineClient
from burnish_engine.contract.serve.messages import Canceled, Failure, Progress, Result


class HeldClient(EngineClient):
    """Keeps what it is asked. Each answer goes to the newest open request of a method, or to one with a given id.

    Attributes:
        asked: fields of each request, in order.
    """

    def __init__(self):
        super().__init__(("nothing",))
        self.asked = []

    def start(self):
        """Be ready; there is no process to start."""
        self._set_state("ready")

    def _write(self, name, line):
        self.asked.append(json.loads(line))

    def requests(self, method):
        """Return the requests of a method so far."""
        return [request for request in self.asked if request["method"] == method]

    def open(self, method):
        """Return the ids of a method's requests that wait for an answer."""
        return [request["id"] for request in self.requests(method) if self.is_open(request["id"])]

    def answer(self, method, *, to=None, **fields):
        """Answer with a result."""
        self._give(method, to, Result, **fields)

    def fail(self, method, what, remedy="", exit_code=1, *, to=None):
        """Answer with a failure."""
        self._give(method, to, Failure, what=what, remedy=remedy, exit_code=exit_code)

    def give_up(self, method, *, to=None):
        """Say that a request was canceled, as the engine does for one that it was asked to cancel."""
        self._give(method, to, Canceled)

    def advance(self, method, what, done=0, total=0):
        """Say how far the engine is."""
        self._give(method, None, Progress, what=what, done=done, total=total)

    def _give(self, method, to, kind, **fields):
        name = to or self.open(method)[-1]
        self._deliver(self.generation, kind(id=name, **fields))
