"""Predicts the memory that the GPU's allocator loses between pool buffers and other tensors. Loads no torch.

All shares here were measured: by following torch's allocator through plans that offload or recompute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from burnish_engine.advise.predict.level_mixes import MOVING, SaveLevels
from burnish_engine.advise.predict.plan_options import Bytes
from burnish_engine.advise.predict.pool_sizes import PoolSizes
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES

_WIDE_POOL_SHARE, _ATTENTION_POOL_SHARE = 0.1, 0.5
"""Shares of the pool buffers for gate and up, and for attention's output, that are lost while activations are
offloaded: 80 plans. Outputs that norms follow count as attention's; they were not measured."""
_INPUTS_LOST, _MIXED_INPUTS_LOST = 1.0, 2.0
"""Layer inputs that are lost where layers are recomputed from their inputs in chunks, and where some of these inputs
stay and others move: 250 plans."""
_IN_THE_WAY = 1.5
"""Layer inputs by which smaller tensors shrink a hole before a wide tensor comes: 400 chosen plans."""


class PlanPeaks(NamedTuple):
    """The peaks of several plans beside permanent memory, bytes, each [plans]."""

    activations: Bytes  # saved activations of all layers on the device, and the inputs of the micro-batch
    pass_peak: Bytes  # peak of what layers keep and work with at once, without the head
    top_layer: Bytes  # bytes that layers keep and work with while the last layer is differentiated
    pool: PoolSizes  # buffers of the forward pass


def fragmentation(
    found: PlanPeaks,
    levels: SaveLevels,
    buffer_bytes: Sequence[int],
    *,
    chunk_share: float,
    head_bytes: Bytes | int,
    logits: Bytes | int,
) -> Bytes:
    """Predict the bytes that fragmentation adds to each plan's peak on a GPU, [plans].

    Args:
        found: peaks of the plans.
        levels: index of each layer's save level in `LEVEL_NAMES`, [plans, layers].
        buffer_bytes: bytes of one pool buffer for gate and up, for a layer's input, and for attention's output.
        chunk_share: share of a micro-batch's tokens that pass the feed-forward at once; 0: all of them.
        head_bytes: peak of head and loss.
        logits: bytes of a chunk's logits.
    """
    wide_bytes, one_input, other_bytes = buffer_bytes
    wide, other = found.pool.gate_up * wide_bytes, found.pool.attention * other_bytes
    other = other + (found.pool.shared_output + found.pool.output) * one_input
    head, hole = found.activations + head_bytes, wide + other
    most = np.maximum(head, found.pass_peak)
    # The forward pass's pool buffers are free when the head works, but by then smaller tensors occupy parts of
    # them, so that logits that would just fit do not.
    no_room = hole < logits + _IN_THE_WAY * one_input
    beside = np.where(no_room, np.clip(head + hole - most, 0.0, hole), 0.0)
    # Nor do the buffers of attention's output, and of an input that has left, hold the gradient of gate and up in a
    # last layer that stays.
    left, stays = other + one_input, ~np.isin(levels[:, -1], [LEVEL_NAMES.index(one) for one in MOVING])
    no_room = stays & (wide == 0) & (other > 0) & (left < (chunk_share or 1) * wide_bytes)
    above = np.where(no_room, np.clip(found.top_layer + left - most, 0.0, left), 0.0)
    lost = np.maximum(_WIDE_POOL_SHARE * wide + _ATTENTION_POOL_SHARE * other, np.maximum(beside, above))
    if not chunk_share:
        return lost
    attention, host, alone = ((levels == LEVEL_NAMES.index(one)).any(axis=1) for one in ("attention", "host", "input"))
    inputs = np.where(alone & (attention | host), _MIXED_INPUTS_LOST, _INPUTS_LOST * (alone | attention))
    return np.maximum(lost, inputs * one_input)
