"""QK norm and rotary embedding: validate, allocate, choose. Triton on CUDA (or in its interpreter), else the reference.

`forward` and `backward` know nothing of autograd; `rope` is the autograd operation built on them.

Tokens may be strided, heads and their values are contiguous, but for queries with gates between them.
Shapes: T tokens, N query heads, M key heads (and as many of values), D head size, S numbers from one query head to the
next (usually D), C = N·S + 2M·D, P positions, R rotary size (at most D; the rest of each head passes through).
"""

from __future__ import annotations

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.rope import reference

MAX_HEAD_DIM = 512


def forward(
    qkv_TC: torch.Tensor,
    table_PR: torch.Tensor | None,
    index_T: torch.Tensor | None,
    *,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    q_weight_D: torch.Tensor | None = None,
    k_weight_D: torch.Tensor | None = None,
    eps: float = 1e-6,
    one_plus_weight: bool = False,
    interleaved: bool = False,
    query_spacing: int | None = None,
    q_out: torch.Tensor | None = None,
    k_out: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalize each query and key head, if weights are given, and rotate it by its token's position.

    Args:
        qkv_TC: stacked heads `[T, at least N·S + M·D]`, fp32, fp16 or bf16: query heads, then key heads; others (of
            values) are not read, nor what is between the query heads.
        table_PR: table `[P, R]` fp32: cosines of each position, then sines, any scaling multiplied in. None: no
            rotation.
        index_T: table row of each token, `[T]` int32.
        num_heads: number of query heads N.
        num_kv_heads: number of key heads M; 0: there are none, as where keys are another layer's.
        head_dim: size of a head D.
        q_weight_D: frozen weight `[D]` of the queries' norm; None: no norm.
        k_weight_D: frozen weight `[D]` of the keys' norm; given exactly when the queries' is.
        eps: number added to the mean square.
        one_plus_weight: whether to scale by 1 + weight and round once (Gemma).
        interleaved: whether a pair that turns are neighboring numbers (GLM) rather than numbers R/2 apart.
        query_spacing: numbers from one query head of qkv to the next, S; None: D.
        q_out: tensor `[T, N, D]` to write the queries to; may be their own part of qkv.
        k_out: tensor `[T, M, D]` to write the keys to; may be their own part of qkv.

    Returns:
        Queries `[T, N, D]` and keys `[T, M, D]`.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit.
    """
    _check_table(qkv_TC, table_PR, index_T, head_dim)
    _check_weights(qkv_TC, q_weight_D, k_weight_D, head_dim)
    q_in_TND, k_in_TMD = _parts("qkv", qkv_TC, num_heads, num_kv_heads, head_dim, query_spacing)
    if q_out is None:
        q_out = qkv_TC.new_empty(q_in_TND.shape)
    if k_out is None:
        k_out = qkv_TC.new_empty(k_in_TMD.shape)
    _check_heads("q_out", q_out, q_in_TND)
    _check_heads("k_out", k_out, k_in_TMD)
    if use_kernels(qkv_TC):
        from burnish_kernels.rope.launch_kernels import launch_forward

        if qkv_TC.shape[0]:
            launch_forward(
                q_in_TND=q_in_TND,
                k_in_TMD=k_in_TMD,
                table_PR=table_PR,
                index_T=index_T,
                q_weight_D=q_weight_D,
                k_weight_D=k_weight_D,
                q_TND=q_out,
                k_TMD=k_out,
                eps=eps,
                one_plus_weight=one_plus_weight,
                interleaved=interleaved,
            )
        return q_out, k_out
    # Queries and keys are rotated alike: in one go, as short passes mostly wait for operations to start.
    if q_weight_D is None and query_spacing in {None, head_dim}:
        both_TXD = qkv_TC[:, : (num_heads + num_kv_heads) * head_dim].unflatten(1, (-1, head_dim))
        turned_TXD = reference.forward(both_TXD, table_PR, index_T, interleaved=interleaved)
        q_out.copy_(turned_TXD[:, :num_heads])
        k_out.copy_(turned_TXD[:, num_heads:])
        return q_out, k_out
    for in_TXD, weight_D, out_TXD in ((q_in_TND, q_weight_D, q_out), (k_in_TMD, k_weight_D, k_out)):
        out_TXD.copy_(
            reference.forward(
                in_TXD,
                table_PR,
                index_T,
                weight_D=weight_D,
                eps=eps,
                one_plus_weight=one_plus_weight,
                interleaved=interleaved,
            )
        )
    return q_out, k_out


def backward(
    dq_TND: torch.Tensor,
    dk_TMD: torch.Tensor,
    qkv_TC: torch.Tensor | None,
    table_PR: torch.Tensor | None,
    index_T: torch.Tensor | None,
    *,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    q_weight_D: torch.Tensor | None = None,
    k_weight_D: torch.Tensor | None = None,
    eps: float = 1e-6,
    one_plus_weight: bool = False,
    interleaved: bool = False,
    query_spacing: int | None = None,
    dqkv_out: torch.Tensor,
) -> None:
    """Compute the gradient of the query and key parts of qkv, written into `dqkv_out[:, : N * S + M * D]`.

    Args:
        dq_TND: gradient `[T, N, D]` of the queries; may be their own part of `dqkv_out`.
        dk_TMD: gradient `[T, M, D]` of the keys; may be their own part of `dqkv_out`.
        qkv_TC: stacked heads given to `forward`, before the norm. Read only with norm weights, may be None without.
        table_PR: same as in `forward`.
        index_T: same as in `forward`.
        num_heads: number of query heads N.
        num_kv_heads: number of key heads M.
        head_dim: size of a head D.
        q_weight_D: same as in `forward`.
        k_weight_D: same as in `forward`.
        eps: same as in `forward`.
        one_plus_weight: same as in `forward`.
        interleaved: same as in `forward`.
        query_spacing: same as in `forward`, also in `dqkv_out`.
        dqkv_out: tensor `[T, at least N·S + M·D]` to write to; columns between the query heads and behind the keys are
            left alone. May be qkv itself.

    Raises:
        ValueError: Shapes, dtypes or layout do not fit.
    """
    _check_table(dqkv_out, table_PR, index_T, head_dim)
    _check_weights(dqkv_out, q_weight_D, k_weight_D, head_dim)
    q_out_TND, k_out_TMD = _parts("dqkv_out", dqkv_out, num_heads, num_kv_heads, head_dim, query_spacing)
    _check_heads("dq", dq_TND, q_out_TND)
    _check_heads("dk", dk_TMD, k_out_TMD)
    q_in_TND = k_in_TMD = None
    if q_weight_D is not None:
        if qkv_TC is None:
            raise ValueError("the gradient of a norm needs qkv")
        q_in_TND, k_in_TMD = _parts("qkv", qkv_TC, num_heads, num_kv_heads, head_dim, query_spacing)
        if q_in_TND.shape != q_out_TND.shape or q_in_TND.dtype != q_out_TND.dtype:
            raise ValueError(f"qkv must have {len(dqkv_out)} tokens of {dqkv_out.dtype}, not {len(qkv_TC)}")
    if use_kernels(dqkv_out):
        from burnish_kernels.rope.launch_kernels import launch_backward

        if dqkv_out.shape[0]:
            launch_backward(
                dq_TND=dq_TND,
                dk_TMD=dk_TMD,
                q_in_TND=q_in_TND,
                k_in_TMD=k_in_TMD,
                table_PR=table_PR,
                index_T=index_T,
                q_weight_D=q_weight_D,
                k_weight_D=k_weight_D,
                q_out_TND=q_out_TND,
                k_out_TMD=k_out_TMD,
                eps=eps,
                one_plus_weight=one_plus_weight,
                interleaved=interleaved,
            )
        return
    for dy_TXD, in_TXD, weight_D, out_TXD in (
        (dq_TND, q_in_TND, q_weight_D, q_out_TND),
        (dk_TMD, k_in_TMD, k_weight_D, k_out_TMD),
    ):
        out_TXD.copy_(
            reference.backward(
                dy_TXD,
                in_TXD,
                table_PR,
                index_T,
                weight_D=weight_D,
                eps=eps,
                one_plus_weight=one_plus_weight,
                interleaved=interleaved,
            )
        )


def _parts(
    name: str, stacked_TC: torch.Tensor, num_heads: int, num_kv_heads: int, head_dim: int, query_spacing: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return views of the query heads and of the key heads."""
    if num_heads < 1 or num_kv_heads < 0 or not 1 <= head_dim <= MAX_HEAD_DIM:
        raise ValueError(
            f"{num_heads} and {num_kv_heads} heads of {head_dim}: at least one query head, all of 1 to {MAX_HEAD_DIM}"
        )
    spacing = head_dim if query_spacing is None else query_spacing
    if spacing < head_dim:
        raise ValueError(f"query heads of {head_dim} cannot lie {spacing} numbers apart")
    first = num_heads * spacing
    width = first + num_kv_heads * head_dim
    if stacked_TC.ndim != 2 or stacked_TC.shape[1] < width or (stacked_TC.numel() and stacked_TC.stride(1) != 1):
        raise ValueError(f"{name} must be [T, {width}] with contiguous rows, not {tuple(stacked_TC.shape)}")
    if stacked_TC.dtype not in {torch.float32, torch.float16, torch.bfloat16} and use_kernels(stacked_TC):
        raise ValueError(f"{name} must be fp32, fp16 or bf16, not {stacked_TC.dtype}")
    return (
        stacked_TC[:, :first].unflatten(1, (num_heads, spacing))[..., :head_dim],
        stacked_TC[:, first:width].unflatten(1, (num_kv_heads, head_dim)),
    )


def _check_heads(name: str, tensor: torch.Tensor, like_TXD: torch.Tensor) -> None:
    if tensor.shape != like_TXD.shape or tensor.dtype != like_TXD.dtype:
        raise ValueError(
            f"{name} must be {tuple(like_TXD.shape)} {like_TXD.dtype}, not {tuple(tensor.shape)} {tensor.dtype}"
        )
    tokens, heads, head_dim = tensor.shape
    if tokens and ((tensor.stride(2) != 1 and head_dim > 1) or (tensor.stride(1) != head_dim and heads > 1)):
        raise ValueError(f"the heads of each token of {name} must be contiguous")


def _check_table(
    like_TC: torch.Tensor, table_PR: torch.Tensor | None, index_T: torch.Tensor | None, head_dim: int
) -> None:
    if (table_PR is None) != (index_T is None):
        raise ValueError("table and index come together")
    if table_PR is None or index_T is None:
        return
    wide = torch.promote_types(like_TC.dtype, torch.float32)
    if table_PR.ndim != 2 or table_PR.dtype not in {torch.float32, wide} or not table_PR.is_contiguous():
        raise ValueError(f"table must be [P, R] fp32, contiguous, not {tuple(table_PR.shape)} {table_PR.dtype}")
    if table_PR.shape[1] % 2 or not 2 <= table_PR.shape[1] <= head_dim:
        raise ValueError(f"the table's width must be even and at most {head_dim}, not {table_PR.shape[1]}")
    if index_T.shape != like_TC.shape[:1] or index_T.dtype != torch.int32 or not index_T.is_contiguous():
        raise ValueError(
            f"index must be [{like_TC.shape[0]}] int32, contiguous, not {tuple(index_T.shape)} {index_T.dtype}"
        )


def _check_weights(
    like_TC: torch.Tensor, q_weight_D: torch.Tensor | None, k_weight_D: torch.Tensor | None, head_dim: int
) -> None:
    if (q_weight_D is None) != (k_weight_D is None):
        raise ValueError("queries and keys are both normalized or neither")
    for name, weight_D in (("q_weight", q_weight_D), ("k_weight", k_weight_D)):
        if weight_D is None:
            continue
        if weight_D.shape != (head_dim,) or weight_D.dtype != like_TC.dtype or not weight_D.is_contiguous():
            raise ValueError(
                f"{name} must be [{head_dim}] {like_TC.dtype}, contiguous, not {tuple(weight_D.shape)} {weight_D.dtype}"
            )
