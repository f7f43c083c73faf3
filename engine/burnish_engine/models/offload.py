"""What layers keep between forward and backward, moved to host memory and brought back while others compute.

Copies run on a stream of their own and are ordered by events, so that they can be part of a captured graph. The device
waits for a copy out when two more are due; a copy back begins one or two layers before it is needed.
On the device such tensors take turns in slots, which for the forward pass are made before its other tensors. From the
allocator they would get ever new places, as what other layers keep comes to lie in those that they left.
Host memory is page-locked, which is what lets the copy engines work beside the multiprocessors. Where the system locks
no more, copies go through pageable memory: slower, and not to be captured. On the CPU the same steps are plain copies.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import torch

from burnish_engine.contract.units import memory_size
from burnish_engine.models.copy_stream import CopyStream
from burnish_engine.models.page_lock import PageLock
from burnish_engine.models.slots import Slots

if TYPE_CHECKING:
    from burnish_engine.models.layer_types import Saved

_IN_FLIGHT = 2  # tensors that may be on their way out before the device waits for the oldest
_AHEAD = 1  # layers below the one that is being differentiated whose tensors are on their way back
_FURTHER_AHEAD = {"gate_up_TJ": 2}  # so wide that the copy takes about as long as a layer


Parks: TypeAlias = "dict[str, int | None]"
"""What a layer parks, in this order: the width of what is taken from a slot for it, None where it comes as it is."""


@dataclass
class Parked:
    """One tensor in host memory.

    Attributes:
        host: It, or what will be it when the copy is done.
        back: Where it is brought back to; None before.
        arrived: When it is back; None on the CPU.
    """

    host: torch.Tensor
    back: torch.Tensor | None = None
    arrived: torch.cuda.Event | None = None


class Offload:
    """Host memory for the tensors that `Keep.host` names.

    A tensor's place is allocated the first time it is parked, for passes of the largest bucket, and kept.

    Args:
        device: Where the layers compute.
        rows: Of the largest bucket.
        lockable: Bytes of host memory that may be page-locked; None: as much as the system allows.

    Attributes:
        problem: Why memory is not page-locked, as a sentence; empty where it is.
        serial: The device waits for every copy at once, as without a second buffer: to measure what that costs.
    """

    def __init__(self, device: torch.device, rows: int, lockable: int | None = None) -> None:
        self._rows, self._lockable = rows, lockable
        self.problem, self.serial = "", False
        self._places: dict[tuple[int, str], torch.Tensor] = {}
        self._slots = Slots(device)
        self._leaving: deque[tuple[torch.cuda.Event | None, torch.Tensor]] = deque()
        self._restored: list[torch.Tensor] = []
        self._copies = CopyStream(device)
        self._copies_at_once = not self._copies.is_apart
        self._pages = PageLock()

    @property
    def host_bytes(self) -> int:
        """Host memory taken so far."""
        return sum(place.nbytes for place in self._places.values())

    def begin(self, layers: Sequence[Parks], like_TH: torch.Tensor) -> None:
        """A pass begins; what an earlier one left, because it failed, is forgotten.

        Args:
            layers: What each one will park.
            like_TH: Of the pass's tokens and dtype.
        """
        self._copies.wait_for_all()
        self._wait_for_all()
        self.finish()
        for name, count in self._together(layers).items():
            width = max(parks.get(name) or 0 for parks in layers)
            self._slots.reserve(name, count, len(like_TH) * width, like_TH.dtype)

    def _together(self, layers: Sequence[Parks]) -> Counter[str]:
        """How many slots each name needs in the forward pass."""
        taken, most, leaving = Counter[str](), Counter[str](), deque[str]()
        in_flight = 0 if self.serial or self._copies_at_once else _IN_FLIGHT
        for parks in layers:
            taken.update(name for name, width in parks.items() if width)
            most |= taken
            for name in parks:
                leaving.append(name)
                while len(leaving) > in_flight:
                    taken[leaving.popleft()] -= 1
        return most

    def take(self, name: str, tokens: int, width: int, like: torch.Tensor) -> torch.Tensor:
        """An uninitialized tensor `[tokens, width]` to be parked.

        Args:
            name: Field of `Saved`.
            tokens: Of the pass.
            width: Its other dimension.
            like: Of its dtype.
        """
        return self._slots.take(name, (tokens, width), like.dtype)

    def park(self, layer: int, saved: Saved, names: Sequence[str]) -> None:
        """Start to copy some tensors of a layer out; they are gone from `saved` until `restore`.

        Args:
            layer: Number of the layer.
            saved: What it kept.
            names: Fields of `saved`: contiguous tensors, their first dimension the tokens.
        """
        for name in names:
            tensor: torch.Tensor | None = getattr(saved, name)
            assert tensor is not None
            assert tensor.is_contiguous()
            host = self._place(layer, name, tensor)
            self._make_room()
            self._leaving.append((self._copies.copy(tensor, host), tensor))
            if self.serial or self._copies_at_once:
                self._wait_for_all()
            setattr(saved, name, None)
            saved.parked[name] = Parked(host)

    def settle(self) -> None:
        """What the device does from here on comes after all copies out; their tensors' memory is free again."""
        self._wait_for_all()
        self._slots.clear()

    def abandon(self) -> None:
        """Forget what was on its way when a pass, or the capture of one, failed half-way."""
        self._copies.join_capture()
        self._leaving.clear()
        self.finish()

    def prefetch(self, layers: Sequence[Saved | None]) -> None:
        """Start to bring back what the next layers need; what was restored so far is not needed any more.

        Args:
            layers: Those still to be differentiated, the next one last.
        """
        while self._restored:
            self._slots.release(self._restored.pop())
        furthest = 0 if self.serial else max(_AHEAD, *_FURTHER_AHEAD.values())
        for distance, saved in enumerate(reversed(layers[-1 - furthest :])):
            for name, parked in saved.parked.items() if saved else ():
                if parked.back is None and distance <= _FURTHER_AHEAD.get(name, _AHEAD):
                    self._fetch(name, parked)

    def restore(self, saved: Saved) -> None:
        """Put parked tensors back into `saved`; what the device does from here on comes after their arrival."""
        for name, parked in saved.parked.items():
            self._copies.wait(parked.arrived)
            assert parked.back is not None
            self._restored.append(parked.back)
            setattr(saved, name, parked.back)
        saved.parked.clear()

    def finish(self) -> None:
        """A pass is over: nothing of what was restored is needed any more."""
        self._restored.clear()
        self._slots.clear()

    def _fetch(self, name: str, parked: Parked) -> None:
        host = parked.host
        parked.back = self._slots.take(name, tuple(host.shape), host.dtype)
        parked.arrived = self._copies.copy(host, parked.back)

    def _wait_for_all(self) -> None:
        while self._leaving:
            self._wait_for_oldest()

    def _make_room(self) -> None:
        while len(self._leaving) >= _IN_FLIGHT:
            self._wait_for_oldest()

    def _wait_for_oldest(self) -> None:
        copied, tensor = self._leaving.popleft()
        self._copies.wait(copied)
        self._slots.release(tensor)

    def _lock(self, place: torch.Tensor) -> None:
        before = self._pages.bytes
        if self._lockable is not None and before + place.nbytes > self._lockable:
            found = f"{memory_size(self._lockable)} may be"
        else:
            code = self._pages.lock(place)
            if not code:
                return
            found = f"{memory_size(before)} are, more was refused with CUDA error {code}"
        self.problem = (
            f"What layers keep on the host does not fit into page-locked memory ({found}); copies are slower and steps "
            "are not captured. Close other programs, or set memory.layers to levels that keep less there."
        )

    def _place(self, layer: int, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """A view of the tensor's place, shaped like it."""
        numbers = tensor.numel() // tensor.shape[0] * self._rows
        if (layer, name) not in self._places:
            place = torch.empty(numbers, dtype=tensor.dtype)
            if self._copies.is_apart and not self.problem:
                self._lock(place)
            self._places[layer, name] = place
        return self._places[layer, name][: tensor.numel()].view(tensor.shape)
