"""Attention while text is generated: over prompts, whose keys and values are kept, and over those of earlier tokens.

Shapes as in `kv_cache`, and N query heads, G = N / M, T tokens of packed prompts (S of one).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn.functional import scaled_dot_product_attention
from typing_extensions import override

from burnish_engine.models.decoder.mixers.attention.kv_cache import KVCache
from burnish_engine.models.decoder.mixers.attention.mixer import AttentionMixer, AttentionShape
from burnish_engine.models.decoder.mixers.mixer import Mixer, MixerCache, MixFunction, PackedPrompts
from burnish_kernels.attention import op as attention
from burnish_kernels.dispatch import use_kernels


@dataclass(frozen=True)
class AttentionCache(MixerCache):
    """Keys and values of all attention layers."""

    cache: KVCache

    @override
    def reading(self, prompts: PackedPrompts) -> MixFunction:
        pads = torch.tensor([self.cache.pads[row] for row in prompts.rows], device=prompts.row_T.device)
        lengths = torch.tensor(prompts.edges, device=pads.device).diff()
        column_T = prompts.position_T + torch.repeat_interleave(pads, lengths)
        return StoringAttention(prompts, partial(self.cache.write, row_T=prompts.row_T, column_T=column_T))

    @override
    def growing(self) -> MixFunction:
        self.cache.add_column()
        return CachedAttention(self.cache)

    @override
    def keep(self, rows: Sequence[int]) -> None:
        self.cache.keep(rows)


@dataclass(frozen=True)
class StoringAttention(MixFunction):
    """Attention within packed prompts that also writes their keys and values to the cache.

    Attributes:
        prompts: the prompts.
        write: function that stores the keys and values `[T, M, D]` of a layer, given its number.
    """

    prompts: PackedPrompts
    write: Callable[[int, torch.Tensor, torch.Tensor], None]

    @override
    def __call__(self, mixer: Mixer, inputs: tuple[torch.Tensor, ...], out_TK: torch.Tensor) -> None:
        assert isinstance(mixer, AttentionMixer)
        shape, (q_TND, k_TMD, v_TMD) = mixer.shape, inputs
        out_TND = mixer.by_head(out_TK)
        self.write(mixer.keys_layer, k_TMD, v_TMD)
        if not use_kernels(q_TND) and shape.softcap is None and mixer.sinks_N is None:
            self._on_cpu(shape, q_TND, k_TMD, v_TMD, out_TND)
            return
        attention.forward(
            q_TND,
            k_TMD,
            v_TMD,
            self.prompts.documents,
            scale=shape.scale,
            window=shape.window,
            softcap=shape.softcap,
            sinks_N=mixer.sinks_N,
            out=out_TND,
        )

    def _on_cpu(
        self,
        shape: AttentionShape,
        q_TND: torch.Tensor,
        k_TMD: torch.Tensor,
        v_TMD: torch.Tensor,
        out_TND: torch.Tensor,
    ) -> None:
        """Attend document by document with torch's own attention, three times as fast on a CPU as the reference."""
        for first, end in itertools.pairwise(self.prompts.edges):
            attend_on_cpu(shape, q_TND[first:end], k_TMD[first:end], v_TMD[first:end], out_TND[first:end])


def attend_on_cpu(
    shape: AttentionShape, q_SND: torch.Tensor, k_KMD: torch.Tensor, v_KMD: torch.Tensor, out_SND: torch.Tensor
) -> None:
    """Attend with torch's own attention from the last tokens of a document; without soft caps and sinks.

    Args:
        shape: constants of the layer.
        q_SND: queries of the last S tokens.
        k_KMD: keys of all K tokens.
        v_KMD: their values.
        out_SND: output, filled.
    """
    q_1NSD, k_1MKD, v_1MKD = (heads.transpose(0, 1)[None] for heads in (q_SND, k_KMD, v_KMD))
    earlier, mask_SK = len(k_KMD) - len(q_SND), None
    if earlier or (shape.window is not None and len(k_KMD) > shape.window):
        mask_SK = torch.ones(len(q_SND), len(k_KMD), dtype=torch.bool).tril(earlier)
        mask_SK = mask_SK if shape.window is None else mask_SK.triu(earlier + 1 - shape.window)
    found_1NSD = scaled_dot_product_attention(
        q_1NSD,
        k_1MKD,
        v_1MKD,
        attn_mask=mask_SK,
        is_causal=mask_SK is None,
        scale=shape.scale,
        enable_gqa=shape.heads != shape.kv_heads,
    )
    out_SND.copy_(found_1NSD[0].transpose(0, 1))


@dataclass(frozen=True)
class CachedAttention(MixFunction):
    """Attention of each row's newest token over the cached keys and values, in fp32."""

    cache: KVCache

    @override
    def __call__(self, mixer: Mixer, inputs: tuple[torch.Tensor, ...], out_TK: torch.Tensor) -> None:
        assert isinstance(mixer, AttentionMixer)
        shape, (q_BND, k_BMD, v_BMD) = mixer.shape, inputs
        self.cache.append(mixer.keys_layer, k_BMD, v_BMD)
        keys_XLD, values_XLD, hidden_B1L = self.cache.visible(mixer.keys_layer, shape.window)
        q_XGD = q_BND.reshape(-1, shape.heads // shape.kv_heads, shape.head_dim).float()
        scores_XGL = torch.bmm(q_XGD * shape.scale, keys_XLD.float().transpose(1, 2))
        if shape.softcap is not None:
            scores_XGL = shape.softcap * torch.tanh(scores_XGL / shape.softcap)
        if hidden_B1L is not None:
            scores_XGL.view(len(q_BND), shape.heads, -1).masked_fill_(hidden_B1L, float("-inf"))
        if mixer.sinks_N is None:
            weights_XGL = torch.softmax(scores_XGL, dim=-1)
        else:  # one more score, of a key that has no value
            rows, groups = scores_XGL.shape[:2]
            sinks_XG1 = mixer.sinks_N.float().view(-1, groups, 1).repeat(rows * groups // shape.heads, 1, 1)
            weights_XGL = torch.softmax(torch.cat((scores_XGL, sinks_XG1), dim=-1), dim=-1)[..., :-1]
        found_XGD = torch.bmm(weights_XGL, values_XLD.float())
        out_TK.copy_(found_XGD.view(out_TK.shape))
