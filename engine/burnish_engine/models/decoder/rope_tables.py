"""Cosines and sines of every position, with the frequencies of each kind of rope.

The arithmetic is transformers' own, operation by operation in fp32 (`modeling_rope_utils` and the families'
`compute_default_rope_parameters`): at position 100,000 one more rounding of a frequency turns the angle by 0.01.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch

from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec, RopeSpec


@dataclass(frozen=True)
class RopeTable:
    """A table of rotations, one row per position.

    Attributes:
        table_PR: table fp32 [P, rotary_dim]: cosines in the first half of a row, sines in the second, both times the
            attention factor. Row p is position p.
        long_offset: row of position 0 for long documents; None where all documents rotate alike.
        long_above: number of tokens above which a document is long; None where all documents rotate alike.
        query_scale_P: factor of the queries at each position, fp32; None where it is 1 at all of them.
    """

    table_PR: torch.Tensor
    long_offset: int | None = None
    long_above: int | None = None
    query_scale_P: torch.Tensor | None = None


class PositionTables(NamedTuple):
    """The tables of a model.

    Attributes:
        rope: table of all layers.
        local: table of layers with a sliding window; the same where theirs does not differ.
    """

    rope: RopeTable
    local: RopeTable

    def of_layer(self, layer: LayerSpec) -> torch.Tensor | None:
        """Return a layer's table; None where it rotates nothing."""
        return self._chosen(layer).table_PR if layer.rope else None

    def query_scales_of_layer(self, layer: LayerSpec) -> torch.Tensor | None:
        """Return the factor of the queries at each position of a layer; None where it is 1 at all of them."""
        return self._chosen(layer).query_scale_P

    def _chosen(self, layer: LayerSpec) -> RopeTable:
        return self.local if layer.kind == "sliding_attention" else self.rope


def position_tables(spec: DecoderSpec, positions: int, device: torch.device | str) -> PositionTables:
    """Compute a model's tables for documents of up to `positions` tokens; errors as in `rope_table`."""
    full = next((spec.of_layer(one).head_dim for one in spec.layers if one.kind == "attention"), spec.head_dim)
    rope = local = rope_table(spec.rope, full, positions, device)
    if spec.local_rope is not None:
        local = rope_table(spec.local_rope, spec.head_dim, positions, device)
    return PositionTables(rope, local)


def rope_table(rope: RopeSpec, head_dim: int, max_positions: int, device: torch.device | str) -> RopeTable:
    """Compute the table for documents of up to `max_positions` tokens.

    Args:
        rope: specification of the rope.
        head_dim: size of a head, rotated or not.
        max_positions: tokens of the longest document.
        device: device that the table goes to.

    Raises:
        ValueError: This kind of rope has no table (dynamic), or its factors do not fit the head.
    """
    short_R = inverse_frequencies(rope, head_dim)
    original = rope.original_context
    if rope.scaling != "longrope" or original is None or max_positions <= original:
        table_PR = torch.empty(max_positions, 2 * len(short_R), device=device)
        _fill(table_PR, short_R, rope.attention_factor)
        return RopeTable(table_PR, query_scale_P=_query_scales(rope, max_positions, device))
    table_PR = torch.empty(original + max_positions, 2 * len(short_R), device=device)
    _fill(table_PR[:original], short_R, rope.attention_factor)
    _fill(table_PR[original:], inverse_frequencies(rope, head_dim, long=True), rope.attention_factor)
    return RopeTable(table_PR, long_offset=original, long_above=original)


def inverse_frequencies(rope: RopeSpec, head_dim: int, *, long: bool = False) -> torch.Tensor:
    """Return the angle per position of each rotated pair, fp32 [rotary_dim / 2], on the CPU.

    Args:
        rope: specification of the rope.
        head_dim: size of a head, rotated or not.
        long: whether to take longrope's frequencies of long documents.

    Raises:
        ValueError: same as in `rope_table`.
    """
    dim = int(head_dim * rope.partial)
    exponents_R = torch.arange(0, dim, 2, dtype=torch.int64).float() / dim
    if rope.scaling == "longrope":
        factors = rope.long_factor if long else rope.short_factor
        if len(factors) != len(exponents_R):
            raise ValueError(f"longrope has {len(factors)} factors for {len(exponents_R)} frequencies")
        return 1.0 / (torch.tensor(factors, dtype=torch.float32) * rope.theta**exponents_R)
    plain_R = 1.0 / (rope.theta**exponents_R)
    if rope.scaling == "proportional":
        plain_R[int(rope.proportion * dim // 2) :] = 0.0
        return plain_R / rope.factor
    if rope.scaling == "none":
        return plain_R
    if rope.scaling == "linear":
        return plain_R / rope.factor
    if rope.scaling == "llama3":
        return _llama3(plain_R, rope)
    if rope.scaling == "yarn":
        return _yarn(rope, dim)
    raise ValueError(f"{rope.scaling} rope has no table")


def _llama3(plain_R: torch.Tensor, rope: RopeSpec) -> torch.Tensor:
    """Scale frequencies as Llama 3.1: slow down long wavelengths, keep short ones, blend those between."""
    context = rope.original_context
    if not context:
        raise ValueError("llama3 rope without its original context")
    low, high = rope.low_freq_factor, rope.high_freq_factor
    wavelengths_R = 2 * math.pi / plain_R
    slowed_R = torch.where(wavelengths_R > context / low, plain_R / rope.factor, plain_R)
    smooth_R = (context / wavelengths_R - low) / (high - low)
    between_R = (1 - smooth_R) * slowed_R / rope.factor + smooth_R * slowed_R
    is_between_R = (wavelengths_R >= context / high) & (wavelengths_R <= context / low)
    return torch.where(is_between_R, between_R, slowed_R)


def _yarn(rope: RopeSpec, dim: int) -> torch.Tensor:
    """Divide slow frequencies by the factor, keep fast ones, blend those between (YaRN, arXiv 2309.00071)."""
    context = rope.original_context
    if not context:
        raise ValueError("yarn rope without its original context")

    def pair_with(turns: float) -> float:
        """Return the number of the pair, as a fraction, that turns so often within the original context."""
        return (dim * math.log(context / (turns * 2 * math.pi))) / (2 * math.log(rope.theta))

    low, high = pair_with(rope.beta_fast), pair_with(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    high += 0.001 if low == high else 0.0
    powers_R = rope.theta ** (torch.arange(0, dim, 2).float() / dim)
    slowed_R = torch.clamp((torch.arange(dim // 2, dtype=torch.float32) - low) / (high - low), 0, 1)
    kept_R = 1 - slowed_R
    return 1.0 / (rope.factor * powers_R) * (1 - kept_R) + 1.0 / powers_R * kept_R


def _query_scales(rope: RopeSpec, positions: int, device: torch.device | str) -> torch.Tensor | None:
    """Return the factor of the queries at each position, as transformers' `get_llama_4_attn_scale` computes it."""
    context = rope.original_context
    if not rope.query_scale or context is None or positions <= context:
        return None
    return 1 + rope.query_scale * torch.log(1 + torch.floor(torch.arange(positions, device=device) / context))


def _fill(table_PR: torch.Tensor, frequencies_R: torch.Tensor, scale: float) -> None:
    # Angles are products of two fp32 numbers, the same on every device; only the frequencies' powers are not.
    positions_P = torch.arange(table_PR.shape[0], device=table_PR.device).float()
    angles_PR = positions_P[:, None] * frequencies_R.to(table_PR.device)
    cosines_PR, sines_PR = table_PR.chunk(2, dim=-1)
    torch.cos(angles_PR, out=cosines_PR)
    torch.sin(angles_PR, out=sines_PR)
    table_PR.mul_(scale)
