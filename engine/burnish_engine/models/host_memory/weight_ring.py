"""Frozen weights of layers that are not on the device, copied there shortly before each of these layers computes.

They are in host memory, or shared by the ranks of a run (`layer_shares`).

The device has a ring of slots, fewer than there are such layers. When a layer has computed, the next one that needs its
slot is copied there while the layers between compute: upward in the forward pass, downward in the backward pass, which
begins with the layers that the forward pass left in the slots. Frozen weights never change, so nothing is copied back.
ReplySlots and host memory stay where they are, so that the copies can be part of a captured graph.

Host memory is page-locked. Where the system locks no more, copies go through pageable memory: slower, and not to be
captured. On the CPU the same steps are plain copies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch

from burnish_engine.models.host_memory.copy_stream import CopyStream
from burnish_engine.models.host_memory.layer_shares import LayerShares, RankMemory
from burnish_engine.models.host_memory.page_lock import PageLock

SLOTS = 2
"""Number of layers on the device at once: one computes, the next one is copied. More would not make the link faster."""
ALIGNMENT = 256
"""Bytes at whose multiples the tensors of a layer lie, as in an allocation of their own."""


class WeightRing:
    """Holds the frozen weights of some layers elsewhere, and brings each to the device when it is needed.

    The weights of a layer are one block of bytes (see `carve`).

    Args:
        device: device that the layers compute on.
        sizes: number of bytes of each layer in host memory, by the layer's number; empty: none are there.
        pages: page locks of the host memory.
        shared_sizes: number of bytes of each layer that the ranks share, by the layer's number.
        memory: memory of all ranks; needed where a layer is shared.

    Attributes:
        shares: this rank's part of the shared layers.
        problem: reason why memory is not page-locked, as a sentence; empty where it is.
    """

    def __init__(
        self,
        device: torch.device,
        sizes: Mapping[int, int],
        pages: PageLock,
        shared_sizes: Mapping[int, int] | None = None,
        memory: RankMemory | None = None,
    ) -> None:
        self.problem = ""
        self.shares = LayerShares(shared_sizes or {}, memory)
        self._sizes, self._pages, self.copies = {**sizes, **(shared_sizes or {})}, pages, CopyStream(device)
        self._slot_of = {layer: number % SLOTS for number, layer in enumerate(sorted(self._sizes))}
        widest, count = max(self._sizes.values(), default=0), min(SLOTS, len(self._sizes))
        self._slots = [torch.empty(widest, dtype=torch.uint8, device=device) for _ in range(count)]
        self._hosts: dict[int, torch.Tensor] = {}
        self._held: dict[int, int] = {}  # slot: layer that is there, or on its way
        self.coming: dict[int, torch.cuda.Event | None] = {}  # layer: end of its copy
        self._waiting: deque[int] = deque()  # layers of this pass that are still to be copied

    @property
    def layers(self) -> Mapping[int, torch.Tensor]:
        """The weights that this process holds, by the layer's number, each uint8 of one dimension: all, or its part."""
        return self._hosts | self.shares.own

    @property
    def host_bytes(self) -> int:
        """Number of bytes of host memory."""
        return sum(host.nbytes for host in self._hosts.values())

    def host(self, layer: int) -> torch.Tensor:
        """Return the host memory of a layer, uint8 of one dimension; allocate it at first."""
        if layer not in self._hosts:
            host = self._hosts[layer] = torch.empty(self._sizes[layer], dtype=torch.uint8)
            if self.copies.is_asynchronous and not self.problem and (refusal := self._pages.refusal(host)):
                self.problem = (
                    f"The weights of layers on the host do not fit into page-locked memory ({refusal}); copies are "
                    "slower and steps are not captured. Close other programs, or set memory.weights to keep fewer "
                    "layers there."
                )
        return self._hosts[layer]

    def storage(self, layer: int) -> torch.Tensor:
        """Return the memory that a layer's weights are read into, uint8 of one dimension; `keep` follows.

        Of a shared layer it is the slot: nothing but this rank's part of it stays.
        """
        return self.slot(layer) if layer in self.shares else self.host(layer)

    def keep(self, layer: int) -> None:
        """Keep what was read into the `storage` of a layer."""
        if layer in self.shares:
            self.shares.keep(layer, self.slot(layer))

    def slot(self, layer: int) -> torch.Tensor:
        """Return the device memory that a layer's weights are copied to, uint8 of one dimension."""
        return self._slots[self._slot_of[layer]][: self._sizes[layer]]

    def begin(self) -> None:
        """Begin a forward pass: the lowest layers come first, and whatever the slots hold is forgotten."""
        self.copies.wait_for_all()
        self._forget()
        self._start(self._slot_of)

    def turn(self, lowest: int) -> None:
        """Begin the backward pass of the same micro-batch.

        Args:
            lowest: number of the last layer to be differentiated.
        """
        self._start(layer for layer in reversed(self._slot_of) if layer >= lowest)

    @contextmanager
    def present(self, layer: int) -> Iterator[None]:
        """Have a layer's weights on the device inside the block, whose work is queued; layers come in order."""
        if layer not in self._slot_of:
            yield
            return
        assert self._held[self._slot_of[layer]] == layer
        self.copies.wait(self.coming.pop(layer, None))
        yield
        self._copy_next()

    def reset(self) -> None:
        """Forget the copies under way after a pass, or the capture of one, failed half-way."""
        self.copies.join_capture()
        self._forget()

    def _forget(self) -> None:
        self._held.clear()
        self.coming.clear()
        self._waiting.clear()

    def _start(self, layers: Iterable[int]) -> None:
        self._waiting = deque(layers)
        for _ in self._slots:
            self._copy_next()

    def _copy_next(self) -> None:
        """Begin to copy the next layer; its slot is that of the layer that has just computed."""
        if not self._waiting:
            return
        layer = self._waiting.popleft()
        slot = self._slot_of[layer]
        if self._held.get(slot) != layer:  # else the forward pass left it there
            self._held[slot], target = layer, self.slot(layer)
            pairs = self.shares.pieces(layer, target) if layer in self.shares else [(self._hosts[layer], target)]
            self.coming[layer] = self.copies.copy_all(pairs)


def block_bytes(like: Iterable[torch.Tensor]) -> int:
    """Return the number of bytes of a block that holds tensors of these shapes and dtypes."""
    return sum(_aligned(tensor.nbytes) for tensor in like)


def carve(block: torch.Tensor, like: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yield views of a block, uint8 of one dimension, one after the other, of these tensors' shapes and dtypes."""
    first = 0
    for tensor in like:
        yield block[first : first + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        first += _aligned(tensor.nbytes)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
