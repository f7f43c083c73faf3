"""The tensors of a layer's expert half, each declared once. Loads no torch.

Shapes as in `layer_tensors`, and E experts, k slots of a token, I width of an expert, R rank of an expert's adapter.
Rows in the experts' order, `[T k, width]`, are declared as `[T, k width]`: the same memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from burnish_engine.models.decoder.layer_tensors import (
    ANY,
    EVERY,
    TOKENS,
    WITH_GATE_UP,
    Alive,
    LayerTensor,
    Phase,
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


def expert_tensors(
    hidden: int, sizes: ExpertSizes, *, has_pre_norms: bool, has_post_norms: bool
) -> tuple[LayerTensor, ...]:
    """Declare the tensors of an expert half.

    Which experts a token went to is kept at every level: computed again, a near tie could send it elsewhere.

    Args:
        hidden: hidden size.
        sizes: sizes of the half.
        has_pre_norms: whether a norm precedes the half.
        has_post_norms: whether a norm follows it.
    """
    k, size = sizes.slots, sizes.size
    gate_up, x_mlp, activated = feed_forward_activations(k * 2 * size, hidden, k * size)
    activated_again: dict[Phase, Alive] = {}
    if sizes.down_rank:  # for the adapters' gradients alone
        activated_again["feed_forward_backward"] = Alive(EVERY - levels("all"), EVERY)
    found = [
        _routed("router_logits_TE", sizes.experts),
        _routed("expert_ids_Tk", k, is_int32=True),
        _routed("routing_weights_Tk", k, is_fp32=True),
        _routed("expert_order_Tk", k, is_int32=True),
        _routed("expert_inverse_Tk", k, is_int32=True),
        gate_up,
        LayerTensor(
            "xa_gate_up_TR",
            (TOKENS, k * sizes.gate_up_rank),
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
        _passing("x_mlp_gradient_TH", hidden, {"input_gradient": always(EVERY)}),
    ]
    if has_pre_norms:
        again = Alive(WITH_GATE_UP - levels("all"), WITH_GATE_UP)
        found.append(_passing("x_mlp_again_TH", hidden, {"input_gradient": again}))
    if has_post_norms:
        found += [
            _passing("mlp_out_gradient_TE", hidden, {"feed_forward_backward": always(EVERY)}),
            *normalized_output(hidden),
        ]
    return tuple(found)


def _routed(name: str, width: int, *, is_fp32: bool = False, is_int32: bool = False) -> LayerTensor:
    """Declare a part of the routing, which is always kept."""
    return LayerTensor(
        name,
        (TOKENS, width),
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
