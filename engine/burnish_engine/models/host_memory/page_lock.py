"""Lock pages of host memory in their exact size: torch's own allocator rounds up to a power of two."""

from __future__ import annotations

import weakref
from contextlib import suppress

import torch

from burnish_engine.contract.units import memory_size


class PageLock:
    """Locks tensors' pages so that the device may read and write them directly; unlocks them when it is deleted.

    Args:
        most: number of bytes after which `refusal` locks no more; None: as the system allows.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
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

    def refusal(self, tensor: torch.Tensor) -> str:
        """Lock the pages of a tensor, and explain why they were not locked; empty where they were."""
        before = self.bytes
        if self._most is not None and before + tensor.nbytes > self._most:
            return f"{memory_size(self._most)} may be"
        code = self.lock(tensor)
        return f"{memory_size(before)} are, more was refused with CUDA error {code}" if code else ""


def _release(locked: list[torch.Tensor]) -> None:
    if locked and torch.cuda.is_initialized():
        with suppress(RuntimeError):
            torch.cuda.synchronize()  # copies may still be queued
    for tensor in locked:
        torch.cuda.cudart().cudaHostUnregister(tensor.data_ptr())
    locked.clear()
