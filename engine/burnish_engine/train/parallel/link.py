"""Messages between two processes of a run, over a socket: a JSON object, and tensors as safetensors. No pickles."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import load, save

_HEAD = struct.Struct("!IQ")  # bytes of the JSON object, bytes of the tensors
_MOST_JSON = 2**22
_MOST_TENSORS = 2**36
Message = dict[str, Any]


class LinkLostError(Exception):
    """The other process closed its end, or is gone."""


class Link:
    """One end of a connection between two processes. One thread may send while another receives.

    Args:
        connected: connected stream socket; the link closes it.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        if connected.family != getattr(socket, "AF_UNIX", None):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # messages are small and waited for

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
        text_bytes, payload_bytes = _HEAD.unpack(self._read(_HEAD.size))
        if text_bytes > _MOST_JSON or payload_bytes > _MOST_TENSORS:
            raise LinkLostError(f"a message of {text_bytes} and {payload_bytes} bytes is none of ours")
        try:
            message = json.loads(bytes(self._read(text_bytes)))
        except ValueError as error:
            raise LinkLostError(f"not a message: {error}") from error
        if not isinstance(message, dict):
            raise LinkLostError("not a message: no object")
        return message, load(bytes(self._read(payload_bytes))) if payload_bytes else {}

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
                arrived = self._socket.recv_into(view[done:])
            except OSError as error:
                raise LinkLostError(str(error)) from error
            if not arrived:
                raise LinkLostError("the connection was closed")
            done += arrived
        return found
