"""Rules that mixtures of experts share: metadata, and one tensor for each of the three matrices of all experts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from burnish_engine.contract.facts.facts import DecoderSpec, LayerSpec
from burnish_engine.export.gguf.families.base import EXPERT_TENSORS, GgufFamily, Metadata, PlannedTensor
from burnish_engine.export.gguf.families.dense import dense_metadata, dense_tensors
from burnish_engine.export.gguf.mxfp4 import repack
from burnish_engine.export.weights.experts import ExpertPart, StoredStack
from burnish_engine.export.weights.merge import MergedWeights

ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_output", "attn_norm")
MIXTURE = ("ffn_gate_inp", *EXPERT_TENSORS.values())


def mixture_metadata(spec: DecoderSpec, config: dict[str, Any]) -> Metadata:
    """Make the keys of a mixture; `feed_forward_length` is that of its dense layers where it has a size for them."""
    experts = spec.experts
    assert experts is not None  # `gguf_refusal` wants a specification
    return {
        **dense_metadata(spec, config),
        "feed_forward_length": spec.dense_intermediate_size or spec.intermediate_size,
        "expert_count": experts.count,
        "expert_used_count": experts.slots,
        "expert_feed_forward_length": experts.size,
    }


def mixture_tensors(
    family: GgufFamily,
    spec: DecoderSpec,
    weights: MergedWeights,
    parts: Callable[[LayerSpec], Sequence[str]],
    final_norm: str = "output_norm",
) -> list[PlannedTensor]:
    """List every tensor as `dense_tensors` does, with the experts' stacks.

    Args:
        family: family whose architecture names the tensors.
        spec: shape of the model.
        weights: weights of the model.
        parts: tensors that each layer must have.
        final_norm: GGUF name of the norm before the head.

    Raises:
        UsageError: The checkpoint has a tensor that this architecture does not name.
        SetupError: A required tensor is missing.
    """
    stacks = [planned for stack in weights.stacks.values() for planned in _stack(weights, stack)]
    return dense_tensors(family, spec, weights, parts, final_norm, others=stacks)


def _stack(weights: MergedWeights, stack: StoredStack) -> Iterator[PlannedTensor]:
    block, packed = f"blk.{stack.stack.layer}", weights.keeps_mxfp4(stack)
    for part in stack.parts:
        shape = (stack.stack.experts, *stack.part_shape(part))
        name = f"{block}.{EXPERT_TENSORS[part]}"
        make = partial(_packed if packed else _matrices, weights, stack, part)
        yield PlannedTensor(f"{name}.weight", shape, make, full_precision=False, packed=packed)
        if stack.bias:
            make_bias = partial(_bias, weights, stack, part)
            yield PlannedTensor(f"{name}.bias", shape[:2], make_bias, full_precision=True)


def _matrices(weights: MergedWeights, stack: StoredStack, part: ExpertPart) -> Iterator[torch.Tensor]:
    return (weights.load_expert(stack, expert, part) for expert in range(stack.stack.experts))


def _packed(weights: MergedWeights, stack: StoredStack, part: ExpertPart) -> Iterator[torch.Tensor]:
    return (repack(*weights.load_packed(stack, expert, part)) for expert in range(stack.stack.experts))


def _bias(weights: MergedWeights, stack: StoredStack, part: ExpertPart) -> torch.Tensor:
    return weights.load(stack.bias)[:, stack.rows(part)]
