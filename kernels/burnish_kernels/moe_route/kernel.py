"""Routing in Triton: a program takes a few whole rows of logits, and the k best of them one after another.

Everything is computed in fp32 and rounded where `reference` does. Launchers assert and never allocate.

Shapes: T tokens, E experts, K slots.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from burnish_kernels.moe_route.router import SIGMOID_EPSILON, Router

ELEMENTS, WARPS = 1024, 4
"""Logits of a program, 8 a thread, in whole rows."""

_EPSILON = tl.constexpr(SIGMOID_EPSILON)


@triton.jit
def _round(x, TYPE: tl.constexpr, ROUNDED: tl.constexpr):
    """Round to the logits' type, where the router does."""
    if ROUNDED:
        return x.to(TYPE).to(tl.float32)
    return x


@triton.jit
def _softmax(x):
    """Softmax of each row; -inf counts as nothing."""
    x = tl.exp(x - tl.max(x, axis=1)[:, None])
    return x / tl.sum(x, axis=1)[:, None]


@triton.jit(do_not_specialize=["T"])
def route_forward_kernel(
    logits_ptr,  # [T, E]
    bias_ptr,  # [E] fp32, read only with HAS_BIAS
    ids_ptr,  # [T, K] int32
    weights_ptr,  # [T, K] fp32
    T,
    E,
    logits_stride,
    scale,
    KIND: tl.constexpr,
    NORMALIZE: tl.constexpr,
    ROUNDED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Choose and weigh the experts of a few tokens."""
    TYPE: tl.constexpr = logits_ptr.dtype.element_ty
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    expert = tl.arange(0, BLOCK_E)[None, :]
    slot = tl.arange(0, BLOCK_K)[None, :]
    inside = (row < T)[:, None] & (expert < E)
    at = row.to(tl.int64)[:, None] * logits_stride + expert
    value = tl.load(logits_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if KIND == "softmax_topk":
        value = _softmax(tl.where(expert < E, value, float("-inf")))
    elif KIND == "sigmoid":
        value = _round(tl.sigmoid(value), TYPE, ROUNDED)
    score = value
    if HAS_BIAS:
        score += tl.load(bias_ptr + expert, mask=expert < E, other=0.0)
    score = tl.where(expert < E, score, float("-inf"))
    weights = tl.zeros([ROWS, BLOCK_K], tl.float32)
    ids = tl.zeros([ROWS, BLOCK_K], tl.int32)
    for index in tl.static_range(K):
        best = tl.max(score, axis=1)
        chosen = tl.min(tl.where(score == best[:, None], expert, E - 1), axis=1)  # of NaN the last: always an expert
        taken = expert == chosen[:, None]
        weights = tl.where(slot == index, tl.sum(tl.where(taken, value, 0.0), axis=1)[:, None], weights)
        ids = tl.where(slot == index, chosen[:, None], ids)
        score = tl.where(taken, float("-inf"), score)
    if KIND == "topk_softmax":
        weights = _softmax(tl.where(slot < K, weights, float("-inf")))
    elif NORMALIZE:
        total = tl.sum(weights, axis=1)[:, None]
        if KIND == "sigmoid":
            total = _round(_round(total, TYPE, ROUNDED) + _EPSILON, TYPE, ROUNDED)
        weights = weights / total
    weights = _round(_round(weights, TYPE, ROUNDED) * scale, TYPE, ROUNDED)
    at = row.to(tl.int64)[:, None] * K + slot
    own = (row < T)[:, None] & (slot < K)
    tl.store(ids_ptr + at, ids, mask=own)
    tl.store(weights_ptr + at, weights, mask=own)


@triton.jit(do_not_specialize=["T"])
def route_backward_kernel(
    dweights_ptr,  # [T, K] fp32
    logits_ptr,  # [T, E]
    ids_ptr,  # [T, K] int32
    dlogits_ptr,  # [T, E]
    T,
    E,
    logits_stride,
    dlogits_stride,
    scale,
    KIND: tl.constexpr,
    NORMALIZE: tl.constexpr,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Compute the logits' gradient of a few tokens."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    expert = tl.arange(0, BLOCK_E)[None, :]
    slot = tl.arange(0, BLOCK_K)[None, :]
    own = (row < T)[:, None] & (slot < K)
    at = row.to(tl.int64)[:, None] * K + slot
    ids = tl.load(ids_ptr + at, mask=own, other=0)
    dweight = tl.load(dweights_ptr + at, mask=own, other=0.0) * scale
    begin = row.to(tl.int64)[:, None] * logits_stride
    chosen = tl.load(logits_ptr + begin + ids, mask=own, other=0.0).to(tl.float32)
    if KIND == "sigmoid":
        share = tl.where(slot < K, tl.sigmoid(chosen), 0.0)
        if NORMALIZE:
            total = tl.sum(share, axis=1)[:, None] + _EPSILON
            dweight = (dweight - tl.sum(dweight * share, axis=1)[:, None] / total) / total
        part = dweight * share * (1.0 - share)
    elif KIND == "softmax_topk" and not NORMALIZE:
        part = dweight
    else:
        share = _softmax(tl.where(slot < K, chosen, float("-inf")))
        part = share * (dweight - tl.sum(share * dweight, axis=1)[:, None])
    dlogits = tl.zeros([ROWS, BLOCK_E], tl.float32)
    for index in tl.static_range(K):
        of = tl.sum(tl.where(slot == index, ids, 0), axis=1)[:, None]
        dlogits = tl.where(expert == of, tl.sum(tl.where(slot == index, part, 0.0), axis=1)[:, None], dlogits)
    inside = (row < T)[:, None] & (expert < E)
    if KIND == "softmax_topk" and not NORMALIZE:
        logits = tl.load(logits_ptr + begin + expert, mask=inside, other=0.0).to(tl.float32)
        every = _softmax(tl.where(expert < E, logits, float("-inf")))
        dlogits = every * (dlogits - tl.sum(every * dlogits, axis=1)[:, None])
    at = row.to(tl.int64)[:, None] * dlogits_stride + expert
    tl.store(dlogits_ptr + at, dlogits.to(dlogits_ptr.dtype.element_ty), mask=inside)


def blocks(experts: int, slots: int) -> dict[str, int]:
    """Return the block sizes of both kernels."""
    block = triton.next_power_of_2(experts)
    return {"K": slots, "ROWS": max(1, ELEMENTS // block), "BLOCK_E": block, "BLOCK_K": triton.next_power_of_2(slots)}


def launch_forward(
    logits_TE: torch.Tensor,
    router: Router,
    bias_E: torch.Tensor | None,
    ids_Tk: torch.Tensor,
    weights_Tk: torch.Tensor,
) -> None:
    """Fill `ids_Tk` and `weights_Tk`."""
    tokens, experts = logits_TE.shape
    assert ids_Tk.shape == weights_Tk.shape == (tokens, router.slots)
    sizes = blocks(experts, router.slots)
    route_forward_kernel[(triton.cdiv(tokens, sizes["ROWS"]),)](
        logits_ptr=logits_TE,
        bias_ptr=bias_E,
        ids_ptr=ids_Tk,
        weights_ptr=weights_Tk,
        T=tokens,
        E=experts,
        logits_stride=logits_TE.stride(0),
        scale=router.scale,
        KIND=router.kind,
        NORMALIZE=router.normalize,
        ROUNDED=router.rounded,
        HAS_BIAS=bias_E is not None,
        **sizes,
        num_warps=WARPS,
    )


def launch_backward(
    dweights_Tk: torch.Tensor,
    logits_TE: torch.Tensor,
    ids_Tk: torch.Tensor,
    router: Router,
    dlogits_TE: torch.Tensor,
) -> None:
    """Fill `dlogits_TE`."""
    tokens, experts = logits_TE.shape
    assert ids_Tk.shape == dweights_Tk.shape == (tokens, router.slots)
    assert dlogits_TE.shape == logits_TE.shape
    assert dweights_Tk.dtype == torch.float32
    sizes = blocks(experts, router.slots)
    route_backward_kernel[(triton.cdiv(tokens, sizes["ROWS"]),)](
        dweights_ptr=dweights_Tk,
        logits_ptr=logits_TE,
        ids_ptr=ids_Tk,
        dlogits_ptr=dlogits_TE,
        T=tokens,
        E=experts,
        logits_stride=logits_TE.stride(0),
        dlogits_stride=dlogits_TE.stride(0),
        scale=router.scale,
        KIND=router.kind,
        NORMALIZE=router.normalize,
        **sizes,
        num_warps=WARPS,
    )
