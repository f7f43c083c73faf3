"""Memory that a rank fills and all ranks of a machine read: of their GPUs, or of the system where CPUs train."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch

from burnish_engine.contract.errors import SetupError
from burnish_engine.models.device.device import is_out_of_memory
from burnish_engine.train.recovery.recovery import short_message

_LONGEST_PATH = 1024  # bytes of a file's name that ranks tell each other


class SharedWindow(Protocol):
    """One rank's memory, until all have theirs.

    Attributes:
        own: memory of this rank, uint8 of one dimension.
    """

    own: torch.Tensor

    def open_all(self) -> Sequence[torch.Tensor]:
        """Return the memory of every rank, in order; all ranks must do so together.

        Raises:
            SetupError: A device cannot read another's memory.
        """
        ...


class FileWindow:
    """System memory: a file that all ranks map. Pages are shared, so each exists once.

    Args:
        count: bytes of this rank.
        size: number of ranks.
        all_gather: function that gathers every rank's tensor; see `Collectives`.
    """

    def __init__(self, count: int, size: int, all_gather: Callable[[torch.Tensor, torch.Tensor], None]) -> None:
        self._count, self._size, self._all_gather = count, size, all_gather
        self._folder = Path(tempfile.mkdtemp(prefix="burnish-"))
        self._file = self._folder / "weights"
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        with self._file.open("wb") as file:
            file.truncate(count)
        self.own = _mapped(self._file, count)

    def open_all(self) -> Sequence[torch.Tensor]:
        """Map the files of all ranks; where the system lets mapped files go, they have no names afterwards."""
        name = os.fsencode(self._file).ljust(_LONGEST_PATH, b"\0")
        names = torch.zeros(self._size * _LONGEST_PATH, dtype=torch.uint8)
        self._all_gather(names, torch.frombuffer(bytearray(name), dtype=torch.uint8))
        files = [os.fsdecode(bytes(one.tolist()).rstrip(b"\0")) for one in names.view(self._size, -1)]
        found = [_mapped(Path(file), self._count) for file in files]
        self._all_gather(torch.empty_like(names), names[:_LONGEST_PATH])  # all have mapped all
        shutil.rmtree(self._folder, ignore_errors=True)
        return found


def _mapped(file: Path, count: int) -> torch.Tensor:
    return torch.from_file(str(file), shared=True, size=count, dtype=torch.uint8)


class GpuWindow:
    """Memory of a GPU that the other GPUs of the machine read over NVLink or PCIe (torch's symmetric memory).

    Memory that another process has mapped stays until that lets it go: nobody's reads fail when its owner ends. All
    ranks must make theirs together.

    Args:
        count: bytes of this rank.
        size: number of ranks.
        device: GPU of this rank.
        gather_numbers: function that gathers a number of every rank.
    """

    def __init__(
        self,
        count: int,
        size: int,
        device: torch.device,
        gather_numbers: Callable[[int], Sequence[int]],
    ) -> None:
        # Nothing is sent to all at once here, and creating a group for it is known to hang in virtual machines.
        os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
        self._count, self._size = count, size
        self._mapping: object = None  # what other ranks' memory is mapped by
        most = max(gather_numbers(_rendezvous.count))
        with _named_problem():
            # Before memory is allocated: on a full card there may be none left to catch up with.
            _rendezvous.catch_up(most, device)
            self.own = _symmetric_memory().empty(count, dtype=torch.uint8, device=device)

    def open_all(self) -> Sequence[torch.Tensor]:
        """Map the memory of all GPUs."""
        group = torch.distributed.group.WORLD
        assert group is not None
        with _named_problem():
            mapping = self._mapping = _rendezvous.make(self.own, group)
            return [mapping.get_buffer(rank, (self._count,), torch.uint8) for rank in range(self._size)]


class _CountedRendezvous:
    """torch's rendezvous, by which ranks map each other's memory, counted.

    torch numbers them from the start of a process, whatever the group, and a rank waits for messages with its own
    number. A leader with new ranks would wait in vain, so ranks that are behind catch up first, each in a
    group of one.

    Attributes:
        count: number of rendezvous that this process has made.
    """

    def __init__(self) -> None:
        self.count = 0

    def make(self, own: torch.Tensor, group: object) -> Any:
        """Map the memory of the ranks of a group, an object or a name; all of them must do so together."""
        self.count += 1
        return _symmetric_memory().rendezvous(own, group)

    def catch_up(self, count: int, device: torch.device) -> None:
        """Make as many rendezvous as another process has made."""
        if self.count >= count:
            return
        from torch._C._distributed_c10d import (
            HashStore,
            ProcessGroup,
            _register_process_group,
            _unregister_process_group,
        )

        alone = ProcessGroup(HashStore(), 0, 1)
        _register_process_group(_GROUP_OF_ONE, alone)  # anew each time: torch forgets all groups with the default one
        try:
            while self.count < count:
                self.make(_symmetric_memory().empty(1, dtype=torch.uint8, device=device), _GROUP_OF_ONE)
        finally:
            _unregister_process_group(_GROUP_OF_ONE)


_GROUP_OF_ONE = "burnish-one"
_rendezvous = _CountedRendezvous()


def _symmetric_memory() -> Any:
    from torch.distributed import _symmetric_memory as library

    return library


@contextmanager
def _named_problem() -> Iterator[None]:
    """Say what a refusal of the driver means, unless memory ran out."""
    try:
        yield
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        raise SetupError(
            f"The GPUs cannot read each other's memory ({short_message(error)}), so they cannot share layers' weights.",
            'Set memory.weights = "host", or "card" where they fit; `burnish doctor` says how the GPUs are connected.',
        ) from error
