"""Page-locked host memory of exact size: torch's own allocator rounds up to a power of two."""

from __future__ import annotations

import weakref

import torch


class PageLock:
    """Tensors in host memory whose pages the device may read and write by itself; given back with this object."""

    def __init__(self) -> None:
        self._locked: list[torch.Tensor] = []
        weakref.finalize(self, _release, self._locked)

    @property
    def bytes(self) -> int:
        """Locked so far."""
        return sum(tensor.nbytes for tensor in self._locked)

    def lock(self, tensor: torch.Tensor) -> int:
        """Lock the pages of a tensor; returns CUDA's error code, 0 where it went well."""
        code: int = torch.cuda.cudart().cudaHostRegister(tensor.data_ptr(), tensor.nbytes, 0).value
        if not code:
            self._locked.append(tensor)
        return code


def _release(locked: list[torch.Tensor]) -> None:
    for tensor in locked:
        torch.cuda.cudart().cudaHostUnregister(tensor.data_ptr())
    locked.clear()
