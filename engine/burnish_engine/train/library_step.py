"""The fast engine's step with an optimizer of a library, on views of the flat buffers.

Most optimizers move weights by what gradients alone decide, beside weight decay. They are given a flat buffer of zeros
as their weights, and leave in it by how much they would move. Our own step then adds that to the weights, with weight
decay (to the weights as before the step, as torch's AdamW does), with what masking and LoRA+ make of it, and with the
shadows. Nothing is copied or rounded twice, and masking composes with each of them.

Schedule-free training needs the weights and changes them directly. So do Adafactor and 8-bit AdamW where nothing is
masked: such a buffer would take more than their moments save. (Weight decay is the library's then, which with
bitsandbytes on a GPU decays the weights after the step: a difference of the step times learning rate times decay.)

What masking needs of Adafactor and schedule-free training: neither has a momentum, so a running mean of the gradient is
kept for the masks alone. Adafactor's step grows with the size of the weights, which it is told. Schedule-free steps are
taken by `schedule_free`, as what sits out there is the step of z, not that of the weights, which go on being averaged.

Muon for matrices alone is `flat_muon`'s. A step here is never captured, and reads once whether it is to be taken, which
waits for the device: in a step that is not (a gradient that is not finite, an overflow in fp16) nothing advances,
neither counters nor the library's state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from math import sqrt

import torch

from burnish_engine.contract.recipe_train import Optimizer, TrainSection
from burnish_engine.train.optimizer import RATE, Named, Optimizers, Trained, build_optimizer
from burnish_engine.train.optimizer_state import momentum_8_bit, optimizer_tensors, restore_optimizer
from burnish_engine.train.schedule_free import scaled_step
from burnish_kernels.adamw.op import GRADIENT_FACTOR, TAKEN, Control, FlatLayout, FlatOptimizer, displace_

_LEAST_8_BIT = 4096  # numbers; bitsandbytes keeps moments of smaller tensors in fp32
_IN_8_BITS: tuple[Optimizer, ...] = ("adamw8bit", "paged_adamw8bit")
_DIRECT: tuple[Optimizer, ...] = ("schedule_free",)
_DIRECT_UNLESS_MASKED: tuple[Optimizer, ...] = ("adafactor", *_IN_8_BITS)
_FLAT_MOMENTS: dict[Optimizer, str] = {"lion": "exp_avg", "muon": "momentum_buffer"}
"""What a library calls the momentum of those whose state is nothing else: it is a flat buffer of ours."""
_WITHOUT_MOMENTUM: tuple[Optimizer, ...] = ("adafactor", "schedule_free")
KEPT_DECAY = 0.9
"""Of the running mean of the gradient that is kept for masks where an optimizer has none: AdamW's usual one."""


class LibraryStep(FlatOptimizer):
    """See `FlatOptimizer`.

    Args:
        layout: Made for the arena's device.
        arena: One-dimensional, fp32, fp16 or bf16.
        section: Which optimizer, and its settings.
        names: Of the segments.
        rates: Of the segments, times the learning rate.
        apart: Segments that are no maps between hidden states (vectors, embeddings, head), which Muon leaves to AdamW.
        shapes: Of the segments, where they are others than rows and columns.
        masked: There will be a modifier.
        loss_scale: To begin with.

    Raises:
        ValueError: The arena or the loss scale does not fit.
        SetupError: The optimizer's library does not run here.
    """

    capturable = False

    def __init__(
        self,
        layout: FlatLayout,
        arena: torch.Tensor | None,
        section: TrainSection,
        names: Sequence[str],
        rates: Sequence[float],
        *,
        apart: Collection[int] = (),
        shapes: Sequence[tuple[int, ...]] | None = None,
        masked: bool = False,
        loss_scale: float = 1.0,
    ) -> None:
        super().__init__(layout, arena, loss_scale=loss_scale)
        self._rate = section.learning_rate
        self._in_8_bits = section.optimizer in _IN_8_BITS
        self._direct = section.optimizer in _DIRECT or (section.optimizer in _DIRECT_UNLESS_MASKED and not masked)
        self._ones = torch.ones_like(self._lengths)
        self._target = self.param if self._direct else self.new_flat()
        kinds = [(segment.decay, rate) for segment, rate in zip(layout.segments, rates, strict=True)]
        shapes = shapes or [(segment.rows, segment.columns) for segment in layout.segments]
        pieces = _pieces(layout, names, section.optimizer, kinds if self._direct else [None] * len(kinds), shapes)
        values = [torch.nn.Parameter(piece.view(self._target)) for piece in pieces]
        for piece, value in zip(pieces, values, strict=True):
            value.grad = piece.view(self.grad)
        self._named: Named = [(piece.name, value) for piece, value in zip(pieces, values, strict=True)]
        self._library = build_optimizer(
            section,
            [
                Trained(piece.name, value, *kinds[piece.first])
                if self._direct
                else Trained(piece.name, value, table=piece.first in apart)  # decay and rates are ours to apply
                for piece, value in zip(pieces, values, strict=True)
            ],
        )
        for group in (group for part in self._library.parts for group in part.param_groups if not self._direct):
            group["weight_decay"] = 0.0
        self._sized = section.optimizer == "adafactor" and masked
        if self._sized:
            self._apart_by_size(rates)
        self._kept = section.optimizer in _WITHOUT_MOMENTUM and masked
        self._moment_name = "kept" if self._kept else _FLAT_MOMENTS.get(section.optimizer, "")
        self._elsewhere = self._library  # those whose state is not a flat buffer of ours
        self._momentum = None if self._direct and not self._kept else self.new_flat()
        if self._momentum is not None and section.optimizer in _FLAT_MOMENTS:
            beside = [part for part in self._library.parts if isinstance(part, torch.optim.AdamW)]  # Muon's
            for flat in (part for part in self._library.parts if part not in beside):
                mine = {id(value) for group in flat.param_groups for value in group["params"]}
                for piece, value in zip(pieces, values, strict=True):
                    if id(value) in mine:
                        flat.state[value] = {self._moment_name: piece.view(self._momentum)}
            self._elsewhere = Optimizers(beside)
        self._pieces = pieces
        self._padding = _padding(layout) if self._direct and self._in_8_bits else None
        if not self._direct and any(rate != 1.0 for rate in rates):
            self.rates = torch.tensor(rates, dtype=torch.float32).to(self.param.device)

    @property
    def momentum(self) -> torch.Tensor:
        """See `FlatOptimizer`. That of 8-bit AdamW is unpacked anew."""
        if self._momentum is None:
            raise ValueError("its momentum is the library's, where there is nothing to mask")
        if not self._moment_name:
            for piece, (_, value) in zip(self._pieces, self._named, strict=True):
                moment = momentum_8_bit(self._library, value)
                if moment is not None:
                    piece.view(self._momentum).copy_(moment)
        return self._momentum

    def set_control(self, control: Control) -> None:
        """See `FlatOptimizer`."""
        super().set_control(control)
        self._rate = control.learning_rate

    @torch.no_grad()
    def step(self) -> None:
        """See `FlatOptimizer`. Waits for the device once, to learn whether the step is to be taken."""
        self.decide()
        if not self.status[TAKEN].item():
            self.grad.zero_()
            return
        self.grad.mul_(self._factors[GRADIENT_FACTOR])
        self._library.set_rate(self._rate)
        self.advanced = self.modifier is not None and self.modifier.momentum_after
        lengths = None if self.advanced else self.lengths()
        if self._kept and self._momentum is not None:
            self._momentum.lerp_(self.grad, 1 - KEPT_DECAY)
        else:
            self._move(None)
        if self.advanced:
            lengths = self.lengths()
        if self._kept:
            self._move(lengths)
        if self._direct:
            if self._padding is not None:
                self.param.index_fill_(0, self._padding, 0.0)  # for which 8-bit moments, being coarse, may have a step
            self.grad.zero_()
            self.write_shadows()
            return
        where = (self._factors, self.arena, self._ones if lengths is None else lengths)
        displace_(self.layout, self.param, self.grad, self._target, *where)

    def _move(self, lengths: torch.Tensor | None) -> None:
        """The library's step; what changes the weights directly is told how far to go.

        bitsandbytes launches its 8-bit one on the usual stream, whichever is the current.
        """
        device = self.param.device
        if self._sized:
            self._tell_sizes()
        if self._direct and lengths is not None:
            ways = {value: lengths[piece.first] for piece, (_, value) in zip(self._pieces, self._named, strict=True)}
            scaled_step(self._library, ways)
            return
        if not self._in_8_bits or device.type != "cuda":
            self._library.step()
            return
        here, usual = torch.cuda.current_stream(device), torch.cuda.default_stream(device)
        usual.wait_stream(here)
        with torch.cuda.stream(usual):
            self._library.step()
        here.wait_stream(usual)

    def _apart_by_size(self, rates: Sequence[float]) -> None:
        """Give each tensor of Adafactor's a group of its own, which can be told how large the tensor is."""
        [part] = self._library.parts
        [group] = part.param_groups
        part.param_groups[:] = [
            {**group, "params": [value], RATE: rate} for (_, value), rate in zip(self._named, rates, strict=True)
        ]
        self._least_size = group["eps"][1]

    def _tell_sizes(self) -> None:
        """Adafactor's steps grow with the root mean square of the weights: of zeros, it takes its least one, `eps[1]`.

        Its learning rate has the segment's rate already, which `displace_` will multiply by once more.
        """
        [part] = self._library.parts
        weights = [piece.view(self.param) for piece in self._pieces]
        sizes = torch.stack(torch._foreach_norm(weights)).tolist()
        for group, view, size in zip(part.param_groups, weights, sizes, strict=True):
            wanted = max(self._least_size, size / sqrt(view.numel()))
            group["eps"] = (group["eps"][0], wanted / group[RATE])

    @property
    def flat_state(self) -> dict[str, torch.Tensor]:
        """See `FlatOptimizer`."""
        return {self._moment_name: self._momentum} if self._moment_name and self._momentum is not None else {}

    def library_tensors(self) -> dict[str, torch.Tensor]:
        """What else of the library's state a resumed run needs, by name, on the CPU; tensors of their own."""
        return optimizer_tensors(self._elsewhere, self._named, copy=True)

    def restore_library(self, tensors: dict[str, torch.Tensor]) -> None:
        """The inverse of `library_tensors`; shadows too.

        Args:
            tensors: Those, and perhaps others.

        Raises:
            KeyError: The tensors belong to another adapter.
        """
        begun = any(f"{name}/step" in tensors for name, _ in self._named)
        restore_optimizer(self._elsewhere, self._named, tensors if begun else {})
        if self._momentum is not None and not self._moment_name:
            self._momentum.zero_()
        self.write_shadows()

    @contextmanager
    def averaged(self) -> Iterator[bool]:
        """Inside, weights and shadows are what shall be used, evaluated and saved; see `Optimizers.averaged`."""
        others = False
        try:
            with self._library.averaged() as others:
                if others:
                    self.write_shadows()
                yield others
        finally:
            if others:
                self.write_shadows()


@dataclass(frozen=True)
class _Piece:
    """What the library takes for one tensor.

    Attributes:
        name: Of its segment, or of its first and last one.
        first: Its first segment.
        view: Of a flat buffer.
    """

    name: str
    first: int
    view: Callable[[torch.Tensor], torch.Tensor]


def _pieces(
    layout: FlatLayout,
    names: Sequence[str],
    optimizer: Optimizer,
    kinds: Sequence[object],
    shapes: Sequence[tuple[int, ...]],
) -> list[_Piece]:
    """The segments as the library is given them; neighbors as one only where their kinds are equal.

    For Lion they are vectors. 8-bit AdamW gets neighbors as one, with the same bits, since no block of 256 numbers
    meets two segments: it launches, and waits, once a tensor. Small matrices stay alone, for it keeps them in fp32.
    """
    segments, ends = layout.segments, [*layout.starts[1:], layout.total]
    in_8_bits = optimizer in _IN_8_BITS
    if not in_8_bits and optimizer != "lion":
        return [_tensor(layout, names, index, shapes[index]) for index in range(len(segments))]

    def kind(index: int) -> tuple[object, bool]:
        return kinds[index], in_8_bits and segments[index].elements < _LEAST_8_BIT

    found: list[_Piece] = []
    for (_, small), run in groupby(range(len(segments)), key=kind):
        indices = list(run)
        if small:
            found += [_tensor(layout, names, index, shapes[index]) for index in indices]
        else:
            begin, end = layout.starts[indices[0]], ends[indices[-1]]
            found.append(_piece(names, indices[0], indices[-1] + 1, partial(_part, begin=begin, end=end)))
    return found


def _padding(layout: FlatLayout) -> torch.Tensor:
    """Elements of a flat buffer that belong to no segment, int64 on the layout's device."""
    ends = [*layout.starts[1:], layout.total]
    gaps = [
        torch.arange(start + segment.elements, end)
        for start, segment, end in zip(layout.starts, layout.segments, ends, strict=True)
    ]
    return torch.cat(gaps).to(layout.tables.scales.device)


def _part(flat: torch.Tensor, *, begin: int, end: int) -> torch.Tensor:
    return flat[begin:end]


def _tensor(layout: FlatLayout, names: Sequence[str], index: int, shape: tuple[int, ...]) -> _Piece:
    return _piece(names, index, index + 1, lambda flat: layout.views(flat)[index].view(shape))


def _piece(names: Sequence[str], first: int, end: int, view: Callable[[torch.Tensor], torch.Tensor]) -> _Piece:
    return _Piece(names[first] if end == first + 1 else f"{names[first]}..{names[end - 1]}", first, view)
