"""Activation offloading: saved activations move to host memory and back while other layers compute.

Copies run on their own stream and are ordered by events, so that they can be part of a captured graph. The device waits
for a copy out when two more are queued; a copy back begins one or two layers before it is needed.

On the device such tensors use a `BufferPool`, which for the forward pass is allocated before its other tensors. From
the allocator they would get ever new memory, because the saved activations of other layers take the gaps that they
leave.

Host memory is page-locked, which lets the copy engines work beside the multiprocessors. Where the system locks no more,
copies go through pageable memory: slower, and not to be captured. On the CPU the same steps are plain copies.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch

from burnish_engine.models.host_memory.buffer_pool import BufferPool
from burnish_engine.models.host_memory.copy_stream import CopyStream
from burnish_engine.models.host_memory.page_lock import PageLock

_IN_FLIGHT = 2  # tensors that may be on their way out before the device waits for the oldest
_AHEAD = 1  # layers below the one that is being differentiated whose tensors are on their way back
_FURTHER_AHEAD = {"gate_up_TJ": 2}  # tensors so wide that their copy takes about as long as a layer


OffloadWidths: TypeAlias = "dict[str, int | None]"
"""Tensors that a layer offloads, in this order, each with the width of the pool buffer that is taken for it; None where
the tensor is offloaded as it is."""


@dataclass
class OffloadedTensor:
    """One tensor in host memory.

    Attributes:
        host: tensor in host memory; valid when the copy is done.
        back: tensor on the device that it is copied back to; None before.
        arrived: event that marks the end of the copy back; None on the CPU.
    """

    host: torch.Tensor
    back: torch.Tensor | None = None
    arrived: torch.cuda.Event | None = None


class HasOffloaded(Protocol):
    """The saved activations of a layer: tensors as attributes, and offloaded ones by attribute name."""

    offloaded: dict[str, OffloadedTensor]


class Offloader:
    """Owns the host memory of the tensors that a layer offloads (`models.decoder.layer_tensors`), and moves them.

    Host memory for a tensor is allocated the first time it is offloaded, at the size of the largest bucket, and kept.

    Args:
        device: device that the layers compute on.
        tokens: number of tokens of the largest bucket.
        lockable: bytes of host memory that may be page-locked; None: as much as the system allows.

    Attributes:
        tokens: number of tokens of the largest bucket.
        problem: reason why memory is not page-locked, as a sentence; empty where it is.
        serial: whether the device waits for every copy at once, as without a second buffer: to measure what that costs.
    """

    def __init__(self, device: torch.device, tokens: int, lockable: int | None = None) -> None:
        self.tokens = tokens
        self.problem, self.serial = "", False
        self._host_buffers: dict[tuple[int, str], torch.Tensor] = {}
        self.buffers = BufferPool(device)
        self._in_flight: deque[tuple[torch.cuda.Event | None, torch.Tensor]] = deque()
        self._restored: list[torch.Tensor] = []
        self.copies = CopyStream(device)
        self._copies_at_once = not self.copies.is_asynchronous
        self._pages = PageLock(lockable)

    @property
    def host_bytes(self) -> int:
        """Bytes of host memory allocated so far."""
        return sum(buffer.nbytes for buffer in self._host_buffers.values())

    def begin(self, layers: Sequence[OffloadWidths], like_TH: torch.Tensor) -> None:
        """Begin a forward pass; forget the rest of an earlier one that failed.

        Args:
            layers: tensors that each layer will offload, with their widths.
            like_TH: tensor with the number of tokens and the dtype of the pass.
        """
        self.copies.wait_for_all()
        self._wait_for_all()
        self.finish()
        for name, count in self._buffer_counts(layers).items():
            width = max(offload_widths.get(name) or 0 for offload_widths in layers)
            self.buffers.reserve(name, count, len(like_TH) * width, like_TH.dtype)

    def _buffer_counts(self, layers: Sequence[OffloadWidths]) -> Counter[str]:
        """Count the buffers that each name needs in the forward pass."""
        taken, most, leaving = Counter[str](), Counter[str](), deque[str]()
        in_flight = 0 if self.serial or self._copies_at_once else _IN_FLIGHT
        for offload_widths in layers:
            taken.update(name for name, width in offload_widths.items() if width)
            most |= taken
            for name in offload_widths:
                leaving.append(name)
                while len(leaving) > in_flight:
                    taken[leaving.popleft()] -= 1
        return most

    def take(self, name: str, tokens: int, width: int, like: torch.Tensor) -> torch.Tensor:
        """Return an uninitialized tensor `[tokens, width]` that is to be offloaded.

        Args:
            name: name of a field of `SavedActivations`.
            tokens: number of tokens of the pass.
            width: size of the other dimension.
            like: tensor of the same dtype.
        """
        return self.buffers.take(name, (tokens, width), like.dtype)

    def offload(self, layer: int, saved: HasOffloaded, names: Sequence[str]) -> None:
        """Start to copy tensors of a layer to host memory; they are gone from `saved` until `restore`.

        Args:
            layer: number of the layer.
            saved: saved activations of the layer.
            names: fields of `saved`: contiguous tensors whose first dimension is the tokens.
        """
        for name in names:
            tensor: torch.Tensor | None = getattr(saved, name)
            assert tensor is not None
            assert tensor.is_contiguous()
            host = self._host_view(layer, name, tensor)
            self._make_room()
            self._in_flight.append((self.copies.copy(tensor, host), tensor))
            if self.serial or self._copies_at_once:
                self._wait_for_all()
            setattr(saved, name, None)
            saved.offloaded[name] = OffloadedTensor(host)

    def wait_for_copies(self) -> None:
        """Make the device wait for all copies out before its next work; free the buffers of their tensors."""
        self._wait_for_all()
        self.buffers.clear()

    def reset(self) -> None:
        """Forget the copies under way after a pass, or the capture of one, failed half-way."""
        self.copies.join_capture()
        self._in_flight.clear()
        self.finish()

    def prefetch(self, layers: Sequence[HasOffloaded | None]) -> None:
        """Start to bring back the tensors of the next layers; free those that were restored so far.

        Args:
            layers: saved activations of the layers still to be differentiated, the next one last.
        """
        while self._restored:
            self.buffers.release(self._restored.pop())
        furthest = 0 if self.serial else max(_AHEAD, *_FURTHER_AHEAD.values())
        for distance, saved in enumerate(reversed(layers[-1 - furthest :])):
            for name, offloaded in saved.offloaded.items() if saved else ():
                if offloaded.back is None and distance <= _FURTHER_AHEAD.get(name, _AHEAD):
                    self._fetch(name, offloaded)

    def restore(self, saved: HasOffloaded) -> None:
        """Put offloaded tensors back into `saved`; the device waits for their arrival before its next work."""
        for name, offloaded in saved.offloaded.items():
            self.copies.wait(offloaded.arrived)
            assert offloaded.back is not None
            self._restored.append(offloaded.back)
            setattr(saved, name, offloaded.back)
        saved.offloaded.clear()

    def finish(self) -> None:
        """End a pass: free the tensors that were restored."""
        self._restored.clear()
        self.buffers.clear()

    def _fetch(self, name: str, offloaded: OffloadedTensor) -> None:
        host = offloaded.host
        offloaded.back = self.buffers.take(name, tuple(host.shape), host.dtype)
        offloaded.arrived = self.copies.copy(host, offloaded.back)

    def _wait_for_all(self) -> None:
        while self._in_flight:
            self._wait_for_oldest()

    def _make_room(self) -> None:
        while len(self._in_flight) >= _IN_FLIGHT:
            self._wait_for_oldest()

    def _wait_for_oldest(self) -> None:
        copied, tensor = self._in_flight.popleft()
        self.copies.wait(copied)
        self.buffers.release(tensor)

    def _lock(self, buffer: torch.Tensor) -> None:
        if refusal := self._pages.refusal(buffer):
            self.problem = (
                f"What layers keep on the host does not fit into page-locked memory ({refusal}); copies are slower and "
                "steps are not captured. Close other programs, or set memory.layers to levels that keep less there."
            )

    def _host_view(self, layer: int, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return a view of the tensor's host memory, in its shape."""
        numbers = tensor.numel() // tensor.shape[0] * self.tokens
        if (layer, name) not in self._host_buffers:
            buffer = torch.empty(numbers, dtype=tensor.dtype)
            if self.copies.is_asynchronous and not self.problem:
                self._lock(buffer)
            self._host_buffers[layer, name] = buffer
        return self._host_buffers[layer, name][: tensor.numel()].view(tensor.shape)
