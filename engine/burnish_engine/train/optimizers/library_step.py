"""The fast engine's step with an optimizer of a library, on views of the flat buffers.

The updates of most optimizers depend on gradients alone, beside weight decay. They get a flat buffer of zeros as their
weights, and leave their update in it. Our own step then adds that to the weights, with weight decay (of the weights
before the step, as in torch's AdamW), scaled by masking and LoRA+, and writes the compute copies. Nothing is copied or
rounded twice, and masking composes with each of them.

Schedule-free training needs the weights and changes them directly. So do Adafactor and 8-bit AdamW where nothing is
masked: such a buffer would take more memory than their moments save. (The library then applies weight decay;
bitsandbytes on a GPU does so after the step: a difference of the step times learning rate times decay.)

Masking needs a momentum, which Adafactor and schedule-free training lack: a running mean of the gradient is kept for
the masks alone. Adafactor's step grows with the size of the weights, which is passed to it as `eps[1]`. `schedule_free`
takes masked schedule-free steps, because they skip the step of z and not that of the weights, whose averaging goes on.

`flat_muon` takes the steps of Muon for matrices alone. A step here is never captured, and reads once whether it is to
be taken, which waits for the device: in a step that is not taken (a gradient that is not finite, an overflow in fp16)
nothing advances, neither counters nor the library's state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from math import sqrt

import torch
from typing_extensions import override

from burnish_engine.contract.recipe.recipe_train import Optimizer, TrainSection
from burnish_engine.train.optimizers.optimizer import RATE, Named, Optimizers, TrainedTensor, build_optimizer
from burnish_engine.train.optimizers.optimizer_state import momentum_8_bit, optimizer_tensors, restore_optimizer
from burnish_engine.train.optimizers.schedule_free import scaled_step
from burnish_kernels.adamw.op import GRADIENT_FACTOR, TAKEN, FlatLayout, FlatOptimizer, StepSettings, apply_update_

_LEAST_8_BIT = 4096  # numbers; bitsandbytes keeps moments of smaller tensors in fp32
_IN_8_BITS: tuple[Optimizer, ...] = ("adamw8bit", "paged_adamw8bit")
_DIRECT: tuple[Optimizer, ...] = ("schedule_free",)
_DIRECT_UNLESS_MASKED: tuple[Optimizer, ...] = ("adafactor", *_IN_8_BITS)
_FLAT_MOMENTS: dict[Optimizer, str] = {"lion": "exp_avg", "muon": "momentum_buffer"}
"""Library's name for the momentum of optimizers whose state is nothing else; it is one of our flat buffers."""
_WITHOUT_MOMENTUM: tuple[Optimizer, ...] = ("adafactor", "schedule_free")
KEPT_DECAY = 0.9
"""Decay of the gradient's running mean, kept for masks where an optimizer has no momentum: AdamW's usual beta1."""


class LibraryStep(FlatOptimizer):
    """Flat optimizer whose update comes from a library.

    Args:
        layout: layout made for the compute buffer's device.
        compute_buffer: buffer of the compute copies, one-dimensional, fp32, fp16 or bf16; None: see `FlatOptimizer`.
        section: recipe section with the optimizer's name and settings.
        names: name of each segment.
        rates: factor on the learning rate of each segment.
        non_matrix: indices of segments that Muon must not orthogonalize (vectors, embeddings, head); AdamW moves them.
        shapes: shape of each segment's tensor; None: (rows, columns).
        masked: whether `modifier` will be set.
        loss_scale: initial loss scale.

    Raises:
        ValueError: The compute buffer or the loss scale does not fit.
        SetupError: The optimizer's library does not run here.
    """

    capturable = False

    def __init__(
        self,
        layout: FlatLayout,
        compute_buffer: torch.Tensor | None,
        section: TrainSection,
        names: Sequence[str],
        rates: Sequence[float],
        *,
        non_matrix: Collection[int] = (),
        shapes: Sequence[tuple[int, ...]] | None = None,
        masked: bool = False,
        loss_scale: float = 1.0,
    ) -> None:
        super().__init__(layout, compute_buffer, loss_scale=loss_scale)
        self._rate = section.learning_rate
        self._in_8_bits = section.optimizer in _IN_8_BITS
        self._direct = section.optimizer in _DIRECT or (section.optimizer in _DIRECT_UNLESS_MASKED and not masked)
        self._ones = torch.ones_like(self._step_scale)
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
                TrainedTensor(piece.name, value, *kinds[piece.first])
                if self._direct
                else TrainedTensor(piece.name, value, table=piece.first in non_matrix)  # we apply decay and rates
                for piece, value in zip(pieces, values, strict=True)
            ],
        )
        for group in (group for part in self._library.parts for group in part.param_groups if not self._direct):
            group["weight_decay"] = 0.0
        self._sized = section.optimizer == "adafactor" and masked
        if self._sized:
            self._one_group_each(rates)
        self._keeps_mean = section.optimizer in _WITHOUT_MOMENTUM and masked
        self._moment_name = "kept" if self._keeps_mean else _FLAT_MOMENTS.get(section.optimizer, "")
        self._elsewhere = self._library  # those whose state is not a flat buffer of ours
        self._momentum = None if self._direct and not self._keeps_mean else self.new_flat()
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
        """Return the flat momentum; that of 8-bit AdamW is dequantized at each call."""
        if self._momentum is None:
            raise ValueError("its momentum is the library's, where there is nothing to mask")
        if not self._moment_name:
            for piece, (_, value) in zip(self._pieces, self._named, strict=True):
                moment = momentum_8_bit(self._library, value)
                if moment is not None:
                    piece.view(self._momentum).copy_(moment)
        return self._momentum

    @override
    def set_control(self, control: StepSettings) -> None:
        super().set_control(control)
        self._rate = control.learning_rate

    @torch.no_grad()
    def step(self) -> None:
        """Take a step; wait for the device once, to read whether the step is to be taken."""
        self.decide()
        if not self.status[TAKEN].item():
            self.grad.zero_()
            return
        self.grad.mul_(self._factors[GRADIENT_FACTOR])
        self._library.set_rate(self._rate)
        self.advanced = self.modifier is not None and self.modifier.momentum_after
        step_scale = None if self.advanced else self.step_scale()
        if self._keeps_mean and self._momentum is not None:
            self._momentum.lerp_(self.grad, 1 - KEPT_DECAY)
        else:
            self._move(None)
        if self.advanced:
            step_scale = self.step_scale()
        if self._keeps_mean:
            self._move(step_scale)
        if self._direct:
            if self._padding is not None:
                self.param.index_fill_(0, self._padding, 0.0)  # for which 8-bit moments, being coarse, may have a step
            self.grad.zero_()
            self.write_compute_copies()
            return
        where = (self._factors, self.compute_buffer, self._ones if step_scale is None else step_scale)
        apply_update_(self.layout, self.param, self.grad, self._target, *where)

    def _move(self, step_scale: torch.Tensor | None) -> None:
        """Run the library's step; an optimizer that changes the weights directly gets the step scales.

        bitsandbytes launches its 8-bit step on the default stream, whichever stream is current.
        """
        device = self.param.device
        if self._sized:
            self._update_sizes()
        if self._direct and step_scale is not None:
            by_value = {
                value: step_scale[piece.first] for piece, (_, value) in zip(self._pieces, self._named, strict=True)
            }
            scaled_step(self._library, by_value)
            return
        if not self._in_8_bits or device.type != "cuda":
            self._library.step()
            return
        here, usual = torch.cuda.current_stream(device), torch.cuda.default_stream(device)
        usual.wait_stream(here)
        with torch.cuda.stream(usual):
            self._library.step()
        here.wait_stream(usual)

    def _one_group_each(self, rates: Sequence[float]) -> None:
        """Give each tensor of Adafactor a group of its own, which can hold the size of the tensor."""
        [part] = self._library.parts
        [group] = part.param_groups
        part.param_groups[:] = [
            {**group, "params": [value], RATE: rate} for (_, value), rate in zip(self._named, rates, strict=True)
        ]
        self._least_size = group["eps"][1]

    def _update_sizes(self) -> None:
        """Set each group's `eps[1]` to the root mean square of its weights, which scales Adafactor's steps.

        Adafactor sees zeros as weights, and then uses its least size, `eps[1]`. Its learning rate already has the
        segment's rate, by which `apply_update_` will multiply once more, so the size is divided by it.
        """
        [part] = self._library.parts
        weights = [piece.view(self.param) for piece in self._pieces]
        sizes = torch.stack(torch._foreach_norm(weights)).tolist()
        for group, view, size in zip(part.param_groups, weights, sizes, strict=True):
            wanted = max(self._least_size, size / sqrt(view.numel()))
            group["eps"] = (group["eps"][0], wanted / group[RATE])

    @property
    @override
    def flat_state(self) -> dict[str, torch.Tensor]:
        return {self._moment_name: self._momentum} if self._moment_name and self._momentum is not None else {}

    def library_tensors(self) -> dict[str, torch.Tensor]:
        """Copy the library's state beside `flat_state` to the CPU, by name."""
        return optimizer_tensors(self._elsewhere, self._named, copy=True)

    def restore_library(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restore what `library_tensors` returned, and write the compute copies.

        Args:
            tensors: tensors of `library_tensors`, perhaps among others.

        Raises:
            KeyError: The tensors belong to another adapter.
        """
        begun = any(f"{name}/step" in tensors for name, _ in self._named)
        restore_optimizer(self._elsewhere, self._named, tensors if begun else {})
        if self._momentum is not None and not self._moment_name:
            self._momentum.zero_()
        self.write_compute_copies()

    @contextmanager
    def averaged(self) -> Iterator[bool]:
        """Swap in the weights to evaluate and save, with their compute copies; see `Optimizers.averaged`."""
        others = False
        try:
            with self._library.averaged() as others:
                if others:
                    self.write_compute_copies()
                yield others
        finally:
            if others:
                self.write_compute_copies()


@dataclass(frozen=True)
class _Piece:
    """One or more neighboring segments that the library gets as one tensor.

    Attributes:
        name: name of the segment, or of the first and the last one.
        first: index of the first segment.
        view: function that returns the piece's view of a flat buffer.
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
    """Divide the segments into the tensors that the library gets; neighbors join only where their kinds are equal.

    Lion gets vectors. 8-bit AdamW launches, and waits, once for each tensor, so neighbors join, with the same bits,
    since no block of 256 numbers meets two segments. Small matrices stay alone, because it keeps their state in fp32.
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
    """List the elements of a flat buffer that belong to no segment, int64 on the layout's device."""
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
