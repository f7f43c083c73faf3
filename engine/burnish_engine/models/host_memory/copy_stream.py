"""Copies to and from a device, and gathers, on a separate stream, ordered with the device's work by events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

import torch


class CopyStream:
    """A stream for copies and gathers that run beside the device's work and can be part of a captured graph.

    On the CPU they are done at once.

    Args:
        device: device to copy to and from, with host memory or another device.

    Attributes:
        is_asynchronous: whether copies run beside the device's work.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.is_asynchronous = self._stream is not None

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> torch.cuda.Event | None:
        """Copy after all work queued on the device so far, because the target's memory may still be in use by it.

        Returns:
            The event that marks the end of the copy; None on the CPU, where it has ended.
        """
        return self.copy_all([(source, target)])

    def copy_all(self, pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> torch.cuda.Event | None:
        """Copy each source to its target, one after the other; see `copy`."""

        def copies() -> None:
            for source, target in pairs:
                target.copy_(source, non_blocking=True)

        return self.run(copies)

    def run(self, work: Callable[[], object]) -> torch.cuda.Event | None:
        """Queue work that fills memory of the device; see `copy`."""
        if self._stream is None:
            work()
            return None
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            work()
        return self._stream.record_event()

    def wait(self, copied: torch.cuda.Event | None) -> None:
        """Make the device wait for a copy before its next work."""
        if copied is not None:
            torch.cuda.current_stream(self._device).wait_event(copied)

    def wait_for_all(self) -> None:
        """Make the device wait for all copies, also those of a failed pass; does nothing inside a graph capture."""
        if self._stream is not None and not torch.cuda.is_current_stream_capturing():
            torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def join_capture(self) -> None:
        """Join the stream to a graph capture that failed; without it the capture cannot be ended."""
        if self._stream is None:
            return
        with torch.cuda.stream(self._stream):
            captures = torch.cuda.is_current_stream_capturing()
        if captures:  # waiting for one that is not captured would spoil the capture
            with suppress(RuntimeError):  # it is spoiled already, so that it ends as it is
                torch.cuda.current_stream(self._device).wait_stream(self._stream)
