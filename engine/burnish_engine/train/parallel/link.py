"""Messages between two processes of a run, over a socket: a JSON object, and tensors as safetensors. No pickles."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import load, save

from burnish_engine.contract.facts.machine import GpuFacts

_HEAD = struct.Struct("!IQ")  # bytes of the JSON object, bytes of the tensors
_MOST_JSON = 2**22
_MOST_TENSORS = 2**36
_MOST_GREETING = 2**10
_KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 120_000}
"""Options, of which a system may lack some, by which the end of a whole machine is noticed after two minutes."""
Message = dict[str, Any]


class LinkLostError(Exception):
    """The other process closed its end, or is gone."""


class Link:
    """One end of a connection between two processes. One thread may send while another receives.

    Args:
        connected: connected stream socket; the link closes it.

    Attributes:
        gpu: GPU of the other process, where it said so in its greeting; None where it has none.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self.gpu: GpuFacts | None = None
        self._until: float | None = None  # moment by which all has to have arrived
        if connected.family != getattr(socket, "AF_UNIX", None):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # messages are small and waited for
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEP_ALIVE.items():
                if hasattr(socket, name):
                    connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def fileno(self) -> int:
        """Return the socket's number, for `select`."""
        return self._socket.fileno()

    def send(self, message: Message, tensors: Mapping[str, torch.Tensor] | None = None) -> None:
        """Send a message.

        Args:
            message: object that JSON can express.
            tensors: tensors on the CPU to send along, by name.

        Raises:
            LinkLostError: The other process is gone.
        """
        text = json.dumps(message).encode()
        payload = save(dict(tensors)) if tensors else b""
        try:
            self._socket.sendall(_HEAD.pack(len(text), len(payload)) + text)
            if payload:
                self._socket.sendall(payload)
        except OSError as error:
            raise LinkLostError(str(error)) from error

    def receive(self) -> tuple[Message, dict[str, torch.Tensor]]:
        """Wait for a message; return it and its tensors.

        Raises:
            LinkLostError: The other process is gone, or sends something else.
        """
        message, payload_bytes = self._receive_text(_MOST_JSON, _MOST_TENSORS)
        return message, load(bytes(self._read(payload_bytes))) if payload_bytes else {}

    def receive_greeting(self, limit_s: float) -> Message:
        """Wait for the first message, from nobody knows whom: short, without tensors, and all of it within a time.

        Args:
            limit_s: time for the whole message, seconds.

        Raises:
            LinkLostError: The other process is gone, or too slow, or sends something else.
        """
        self._until = time.monotonic() + limit_s
        message, _ = self._receive_text(_MOST_GREETING, 0)
        self._until = None
        self._socket.settimeout(None)
        return message

    def _receive_text(self, most_text: int, most_tensors: int) -> tuple[Message, int]:
        """Receive a message but for its tensors; return it and the bytes of these."""
        text_bytes, payload_bytes = _HEAD.unpack(self._read(_HEAD.size))
        if text_bytes > most_text or payload_bytes > most_tensors:
            raise LinkLostError(f"a message of {text_bytes} and {payload_bytes} bytes is none of ours")
        try:
            message = json.loads(bytes(self._read(text_bytes)))
        except (ValueError, RecursionError) as error:
            raise LinkLostError(f"not a message: {error}") from error
        if not isinstance(message, dict):
            raise LinkLostError("not a message: no object")
        return message, payload_bytes

    def close(self) -> None:
        """Close the connection; whoever waits at either end learns of it."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other end was faster
            pass
        finally:
            self._socket.close()

    def _read(self, count: int) -> bytearray:
        found = bytearray(count)
        view, done = memoryview(found), 0
        while done < count:
            try:
                if self._until is not None:
                    self._socket.settimeout(max(self._until - time.monotonic(), 1e-3))
                arrived = self._socket.recv_into(view[done:])
            except OSError as error:
                raise LinkLostError(str(error)) from error
            if not arrived:
                raise LinkLostError("the connection was closed")
            done += arrived
        return found
