"""The flat step that a recipe asks for, whichever engine takes it: which optimizer, which masking, and their state."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from burnish_engine.contract.recipe_train import MaskingSection, TrainSection
from burnish_engine.train.flat_muon import FlatMuon
from burnish_engine.train.library_step import LibraryStep
from burnish_engine.train.optimizer import MUON_MOMENTUM
from burnish_kernels.adamw.op import AdamW, Control, FlatLayout, FlatOptimizer
from burnish_kernels.magma.op import Magma, Options


def make_flat_step(
    section: TrainSection,
    layout: FlatLayout,
    arena: torch.Tensor | None,
    names: Sequence[str],
    rates: Sequence[float],
    *,
    apart: Collection[int] = (),
    shapes: Sequence[tuple[int, ...]] | None = None,
    masked: bool = False,
    loss_scale: float = 1.0,
) -> FlatOptimizer:
    """The optimizer on flat buffers.

    Args:
        section: Which one, and its settings.
        layout: Of the buffers.
        arena: Where shadows go; see `FlatOptimizer`.
        names: Of the segments.
        rates: Of the segments, times the learning rate.
        apart: Segments that are no maps between hidden states: vectors, embeddings, head.
        shapes: Of the segments, where they are others than rows and columns.
        masked: Whether `mask` will be called.
        loss_scale: To begin with.

    Raises:
        SetupError: Its library does not run here.
    """
    optimizer: FlatOptimizer
    if section.optimizer == "adamw":
        optimizer = AdamW(layout, arena, loss_scale=loss_scale)
    elif section.optimizer == "muon" and not apart:
        optimizer = FlatMuon(layout, arena, section.momentum or MUON_MOMENTUM, loss_scale=loss_scale)
    else:
        return LibraryStep(
            *(layout, arena, section, names, rates), apart=apart, shapes=shapes, masked=masked, loss_scale=loss_scale
        )
    if any(rate != 1.0 for rate in rates):
        optimizer.rates = torch.tensor(rates, dtype=torch.float32).to(optimizer.param.device)
    return optimizer


def mask(optimizer: FlatOptimizer, masking: MaskingSection, seed: int, draws: Sequence[int]) -> None:
    """Let segments sit out steps as the recipe asks.

    Args:
        optimizer: Whose; made for it.
        masking: How; "off" changes nothing.
        seed: Of the run.
        draws: For each segment which draw it follows, `NEVER` for none.
    """
    if masking.kind == "off":
        return
    options = Options(
        probability=masking.probability,
        temperature=masking.temperature,
        decay=masking.decay,
        start=masking.start,
        momentum_after=masking.momentum == "after",
        skip=masking.kind == "skip_update",
        rate=masking.rate,
    )
    optimizer.modifier = Magma(optimizer.layout, draws, seed, options)


def control_of(section: TrainSection, learning_rate: float, *, max_grad_norm: float, growth_interval: int) -> Control:
    """The settings of a step.

    Args:
        section: The recipe's.
        learning_rate: Of this step.
        max_grad_norm: Gradients are scaled down to it; 0: no clipping.
        growth_interval: fp16: good steps after which the loss scale doubles; 0: never.
    """
    return Control(
        learning_rate=learning_rate,
        beta1=section.beta1,
        beta2=section.beta2,
        eps=section.epsilon,
        weight_decay=section.weight_decay,
        max_grad_norm=max_grad_norm,
        growth_interval=growth_interval,
    )


def flat_tensors(optimizer: FlatOptimizer, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Everything that a resumed run needs beside the masters, by name, on the CPU; tensors of their own.

    Args:
        optimizer: Whose.
        names: Of the segments.
    """
    found: dict[str, torch.Tensor] = {}
    for kind, flat in optimizer.flat_state.items():
        for name, view in zip(names, optimizer.layout.views(flat), strict=True):
            found[f"{name}/{kind}"] = view.detach().to("cpu", copy=True).contiguous()
    if isinstance(optimizer, LibraryStep):
        found |= optimizer.library_tensors()
    if isinstance(optimizer.modifier, Magma):
        found["alignment"] = optimizer.modifier.alignment.detach().to("cpu", copy=True)
    found["counters"] = optimizer.counters.to("cpu", copy=True)
    found["loss_scale"] = optimizer.loss_scale.to("cpu", copy=True)
    return found


def restore_flat(optimizer: FlatOptimizer, names: Sequence[str], tensors: dict[str, torch.Tensor]) -> None:
    """The inverse of `flat_tensors`. Of schedule-free training it brings the masters with it.

    Raises:
        KeyError: The tensors belong to other segments.
    """
    for kind, flat in optimizer.flat_state.items():
        for name, view in zip(names, optimizer.layout.views(flat), strict=True):
            view.copy_(tensors[f"{name}/{kind}"])
    if isinstance(optimizer, LibraryStep):
        optimizer.restore_library(tensors)
    if isinstance(optimizer.modifier, Magma):
        optimizer.modifier.alignment.copy_(tensors["alignment"])
    optimizer.counters.copy_(tensors["counters"])
    optimizer.loss_scale.copy_(tensors["loss_scale"])
