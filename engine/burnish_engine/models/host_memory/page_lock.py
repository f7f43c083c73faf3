"""Lock pages of host memory in their exact size: torch's own allocator rounds up to a power of two."""

from __future__ import annotations

import weakref
from contextlib import suppress

import torch


class PageLock:
    """Locks tensors' pages so that the device may read and write them directly; unlocks them when it is deleted."""

    def __init__(self) -> None:
        self._locked: list[torch.Tensor] = []
        weakref.finalize(self, _release, self._locked)

    @property
    def bytes(self) -> int:
        """Number of bytes locked so far."""
        return sum(tensor.nbytes for tensor in self._locked)

    def lock(self, tensor: torch.Tensor) -> int:
        """Lock the pages of a tensor; return CUDA's error code, 0 on success."""
        code: int = torch.cuda.cudart().cudaHostRegister(tensor.data_ptr(), tensor.nbytes, 0).value
        if code:
            # The runtime keeps the error, and torch would find it after the next kernel and blame that.
            with suppress(RuntimeError, AssertionError):  # the error; in tests, that this torch is one without CUDA
                torch.zeros(1, device="cuda")
        else:
            self._locked.append(tensor)
        return code


def _release(locked: list[torch.Tensor]) -> None:
    if locked and torch.cuda.is_initialized():
        with suppress(RuntimeError):
            torch.cuda.synchronize()  # copies may still be queued
    for tensor in locked:
        torch.cuda.cudart().cudaHostUnregister(tensor.data_ptr())
    locked.clear()
