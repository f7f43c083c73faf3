"""Routing: validate, allocate, choose. Triton on CUDA (or in its interpreter), the reference elsewhere.

A routing is kept and never computed again: where two experts nearly tie, another order of sums would send a token
elsewhere. The selection itself has no gradient; the weights have one to the router's logits.

Shapes: T tokens, E experts, k slots.
"""

from __future__ import annotations

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.moe_route import reference
from burnish_kernels.moe_route.router import Router, RouterKind

__all__ = ["Router", "RouterKind", "backward", "forward"]

MOST_EXPERTS = 1024
KINDS = ("softmax_topk", "topk_softmax", "sigmoid")


def forward(
    logits_TE: torch.Tensor, router: Router, *, bias_E: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose the experts of each token and weigh them.

    Args:
        logits_TE: the router's logits `[T, E]`, fp32, fp16 or bf16, rows may be strided.
        router: how experts are chosen and weighted.
        bias_E: fp32 bias `[E]` on the selection, with a sigmoid router only.

    Returns:
        Experts `[T, k]` int32, best first, and their weights `[T, k]` fp32.

    Raises:
        ValueError: Shapes or types do not fit, or the router is none of these.
    """
    _validate(logits_TE, router)
    tokens, experts = logits_TE.shape
    if bias_E is not None and (
        bias_E.shape != (experts,) or bias_E.dtype != torch.float32 or not bias_E.is_contiguous()
    ):
        raise ValueError(f"the bias must be [{experts}] fp32, not {tuple(bias_E.shape)} {bias_E.dtype}")
    if bias_E is not None and router.kind != "sigmoid":
        raise ValueError(f"only a sigmoid router has a bias on the selection, not {router.kind}")
    if not use_kernels(logits_TE):
        ids_Tk = reference.choose(logits_TE, router, bias_E)
        return ids_Tk, reference.weigh(logits_TE, ids_Tk, router)
    from burnish_kernels.moe_route.kernel import launch_forward

    ids_Tk = torch.empty((tokens, router.slots), dtype=torch.int32, device=logits_TE.device)
    weights_Tk = torch.empty((tokens, router.slots), dtype=torch.float32, device=logits_TE.device)
    if tokens:
        launch_forward(logits_TE, router, bias_E, ids_Tk, weights_Tk)
    return ids_Tk, weights_Tk


def backward(
    dweights_Tk: torch.Tensor,
    logits_TE: torch.Tensor,
    ids_Tk: torch.Tensor,
    router: Router,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute the gradient of the router's logits.

    Args:
        dweights_Tk: gradient `[T, k]` of the weights, fp32.
        logits_TE: logits given to `forward`.
        ids_Tk: experts `[T, k]` int32 that `forward` chose.
        router: same as in `forward`.
        out: tensor `[T, E]` of the logits' type to write to, rows may be strided. Allocated if None.

    Returns:
        The gradient `[T, E]`; zero at experts that no weight depends on.

    Raises:
        ValueError: Shapes or types do not fit.
    """
    _validate(logits_TE, router)
    shape = (logits_TE.shape[0], router.slots)
    if dweights_Tk.shape != shape or not dweights_Tk.is_contiguous():
        raise ValueError(f"dweights must be {shape} and contiguous, not {tuple(dweights_Tk.shape)}")
    if ids_Tk.shape != shape or ids_Tk.dtype != torch.int32 or not ids_Tk.is_contiguous():
        raise ValueError(f"ids must be {shape} int32 and contiguous, not {tuple(ids_Tk.shape)} {ids_Tk.dtype}")
    if out is None:
        out = torch.empty_like(logits_TE, memory_format=torch.contiguous_format)
    if out.shape != logits_TE.shape or out.dtype != logits_TE.dtype or out.stride(1) != 1:
        raise ValueError(f"out must be {tuple(logits_TE.shape)} {logits_TE.dtype}, not {tuple(out.shape)} {out.dtype}")
    if not use_kernels(logits_TE):
        return out.copy_(reference.backward(dweights_Tk, logits_TE, ids_Tk, router))
    from burnish_kernels.moe_route.kernel import launch_backward

    if len(logits_TE):
        launch_backward(dweights_Tk, logits_TE, ids_Tk, router, out)
    return out


def _validate(logits_TE: torch.Tensor, router: Router) -> None:
    if router.kind not in KINDS:
        raise ValueError(f"a router is one of {', '.join(KINDS)}, not {router.kind!r}")
    if logits_TE.ndim != 2 or logits_TE.stride(1) != 1:
        raise ValueError(f"logits must be [T, E] with columns side by side, not {tuple(logits_TE.shape)}")
    if logits_TE.dtype not in {torch.float32, torch.float16, torch.bfloat16} and use_kernels(logits_TE):
        raise ValueError(f"logits must be fp32, fp16 or bf16, not {logits_TE.dtype}")
    if not 1 <= router.slots <= logits_TE.shape[1] <= MOST_EXPERTS:
        raise ValueError(f"a token cannot go to {router.slots} of {logits_TE.shape[1]} experts (most {MOST_EXPERTS})")
