"""Build the recipe's optimizer on flat buffers for either engine, with its masking, and save and restore its state."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch

from burnish_engine.contract.recipe.recipe_train import MaskingSection, Optimizer, TrainSection
from burnish_engine.train.optimizers.adafactor_step import MaskedAdafactorStep
from burnish_engine.train.optimizers.eight_bit_step import EightBitStep, MaskedEightBitStep
from burnish_engine.train.optimizers.flat_muon import FlatMuon
from burnish_engine.train.optimizers.library_step import DirectStep, LibraryStep
from burnish_engine.train.optimizers.momentum_step import LionStep, MuonStep
from burnish_engine.train.optimizers.optimizer import MUON_MOMENTUM
from burnish_engine.train.optimizers.schedule_free import MaskedScheduleFreeStep
from burnish_engine.train.optimizers.trained_segments import TrainedSegments
from burnish_kernels.adamw.op import AdamW, FlatOptimizer, StepSettings
from burnish_kernels.magma.op import Magma, MagmaOptions

LIBRARY_STEPS: dict[Optimizer, tuple[type[LibraryStep], type[LibraryStep]]] = {
    "adafactor": (DirectStep, MaskedAdafactorStep),
    "adamw8bit": (EightBitStep, MaskedEightBitStep),
    "lion": (LionStep, LionStep),
    "muon": (MuonStep, MuonStep),
    "paged_adamw8bit": (EightBitStep, MaskedEightBitStep),
    "schedule_free": (DirectStep, MaskedScheduleFreeStep),
}
"""Class that takes each optimizer's steps without masks, and with."""


def make_flat_step(section: TrainSection, segments: TrainedSegments, *, masked: bool = False) -> FlatOptimizer:
    """Build the recipe's optimizer on flat buffers.

    Args:
        section: recipe section with the optimizer's name and settings.
        segments: tensors to train.
        masked: whether `mask` will be called.

    Raises:
        ValueError: The compute buffer or the loss scale does not fit.
        SetupError: The optimizer's library does not run here.
    """
    where = segments.layout, segments.compute_buffer
    optimizer: FlatOptimizer
    if section.optimizer == "adamw":
        optimizer = AdamW(*where, loss_scale=segments.loss_scale)
    elif section.optimizer == "muon" and not segments.non_matrix:
        optimizer = FlatMuon(*where, section.momentum or MUON_MOMENTUM, loss_scale=segments.loss_scale)
    else:
        return make_library_step(section, segments, masked=masked)
    optimizer.rates = segments.rates_on_device
    return optimizer


def make_library_step(section: TrainSection, segments: TrainedSegments, *, masked: bool = False) -> LibraryStep:
    """Build the recipe's optimizer from its library; arguments as in `make_flat_step`."""
    without_masks, with_masks = LIBRARY_STEPS[section.optimizer]
    return (with_masks if masked else without_masks)(section, segments)


def averaged(optimizer: FlatOptimizer) -> AbstractContextManager[bool]:
    """Swap in the weights to evaluate and save, with their compute copies; see `Optimizers.averaged`."""
    return optimizer.averaged() if isinstance(optimizer, LibraryStep) else nullcontext(enter_result=False)


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
