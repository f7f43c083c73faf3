"""Operations in which all ranks take part: torch.distributed over NCCL (GPUs) or gloo (CPUs)."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from datetime import timedelta

import torch

from burnish_engine.contract.errors import SetupError
from burnish_engine.train.exchange.windows import FileWindow, GpuWindow, SharedWindow

_TIMEOUT = timedelta(days=1)
"""Time after which torch gives an operation up, and with NCCL continues without its result.

It counts from when the operation is queued, which may be several steps, of minutes each, before the device comes to
it. A rank that ended is noticed by its link long before.
"""


def backend_of(device: torch.device) -> str:
    """Return the name of the library that connects devices of a kind.

    Raises:
        SetupError: There is none for GPUs here.
    """
    if device.type != "cuda":
        return "gloo"
    if not torch.distributed.is_nccl_available():
        where = "Windows" if sys.platform == "win32" else "this torch"
        raise SetupError(
            f"Several GPUs exchange gradients over NCCL, which {where} does not have.",
            'Set devices.strategy = "single", or train under WSL2 or Linux.',
        )
    return "nccl"


class Collectives:
    """Operations in which all ranks take part, in the same order; on a GPU they are queued on the current stream.

    They are those of the default process group of torch.distributed.

    Args:
        device: device of this rank.
        store: key-value store that all ranks reach.
        rank: number of this rank.
        size: number of ranks.
    """

    def __init__(self, device: torch.device, store: torch.distributed.Store, rank: int, size: int) -> None:
        # Multicast over NVSwitch gains nothing at an adapter's size and is known to hang in virtual machines.
        os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
        # CleanUpOnly: when a peer dies, torch would end this process before it can say so. The links notice it.
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2")
        self._device, self._store, self._rank, self._size = device, store, rank, size
        self._windows = 0
        if device.type == "cuda":
            torch.cuda.set_device(device)
        torch.distributed.init_process_group(
            backend_of(device), store=store, rank=rank, world_size=size, timeout=_TIMEOUT
        )
        first = torch.ones(1, device=device)
        self.all_reduce(first)  # connects: NCCL takes its memory now, before a plan is made for what is free
        if int(first) != size:
            raise RuntimeError(f"the first sum over {size} ranks gave {float(first)}")

    def all_reduce(self, values: torch.Tensor) -> None:
        """Replace values by their sum over all ranks: on each the same bits."""
        torch.distributed.all_reduce(values)

    def broadcast(self, values: torch.Tensor, root: int) -> None:
        """Replace values by those of one rank."""
        torch.distributed.broadcast(values, src=root)

    def all_to_all(self, received: torch.Tensor, sent: torch.Tensor) -> None:
        """Send each rank its part of `sent`, as many equal parts as ranks, and receive one of each, in their order."""
        torch.distributed.all_to_all_single(received, sent)

    def all_gather(self, gathered: torch.Tensor, own: torch.Tensor) -> None:
        """Gather every rank's tensor, of one size, one after another in the order of ranks."""
        torch.distributed.all_gather_into_tensor(gathered, own)

    def window(self, count: int) -> SharedWindow:
        """Allocate memory that all ranks will read, on this rank's device.

        Args:
            count: bytes, the same on every rank.

        Raises:
            MemoryError: There is no room for it.
            SetupError: The device cannot let others read.
        """
        if self._device.type == "cuda":
            return GpuWindow(count, self._size, self._device, self._gather_numbers)
        return FileWindow(count, self._size, self.all_gather)

    def _gather_numbers(self, own: int) -> list[int]:
        """Gather a number of every rank, once a window.

        They go through the store, which waits for a while, where NCCL would wait for ever for a rank that has failed.
        """
        self._windows += 1
        keys = [f"burnish/windows/{self._windows}/{rank}" for rank in range(self._size)]
        self._store.set(keys[self._rank], str(own))
        try:
            return [int(self._store.get(key)) for key in keys]
        except torch.distributed.DistStoreError as error:
            raise SetupError(
                "The GPUs cannot share layers' weights: one of their processes does not answer.",
                "Their logs in the run's folder say more.",
            ) from error

    def close(self, *, abort: bool = False) -> None:
        """Leave; with `abort`, also where an operation is queued that will never end."""
        if not torch.distributed.is_initialized():
            return
        group = torch.distributed.group.WORLD
        if abort and group is not None and self._device.type == "cuda":
            with suppress(RuntimeError):  # a kernel of NCCL spins until its peers answer, or until this
                group.abort()
        with suppress(RuntimeError):
            torch.distributed.destroy_process_group()
