"""Our decoder together with the tensors that its training needs on the device: masters, gradients, moments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from burnish_engine.contract.recipe.recipe_train import MaskingSection, TrainSection
from burnish_engine.models.decoder.decoder_load import LoadedDecoder, connect_gradients, connect_magnitudes
from burnish_engine.models.decoder.lora_adapter import LoraAdapter
from burnish_engine.train.optimizers.flat_step import (
    averaged,
    control_of,
    flat_tensors,
    make_flat_step,
    mask,
    restore_flat,
)
from burnish_engine.train.optimizers.trained_segments import TrainedSegments
from burnish_kernels.adamw.op import FlatLayout, FlatOptimizer, StepSettings
from burnish_kernels.lora_linear.op import Dropout

FIRST_LOSS_SCALE = 2.0**14
"""Initial loss scale in fp16. torch.amp starts at 2^16 and halves until gradients are finite; sums over 10,000 tokens
seldom allow more than this."""
GROWTH_INTERVAL = 2000  # fp16: good steps after which the loss scale doubles, as torch.amp.GradScaler
_STREAMS_PER_STACK = 8  # random streams of a stack; it has at most three adapters


@dataclass
class TrainableDecoder:
    """A decoder together with its adapter and optimizer.

    Attributes:
        loaded: decoder and its buffer for compute copies.
        optimizer: flat buffers of masters and gradients, and the update.
        adapter: the same masters by name.
        dropout_seed: int64 [1] on the device; changed before every micro-batch where there is dropout.
    """

    loaded: LoadedDecoder
    optimizer: FlatOptimizer
    adapter: LoraAdapter
    dropout_seed: torch.Tensor

    @property
    def device(self) -> torch.device:
        """Device of the decoder."""
        return self.loaded.decoder.device

    def control(self, section: TrainSection, learning_rate: float) -> StepSettings:
        """Build the optimizer's settings for a step."""
        growth_interval = GROWTH_INTERVAL if self.loaded.compute_buffer.dtype == torch.float16 else 0
        norm = section.max_grad_norm
        return control_of(section, learning_rate, max_grad_norm=norm, growth_interval=growth_interval)

    def state(self) -> dict[str, torch.Tensor]:
        """Return the optimizer's whole state by name, on the CPU, as a resumed run needs it."""
        return flat_tensors(self.optimizer, list(self.adapter.named()))

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restore what `state` returned; in schedule-free training this sets the masters too.

        Raises:
            KeyError: The tensors belong to another adapter.
        """
        restore_flat(self.optimizer, list(self.adapter.named()), tensors)
        self.loaded.decoder.expire_magnitudes()

    @contextmanager
    def averaged(self) -> Iterator[bool]:
        """Swap in the weights to evaluate and save, for masters and compute copies; see `Optimizers.averaged`."""
        try:
            with averaged(self.optimizer) as others:
                self.loaded.decoder.expire_magnitudes()
                yield others
        finally:
            self.loaded.decoder.expire_magnitudes()

    @torch.no_grad()
    def initialize(self, seed: int) -> None:
        """Fill the masters of a new adapter, and all that follows from them."""
        self.adapter.initialize(seed)
        for magnitudes in self.loaded.decoder.magnitudes:
            magnitudes.start()
        self.write_compute_copies()

    @torch.no_grad()
    def write_compute_copies(self) -> None:
        """Write the compute copies from the masters; the next pass computes DoRA's factors from both."""
        self.optimizer.write_compute_copies()
        self.loaded.decoder.expire_magnitudes()


def make_trainable(
    loaded: LoadedDecoder,
    masking: MaskingSection | None = None,
    seed: int = 0,
    section: TrainSection | None = None,
) -> TrainableDecoder:
    """Allocate the tensors of training and connect the stacks' gradients; the adapter is zero until it is filled.

    Args:
        loaded: decoder to train.
        masking: recipe section that says which matrices skip steps; None: none.
        seed: seed of the run.
        section: recipe section that names the optimizer; None: AdamW.

    Raises:
        SetupError: The optimizer's library does not run here.
    """
    device = loaded.decoder.device
    layout = FlatLayout(loaded.segments, device)
    section, masking = section or TrainSection(), masking or MaskingSection()
    shapes = {name: shape for adapted in loaded.plan.parts for name, shape in adapted.shapes.items()}
    names, vectors = list(shapes), [index for index, shape in enumerate(shapes.values()) if len(shape) == 1]
    rates = [section.lora_plus_ratio if ".lora_B." in name else 1.0 for name in names]
    scale = FIRST_LOSS_SCALE if loaded.compute_buffer.dtype == torch.float16 else 1.0
    masked = masking.is_active
    segments = TrainedSegments(
        layout, loaded.compute_buffer, names, rates, vectors, shapes=list(shapes.values()), loss_scale=scale
    )
    optimizer = make_flat_step(section, segments, masked=masked)
    if masked:
        pairs = [pair for pair, adapted in enumerate(loaded.plan.parts) for _ in adapted.shapes]
        mask(optimizer, masking, seed, pairs if masking.share == "pair" else list(range(len(names))))
    adapter = LoraAdapter(loaded.plan, layout.views(optimizer.param))
    dropout_seed = torch.zeros(1, dtype=torch.int64, device=device)
    gradients = LoraAdapter(loaded.plan, layout.views(optimizer.grad))
    if loaded.plan.dropout:
        for layer in loaded.decoder.layers:
            for position, stack in enumerate(layer.stacks):
                stream = _STREAMS_PER_STACK * (len(layer.stacks) * layer.shape.index + position)
                stack.drop = Dropout(loaded.plan.dropout, dropout_seed, stream)
    connect_gradients(loaded, gradients)
    connect_magnitudes(loaded, adapter, gradients)
    return TrainableDecoder(loaded, optimizer, adapter, dropout_seed)
