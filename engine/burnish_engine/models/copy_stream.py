"""Copies between host and device on a stream of their own, ordered with the device's work by events."""

from __future__ import annotations

from contextlib import suppress

import torch


class CopyStream:
    """Copies run beside the device's work and can be part of a captured graph; on the CPU they are plain ones.

    Args:
        device: Where.

    Attributes:
        is_apart: Whether copies run beside the device's work.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.is_apart = self._stream is not None

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> torch.cuda.Event | None:
        """Copy, after all that the device was told to do so far: the target's memory may have been something else's.

        Returns:
            When it is done; None on the CPU, where it is.
        """
        if self._stream is None:
            target.copy_(source)
            return None
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            target.copy_(source, non_blocking=True)
        return self._stream.record_event()

    def wait(self, copied: torch.cuda.Event | None) -> None:
        """What the device does from here on comes after this copy."""
        if copied is not None:
            torch.cuda.current_stream(self._device).wait_event(copied)

    def wait_for_all(self) -> None:
        """What the device does from here on comes after all copies, of a pass that broke off too; not in a capture."""
        if self._stream is not None and not torch.cuda.is_current_stream_capturing():
            torch.cuda.current_stream(self._device).wait_stream(self._stream)

    def join_capture(self) -> None:
        """Bring the stream back to a capture that reached it and breaks off: unjoined, that cannot even be ended."""
        if self._stream is None:
            return
        with torch.cuda.stream(self._stream):
            captures = torch.cuda.is_current_stream_capturing()
        if captures:  # waiting for one that is not captured would spoil the capture
            with suppress(RuntimeError):  # it is spoiled already, so that it ends as it is
                torch.cuda.current_stream(self._device).wait_stream(self._stream)
