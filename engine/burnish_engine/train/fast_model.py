"""Our decoder with everything that its training needs on the device: masters, gradients, moments, loss sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from burnish_engine.contract.recipe import MaskingSection, TrainSection
from burnish_engine.models.decoder_load import LoadedDecoder
from burnish_engine.models.lora_adapter import LoraAdapter
from burnish_kernels.adamw.op import AdamW, Control, FlatLayout
from burnish_kernels.lora_linear.op import Dropout
from burnish_kernels.magma.op import Magma, Options

FIRST_LOSS_SCALE = 2.0**14
"""fp16: to begin with. torch.amp starts at 2^16 and halves until gradients are finite; sums over 10,000 tokens seldom
allow more than this."""
GROWTH_INTERVAL = 2000  # fp16: good steps after which the loss scale doubles, as torch.amp.GradScaler
_STREAMS_PER_STACK = 8  # random streams of a stack; it has at most three adapters


@dataclass
class TrainableDecoder:
    """A decoder being trained.

    Attributes:
        loaded: The decoder and its places for shadows.
        optimizer: Flat buffers and step.
        adapter: The same masters by name.
        dropout_seed: int64 [1] on the device; changed before every pass where there is dropout.
    """

    loaded: LoadedDecoder
    optimizer: AdamW
    adapter: LoraAdapter
    dropout_seed: torch.Tensor

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.loaded.decoder.device

    def control(self, section: TrainSection, learning_rate: float) -> Control:
        """The optimizer's settings for a step."""
        return Control(
            learning_rate=learning_rate,
            beta1=section.beta1,
            beta2=section.beta2,
            eps=section.epsilon,
            weight_decay=section.weight_decay,
            max_grad_norm=section.max_grad_norm,
            growth_interval=GROWTH_INTERVAL if self.loaded.arena.dtype == torch.float16 else 0,
        )

    def state(self) -> dict[str, torch.Tensor]:
        """Everything of the optimizer that a resumed run needs, by name, on the CPU."""
        optimizer, layout = self.optimizer, self.optimizer.layout
        found: dict[str, torch.Tensor] = {}
        for kind, flat in (("exp_avg", optimizer.exp_avg), ("exp_avg_sq", optimizer.exp_avg_sq)):
            for name, view in zip(self.adapter.named(), layout.views(flat), strict=True):
                found[f"{name}/{kind}"] = view.detach().cpu().contiguous()
        if isinstance(optimizer.modifier, Magma):
            found["alignment"] = optimizer.modifier.alignment.detach().cpu()
        found["counters"] = optimizer.counters.cpu()
        found["loss_scale"] = optimizer.loss_scale.cpu()
        return found

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """The inverse of `state`.

        Raises:
            KeyError: The tensors belong to another adapter.
        """
        optimizer, layout = self.optimizer, self.optimizer.layout
        for kind, flat in (("exp_avg", optimizer.exp_avg), ("exp_avg_sq", optimizer.exp_avg_sq)):
            for name, view in zip(self.adapter.named(), layout.views(flat), strict=True):
                view.copy_(tensors[f"{name}/{kind}"])
        if isinstance(optimizer.modifier, Magma):
            optimizer.modifier.alignment.copy_(tensors["alignment"])
        optimizer.counters.copy_(tensors["counters"])
        optimizer.loss_scale.copy_(tensors["loss_scale"])


def make_trainable(loaded: LoadedDecoder, masking: MaskingSection | None = None, seed: int = 0) -> TrainableDecoder:
    """Allocate what training needs and connect the stacks' gradients; the adapter is all zero until it is filled.

    Args:
        loaded: The decoder.
        masking: Which matrices sit out steps; None: none.
        seed: Of the run.
    """
    device = loaded.decoder.device
    layout = FlatLayout(loaded.segments, device)
    scale = FIRST_LOSS_SCALE if loaded.arena.dtype == torch.float16 else 1.0
    optimizer = AdamW(layout, loaded.arena, loss_scale=scale)
    if masking is not None and masking.kind != "off":
        optimizer.modifier = _magma(layout, masking, seed)
    adapter = LoraAdapter(loaded.plan, layout.views(optimizer.param))
    dropout_seed = torch.zeros(1, dtype=torch.int64, device=device)
    gradients = layout.views(optimizer.grad)
    places = {adapted.module: index for index, adapted in enumerate(loaded.plan.modules)}
    stacks: dict[tuple[int, str], Any] = {}
    for layer in loaded.decoder.layers:
        for name, stack in zip(("qkv", "o", "gate_up", "down"), layer.stacks, strict=True):
            stacks[layer.shape.index, name] = stack
            if loaded.plan.dropout:
                stream = _STREAMS_PER_STACK * (4 * layer.shape.index + layer.stacks.index(stack))
                stack.drop = Dropout(loaded.plan.dropout, dropout_seed, stream)
    for module, index in sorted(places.items(), key=lambda item: item[0].first_row):
        stack = stacks[module.layer, module.stack]
        stack.gradients.a.append(gradients[2 * index])
        stack.gradients.b.append(gradients[2 * index + 1])
    return TrainableDecoder(loaded, optimizer, adapter, dropout_seed)


def _magma(layout: FlatLayout, section: MaskingSection, seed: int) -> Magma:
    """The segments are A and B of one module after the other."""
    draws = [index // 2 if section.share == "pair" else index for index in range(len(layout.segments))]
    options = Options(
        probability=section.probability,
        temperature=section.temperature,
        decay=section.decay,
        start=section.start,
        momentum_after=section.momentum == "after",
        skip=section.kind == "skip_update",
        rate=section.rate,
    )
    return Magma(layout, draws, seed, options)
