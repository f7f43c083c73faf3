"""Short convolutions while text is generated: the products B x of each row's last tokens are kept.

Shapes: B rows (replies), T tokens of packed prompts, H hidden size, C = 3H, L taps, P = L - 1 earlier tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from typing_extensions import override

from burnish_engine.models.decoder.mixers.mixer import (
    Mixer,
    MixerCache,
    MixFunction,
    PackedPrompts,
    PromptChunk,
    SlotCache,
)
from burnish_engine.models.decoder.mixers.short_conv.mixer import ShortConvMixer
from burnish_kernels.short_conv import op as short_conv


@dataclass(frozen=True)
class ShortConvCache(MixerCache, SlotCache):
    """The last products of all layers with short convolutions, of rows that grow together or of slots.

    Attributes:
        rows: number of rows.
        earlier_BPH: products of each layer, the newest last; zeros before a row's first token.
    """

    rows: int
    earlier_BPH: dict[int, torch.Tensor] = field(default_factory=dict)

    @override
    def reading(self, prompts: PackedPrompts) -> MixFunction:
        return _Storing(self, prompts)

    @override
    def continuing(self, chunk: PromptChunk) -> None:
        return None

    @override
    def growing(self) -> MixFunction:
        return _Continuing(self)

    @override
    def keep(self, rows: Sequence[int]) -> None:
        for layer, earlier_BPH in self.earlier_BPH.items():
            self.earlier_BPH[layer] = earlier_BPH[torch.tensor(list(rows), device=earlier_BPH.device)]

    @override
    def copy(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        for earlier_BPH in self.earlier_BPH.values():
            earlier_BPH[targets] = earlier_BPH[sources]

    def of_layer(self, mixer: ShortConvMixer, like: torch.Tensor) -> torch.Tensor:
        """Return a layer's products; zeros the first time."""
        channels, taps = mixer.weight_HL.shape
        return self.earlier_BPH.setdefault(mixer.index, like.new_zeros(self.rows, taps - 1, channels))


@dataclass(frozen=True)
class _Storing(MixFunction):
    """Convolution within packed prompts that also stores their last products."""

    cache: ShortConvCache
    prompts: PackedPrompts

    @override
    def __call__(self, mixer: Mixer, inputs: tuple[torch.Tensor, ...], out_TK: torch.Tensor) -> None:
        assert isinstance(mixer, ShortConvMixer)
        (bcx_TC,), prompts = inputs, self.prompts
        short_conv.forward(bcx_TC, mixer.weight_HL, prompts.documents.start_T, bias_H=mixer.bias_H, out=out_TK)
        earlier_BPH = self.cache.of_layer(mixer, bcx_TC)
        places = earlier_BPH.shape[1]
        rows, ends = (torch.tensor(list(some), device=bcx_TC.device) for some in (prompts.rows, prompts.edges[1:]))
        firsts = torch.tensor(list(prompts.edges[:-1]), device=bcx_TC.device)
        token_BP = ends[:, None] - torch.arange(places, 0, -1, device=bcx_TC.device)
        b_BPH, _, x_BPH = bcx_TC[token_BP.clamp_min(0)].chunk(3, dim=-1)
        earlier_BPH[rows] = (b_BPH * x_BPH).masked_fill((token_BP < firsts[:, None])[..., None], 0.0)


@dataclass(frozen=True)
class _Continuing(MixFunction):
    """Convolution of each row's newest token with the stored products."""

    cache: ShortConvCache

    @override
    def __call__(self, mixer: Mixer, inputs: tuple[torch.Tensor, ...], out_TK: torch.Tensor) -> None:
        assert isinstance(mixer, ShortConvMixer)
        b_BH, c_BH, x_BH = inputs[0].chunk(3, dim=-1)
        earlier_BPH = self.cache.of_layer(mixer, b_BH)[: len(b_BH)]
        reached_BLH = torch.cat((earlier_BPH, (b_BH * x_BH)[:, None]), dim=1)
        convolved_BH = (reached_BLH.float() * mixer.weight_HL.t().float()).sum(dim=1)
        if mixer.bias_H is not None:
            convolved_BH += mixer.bias_H.float()
        torch.mul(c_BH, convolved_BH.to(c_BH.dtype), out=out_TK)
        earlier_BPH.copy_(reached_BLH[:, 1:])
