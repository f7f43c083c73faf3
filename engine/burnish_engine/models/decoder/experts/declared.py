"""The tensors of a layer's expert half, each declared once. Loads no torch.

Shapes as in `layer_tensors`, and E experts, k slots of a token, I width of an expert, R rank of an expert's adapter.
Rows in the experts' order, `[T k, width]`, are declared as `[T, k width]`: the same memory.

An expert that sees every token is a dense feed-forward, S wide. It computes before the others do, so that what it does
not save is gone by then. What both save is one tensor: first the experts' numbers of all tokens, then its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from burnish_engine.models.decoder.layer_tensors import (
    ANY,
    EVERY,
    HOSTED,
    TOKENS,
    WITH_GATE_UP,
    Alive,
    LayerTensor,
    Phase,
    StackSizes,
    always,
    feed_forward_activations,
    levels,
    normalized_output,
)

SCRATCH_BYTES = 192 << 20
"""Most memory that experts are unpacked into at once: 32 experts of Qwen3-30B-A3B, 6 of gpt-oss-20b, 24 of OLMoE. On an
H100, groups of 6 of Qwen3's experts and fewer were bound by their launches, and 32 were the fastest of four sizes."""


@dataclass(frozen=True)
class ExpertSizes:
    """The sizes of an expert half.

    Attributes:
        experts: number of experts, E.
        slots: number of experts of a token, k.
        size: width of an expert, I.
        gate_up_rank: rank of the adapters of an expert's first map; 0: none.
        down_rank: rank of the adapters of an expert's second map; 0: none.
    """

    experts: int
    slots: int
    size: int
    gate_up_rank: int = 0
    down_rank: int = 0


class SharedSizes(NamedTuple):
    """The sizes of the expert that sees every token, or zeros."""

    outputs: int = 0  # outputs of its first map, 2 S
    rank: int = 0  # adapter columns of its first map
    down_rank: int = 0  # adapter columns of its second map


def shared_sizes(stacks: StackSizes) -> SharedSizes:
    """Return the sizes of a mixture's expert that sees every token; zeros where its layer has none."""
    if "gate_up" not in stacks:
        return SharedSizes()
    return SharedSizes(stacks["gate_up"].outputs, stacks["gate_up"].rank, stacks["down"].rank)


def expert_tensors(
    hidden: int,
    sizes: ExpertSizes,
    shared: SharedSizes,
    *,
    has_pre_norms: bool,
    has_post_norms: bool,
    is_normed: bool = False,
) -> tuple[LayerTensor, ...]:
    """Declare the tensors of an expert half.

    Which experts a token went to is kept at every level: computed again, a near tie could send it elsewhere.

    Args:
        hidden: hidden size.
        sizes: sizes of the experts.
        shared: sizes of the expert that sees every token.
        has_pre_norms: whether a norm precedes the half.
        has_post_norms: whether a norm follows it.
        is_normed: whether the shared expert has norms of its own.
    """
    k, size = sizes.slots, sizes.size
    gate_up, x_mlp, activated = feed_forward_activations(k * 2 * size + shared.outputs, hidden + shared.rank, k * size)
    activated_again: dict[Phase, Alive] = {}
    if sizes.down_rank:  # for the adapters' gradients alone
        activated_again["feed_forward_backward"] = Alive(EVERY - levels("all"), EVERY)
    # The shared expert's gradients are computed first, from the normalized stream, and begin the sum of that one's.
    input_phases: tuple[Phase, ...] = (*(("feed_forward_backward",) if shared.outputs else ()), "input_gradient")
    found = [
        _routed("router_logits_TE", sizes.experts),
        _routed("expert_ids_Tk", k, is_int32=True),
        _routed("routing_weights_Tk", k, is_fp32=True),
        _routed("expert_order_Tk", k, is_int32=True),
        _routed("expert_inverse_Tk", k, is_int32=True),
        *_beside_shared(gate_up, k * 2 * size),
        LayerTensor(
            "xa_gate_up_TR",
            (TOKENS, k * sizes.gate_up_rank + shared.rank),
            kept=always(WITH_GATE_UP),
            placed=WITH_GATE_UP,
            extra={"mixer": always(WITH_GATE_UP), "feed_forward": always(ANY)},
        ),
        x_mlp,
        activated,
        _passing("expert_out_TH", k * hidden, {"feed_forward": always(ANY)}),
        _passing("activated_again_TI", k * size, activated_again),
        _passing("activated_gradient_TI", k * size, {"feed_forward_backward": always(EVERY)}),
        _passing(
            "gate_up_gradient_TE",
            k * 2 * size,
            {"feed_forward_backward": always(EVERY), "input_gradient": always(EVERY)},
        ),
        _passing("expert_in_gradient_TH", k * hidden, {"input_gradient": always(EVERY)}),
        _passing("x_mlp_gradient_TH", hidden, dict.fromkeys(input_phases, always(EVERY))),
    ]
    if is_normed:
        found += [
            replace(_routed("shared_out_TH", hidden), host=HOSTED),
            _passing("shared_out_gradient_TH", 2 * hidden, _backward_phases()),
        ]
        found += [
            LayerTensor(name, (TOKENS,), kept=always(EVERY), is_fp32=True)
            for name in ("shared_out_inverse_T", "both_inverse_T")
        ]
    elif shared.outputs:
        found.append(_routed("shared_scale_T"))
    if has_pre_norms or shared.outputs:
        again = Alive(WITH_GATE_UP - levels("all"), WITH_GATE_UP)
        found.append(_passing("x_mlp_again_TH", hidden + shared.rank, dict.fromkeys(input_phases, again)))
    if has_post_norms:
        found += [
            _passing("mlp_out_gradient_TE", hidden, {"feed_forward_backward": always(EVERY)}),
            *normalized_output(hidden),
        ]
    return tuple(found)


def _backward_phases() -> dict[Phase, Alive]:
    return {"feed_forward_backward": always(EVERY), "input_gradient": always(EVERY)}


def _beside_shared(tensor: LayerTensor, width: int) -> tuple[LayerTensor, ...]:
    """Declare a tensor of all experts that has less where it is not kept, because the shared expert's part is gone.

    Args:
        tensor: tensor as it is where it is kept.
        width: numbers of the other experts for a token.
    """
    if width == tensor.width:
        return (tensor,)
    kept, passing = dict[Phase, Alive](), dict[Phase, Alive]()
    for phase, at in tensor.extra.items():
        kept[phase] = Alive(at.whole & tensor.kept.whole, at.chunked & tensor.kept.chunked)
        passing[phase] = Alive(at.whole - tensor.kept.whole, at.chunked - tensor.kept.chunked)
    return replace(tensor, extra=kept), _passing(f"expert_{tensor.name}", width, passing)


def _routed(name: str, *width: int, is_fp32: bool = False, is_int32: bool = False) -> LayerTensor:
    """Declare a part of the routing, which is always kept."""
    return LayerTensor(
        name,
        (TOKENS, *width),
        kept=always(EVERY),
        placed=EVERY,
        extra={"mixer": always(EVERY), "feed_forward": always(ANY)},
        is_fp32=is_fp32,
        is_int32=is_int32,
    )


def _passing(name: str, width: int, extra: Mapping[Phase, Alive]) -> LayerTensor:
    """Declare a tensor that is never kept."""
    return LayerTensor(name, (TOKENS, width), extra=extra, by_chunk=True)


def scratch_elements(shapes: Sequence[tuple[int, int]], width: int) -> int:
    """Return how many numbers a scratch for packed experts of these shapes has: at least one expert of each.

    Args:
        shapes: rows and columns of an expert in each stack.
        width: bytes of a number in the compute dtype.
    """
    sizes = [rows * columns for rows, columns in shapes]
    return max((max(SCRATCH_BYTES // width // size, 1) * size for size in sizes), default=0)
