"""Build the recipe's optimizer on flat buffers for either engine, with its masking, and save and restore its state."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch

from burnish_engine.contract.recipe.recipe_train import MaskingSection, TrainSection
from burnish_engine.train.optimizers.flat_muon import FlatMuon
from burnish_engine.train.optimizers.library_step import LibraryStep
from burnish_engine.train.optimizers.optimizer import MUON_MOMENTUM
from burnish_kernels.adamw.op import AdamW, FlatLayout, FlatOptimizer, StepSettings
from burnish_kernels.magma.op import Magma, MagmaOptions


def make_flat_step(
    section: TrainSection,
    layout: FlatLayout,
    compute_buffer: torch.Tensor | None,
    names: Sequence[str],
    rates: Sequence[float],
    *,
    non_matrix: Collection[int] = (),
    shapes: Sequence[tuple[int, ...]] | None = None,
    masked: bool = False,
    loss_scale: float = 1.0,
) -> FlatOptimizer:
    """Build the recipe's optimizer on flat buffers.

    Args:
        section: recipe section with the optimizer's name and settings.
        layout: layout of the flat buffers.
        compute_buffer: buffer of the compute copies, see `FlatOptimizer`.
        names: name of each segment.
        rates: factor on the learning rate of each segment.
        non_matrix: indices of segments that Muon must not orthogonalize (vectors, embeddings, head); AdamW moves them.
        shapes: shape of each segment's tensor; None: (rows, columns).
        masked: whether `mask` will be called.
        loss_scale: initial loss scale.

    Raises:
        SetupError: The optimizer's library does not run here.
    """
    optimizer: FlatOptimizer
    if section.optimizer == "adamw":
        optimizer = AdamW(layout, compute_buffer, loss_scale=loss_scale)
    elif section.optimizer == "muon" and not non_matrix:
        optimizer = FlatMuon(layout, compute_buffer, section.momentum or MUON_MOMENTUM, loss_scale=loss_scale)
    else:
        return LibraryStep(
            *(layout, compute_buffer, section, names, rates),
            non_matrix=non_matrix,
            shapes=shapes,
            masked=masked,
            loss_scale=loss_scale,
        )
    if any(rate != 1.0 for rate in rates):
        optimizer.rates = torch.tensor(rates, dtype=torch.float32).to(optimizer.param.device)
    return optimizer


def mask(optimizer: FlatOptimizer, masking: MaskingSection, seed: int, draws: Sequence[int]) -> None:
    """Let segments skip steps at random, as the recipe asks.

    Args:
        optimizer: optimizer that was made with `masked`.
        masking: recipe section with kind and settings; "off" changes nothing.
        seed: seed of the run.
        draws: for each segment the number of the draw that it follows, `NEVER` for none.
    """
    if masking.kind == "off":
        return
    options = MagmaOptions(
        probability=masking.probability,
        temperature=masking.temperature,
        decay=masking.decay,
        start=masking.start,
        momentum_after=masking.momentum == "after",
        skip=masking.kind == "skip_update",
        rate=masking.rate,
    )
    optimizer.modifier = Magma(optimizer.layout, draws, seed, options)


def control_of(
    section: TrainSection, learning_rate: float, *, max_grad_norm: float, growth_interval: int
) -> StepSettings:
    """Build the settings of a step.

    Args:
        section: the recipe's training section.
        learning_rate: learning rate of this step.
        max_grad_norm: norm that gradients are scaled down to; 0: no clipping.
        growth_interval: number of good steps in fp16 after which the loss scale doubles; 0: never.
    """
    return StepSettings(
        learning_rate=learning_rate,
        beta1=section.beta1,
        beta2=section.beta2,
        eps=section.epsilon,
        weight_decay=section.weight_decay,
        max_grad_norm=max_grad_norm,
        growth_interval=growth_interval,
    )


def flat_tensors(optimizer: FlatOptimizer, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """Copy the optimizer's whole state beside the masters to the CPU, by name.

    Args:
        optimizer: optimizer to save.
        names: name of each segment.
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
    """Restore what `flat_tensors` returned; in schedule-free training this sets the masters too.

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
