"""Attention without the kernels: document after document, by PyTorch's fused CPU operations where they fit.

The fused operations never hold a matrix of scores and take a third to a fifth of the reference's time. They know
neither soft caps, sinks nor windows: documents that need one, and other devices, take the reference. 16-bit tensors are
computed in fp32 and rounded once, as in the reference: natively, gradients would be rounded after each block of rows,
and short documents would take several times as long.

Shapes: T rows, S rows of one document, N query heads, M key heads (N = G M), D head size.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import TypeAlias

import torch

from burnish_kernels.attention import reference

Three: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Queries, keys and values, or their gradients."""


def forward(
    q_TND: torch.Tensor,
    k_TMD: torch.Tensor,
    v_TMD: torch.Tensor,
    o_TND: torch.Tensor,
    lse_NT: torch.Tensor,
    start_T: torch.Tensor,
    *,
    scale: float,
    window: int | None,
    softcap: float | None,
    sinks_N: torch.Tensor | None = None,
) -> None:
    """Fill `o_TND` and `lse_NT`; see `op.forward`."""
    for rows in _documents(start_T):
        inputs = q_TND[rows], k_TMD[rows], v_TMD[rows]
        o_SND, lse_NS = o_TND[rows], lse_NT[:, rows]
        if sinks_N is None and _fits(inputs[0], window, softcap):
            _fused(inputs, o_SND, lse_NS, scale)
            continue
        found_SND, found_NS = reference.attention(
            *inputs, start_T[rows] - rows.start, scale=scale, window=window, softcap=softcap, sinks_N=sinks_N
        )
        o_SND.copy_(found_SND)
        lse_NS.copy_(found_NS)


def backward(
    do_TND: torch.Tensor,
    q_TND: torch.Tensor,
    k_TMD: torch.Tensor,
    v_TMD: torch.Tensor,
    o_TND: torch.Tensor,
    lse_NT: torch.Tensor,
    dq_TND: torch.Tensor,
    dk_TMD: torch.Tensor,
    dv_TMD: torch.Tensor,
    start_T: torch.Tensor,
    *,
    scale: float,
    window: int | None,
    softcap: float | None,
    sinks_N: torch.Tensor | None = None,
) -> None:
    """Fill `dq_TND`, `dk_TMD` and `dv_TMD`; see `op.backward`."""
    for rows in _documents(start_T):
        do_SND, inputs = do_TND[rows], (q_TND[rows], k_TMD[rows], v_TMD[rows])
        gradients = dq_TND[rows], dk_TMD[rows], dv_TMD[rows]
        if sinks_N is None and _fits(do_SND, window, softcap):
            _fused_gradients(do_SND, inputs, o_TND[rows], lse_NT[:, rows], gradients, scale)
            continue
        leaves = _leaves(inputs)
        with torch.enable_grad():
            again_SND, _ = reference.attention(
                *leaves, start_T[rows] - rows.start, scale=scale, window=window, softcap=softcap, sinks_N=sinks_N
            )
        for gradient, found in zip(gradients, torch.autograd.grad(again_SND, leaves, do_SND), strict=True):
            gradient.copy_(found)


def _documents(start_T: torch.Tensor) -> Iterator[slice]:
    """Yield the rows of each document."""
    edges = [*torch.unique_consecutive(start_T).tolist(), len(start_T)] if len(start_T) else []
    return itertools.starmap(slice, itertools.pairwise(edges))


def _fits(q_SND: torch.Tensor, window: int | None, softcap: float | None) -> bool:
    whole = window is None or window >= len(q_SND)
    return q_SND.is_cpu and whole and softcap is None and is_available()


@functools.cache
def is_available() -> bool:
    """Return whether this PyTorch has the fused operations in the form used here, which is not documented."""
    with torch.inference_mode(False):  # a caller's mode would forbid the reference's gradients
        numbers = torch.linspace(0.0, 99.0, 5 * 12 * 8, dtype=torch.float32, device="cpu").sin().view(5, 12, 8)
        do, q, k, v = numbers.split((4, 4, 2, 2), dim=1)
        leaves = _leaves((q, k, v))
        with torch.enable_grad():
            o, lse = reference.attention(*leaves, torch.zeros(5, dtype=torch.int32, device="cpu"), scale=0.5)
            product = (o * do).sum()  # given a gradient, autograd imports SymPy, which takes half a second
        exact = [o.detach(), lse.detach(), *torch.autograd.grad(product, leaves)]
        found = [torch.empty_like(tensor) for tensor in exact]
        try:
            _fused((q, k, v), found[0], found[1], 0.5)
            _fused_gradients(do, (q, k, v), exact[0], exact[1], (found[2], found[3], found[4]), 0.5)
        except (AttributeError, RuntimeError, TypeError, ValueError):
            return False
        return all(torch.allclose(*pair, rtol=1e-3, atol=1e-3) for pair in zip(found, exact, strict=True))


def _fused(inputs: Three, o_SND: torch.Tensor, lse_NS: torch.Tensor, scale: float) -> None:
    """Fill output and log-sum-exp of one document."""
    kv_heads = inputs[1].shape[1]
    o_MGSD, lse_MGS = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        *_grouped(inputs), dropout_p=0.0, is_causal=True, scale=scale
    )
    _by_group(o_SND, kv_heads).copy_(o_MGSD)
    lse_NS.copy_(lse_MGS.flatten(0, 1))


def _fused_gradients(
    do_SND: torch.Tensor,
    inputs: Three,
    o_SND: torch.Tensor,
    lse_NS: torch.Tensor,
    gradients: Three,
    scale: float,
) -> None:
    """Fill the gradients of one document's queries, keys and values."""
    kv_heads = inputs[1].shape[1]
    dq_MGSD, dk_MGSD, dv_MGSD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        _by_group(_wide(do_SND), kv_heads),
        *_grouped(inputs),
        _by_group(_wide(o_SND), kv_heads),
        lse_NS.unflatten(0, (kv_heads, -1)),
        dropout_p=0.0,
        is_causal=True,
        scale=scale,
    )
    _by_group(gradients[0], kv_heads).copy_(dq_MGSD)
    gradients[1].copy_(dk_MGSD.sum(1).transpose(0, 1))
    gradients[2].copy_(dv_MGSD.sum(1).transpose(0, 1))


def _grouped(inputs: Three) -> Three:
    """Return queries, keys and values `[M, G, S, D]`; a group's keys and values share memory."""
    q_MGSD, k_M1SD, v_M1SD = (_by_group(_wide(tensor), inputs[1].shape[1]) for tensor in inputs)
    return q_MGSD, k_M1SD.expand(q_MGSD.shape), v_M1SD.expand(q_MGSD.shape)


def _leaves(inputs: Three) -> Three:
    q, k, v = (tensor.detach().requires_grad_() for tensor in inputs)
    return q, k, v


def _by_group(x_SXD: torch.Tensor, kv_heads: int) -> torch.Tensor:
    """Return a view `[M, X / M, S, D]`."""
    return x_SXD.unflatten(1, (kv_heads, -1)).permute(1, 2, 0, 3)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
