"""A client of a real `burnish serve` process, or of one of its workers."""

import itertools
import json
import os
import queue
import subprocess
import sys
import threading
import time

from burnish_engine.contract.serve.messages import Canceled, Failure, Hello, Result
from burnish_engine.contract.serve.protocol import parse_message

SERVE = ("-m", "burnish_engine.cli.main", "serve")
_END = object()

LONG_S = 300.0
"""What must come is waited for so long: on a busy machine the same takes many times as long."""


class Server:
    """Starts the process; requests are dicts, answers protocol messages."""

    def __init__(self, *command, wait=LONG_S, **environment):
        self._wait = wait
        self.process = subprocess.Popen(
            [sys.executable, *(command or SERVE)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        )
        self.errors = b""
        self._ids = (f"r{number}" for number in itertools.count(1))
        self._lines = queue.Queue()
        self._early = {}
        threading.Thread(target=self._read, daemon=True).start()
        threading.Thread(target=self._drain, daemon=True).start()
        if not command:
            self.hello = self.next()
            assert isinstance(self.hello, Hello)

    def _read(self):
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(_END)

    def _drain(self):
        for line in self.process.stderr:
            self.errors += line

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()

    def write(self, data: bytes):
        """Raw bytes to the server."""
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, method, **fields):
        """Send a request; returns its id."""
        request_id = fields.pop("id", None) or next(self._ids)
        self.write(json.dumps({"id": request_id, "method": method, **fields}).encode() + b"\n")
        return request_id

    def next(self, wait=None):
        """The next message, of any request. Every line must be a message of the protocol."""
        line = self._lines.get(timeout=wait or self._wait)
        assert line is not _END, f"the server ended: {self.errors.decode()[-2000:]}"
        return parse_message(line)

    def until_end(self, request_id, wait=None):
        """All messages of a request up to its last one; those of others are kept for their turn."""
        messages = self._early.pop(request_id, [])
        deadline = time.monotonic() + (wait or self._wait)
        while not (messages and isinstance(messages[-1], Result | Failure | Canceled)):
            message = self.next(max(deadline - time.monotonic(), 0.01))
            if message.id == request_id:
                messages.append(message)
            else:
                self._early.setdefault(message.id, []).append(message)
        return messages

    def early(self, request_id):
        """Messages of a request that came while another was waited for."""
        return self._early.get(request_id, [])

    def ask(self, method, wait=None, **fields):
        """Send a request and return its last message."""
        return self.until_end(self.send(method, **fields), wait)[-1]

    def result(self, method, wait=None, **fields):
        """Send a request that must succeed."""
        answer = self.ask(method, wait, **fields)
        assert isinstance(answer, Result), answer
        return answer

    def failure(self, method, wait=None, **fields):
        """Send a request that must fail."""
        answer = self.ask(method, wait, **fields)
        assert isinstance(answer, Failure), answer
        return answer

    def end(self, wait=LONG_S):
        """Close the server's input; its exit status."""
        self.process.stdin.close()
        return self.process.wait(wait)


def wait_for(condition, seconds=LONG_S):
    """Poll until the condition holds; what it returned."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s")
