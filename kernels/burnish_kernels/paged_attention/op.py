"""Attention of each reply's newest token over its pages: validate, allocate, choose.

Keys and values of all replies lie in pages of `PAGE` tokens, and a table names the pages of each row. There is no
gradient.

Shapes: B rows (replies), N query heads, M key heads, D head size, P pages, L tokens of a page.
"""

from __future__ import annotations

import torch

from burnish_kernels.dispatch import multiprocessors, use_kernels
from burnish_kernels.paged_attention import reference
from burnish_kernels.paged_attention.config import PAGE

__all__ = ["PAGE", "forward", "splits"]

HEAD_DIMS = (16, 512)
"""Smallest and largest head size that the kernels are made for."""
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_PROGRAMS_PER_PROCESSOR = 4
_MOST_SPLITS = 64


def splits(rows: int, kv_heads: int, pages: int | None, processors: int) -> int:
    """Return among how many programs the keys of a row are split.

    Args:
        rows: number of rows.
        kv_heads: number of key heads.
        pages: most pages of a row; None: as many as there may be.
        processors: multiprocessors of the device.
    """
    wanted = _PROGRAMS_PER_PROCESSOR * processors // (rows * kv_heads)
    return max(1, min(wanted, _MOST_SPLITS if pages is None else pages, _MOST_SPLITS))


def forward(
    q_BND: torch.Tensor,
    k_BMD: torch.Tensor,
    v_BMD: torch.Tensor,
    keys_PMLD: torch.Tensor,
    values_PMLD: torch.Tensor,
    table_BP: torch.Tensor,
    lengths_B: torch.Tensor,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks_N: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    split: int | None = None,
) -> torch.Tensor:
    """Store the newest key and value of each row, then attend from its newest token to all it sees.

    Args:
        q_BND: queries `[B, N, D]`; any row stride, heads next to each other.
        k_BMD: newest keys `[B, M, D]`, likewise; M divides N.
        v_BMD: newest values `[B, M, D]`.
        keys_PMLD: pages of keys `[P, M, L, D]`, contiguous; changed.
        values_PMLD: pages of values, likewise.
        table_BP: int32 number of each page of a row, in order; rows may be strided.
        lengths_B: int32 tokens of each row, the newest included; 0: the row rests, its output is zero or undefined.
        scale: factor of the scores, above zero.
        window: number of tokens that a token sees, itself included; None: all before it.
        softcap: bound of the scores, which become `softcap * tanh(score / softcap)`.
        sinks_N: logit of each query head's sink `[N]` fp32; None: no sinks.
        out: tensor `[B, N, D]` to write to; any row stride.
        split: number of programs that share the keys of a row; None: chosen by the device.

    Returns:
        The output `[B, N, D]`.

    Raises:
        ValueError: Shapes, dtypes, layouts or options do not fit.
    """
    out_BND = torch.empty_like(q_BND, memory_format=torch.contiguous_format) if out is None else out
    _validate(q_BND, k_BMD, v_BMD, keys_PMLD, values_PMLD, out_BND)
    rows = len(q_BND)
    if table_BP.dtype != torch.int32 or table_BP.ndim != 2 or len(table_BP) != rows or table_BP.stride(1) != 1:
        raise ValueError(f"the table must be [{rows}, pages] int32, not {tuple(table_BP.shape)} {table_BP.dtype}")
    if lengths_B.dtype != torch.int32 or lengths_B.shape != (rows,) or not lengths_B.is_contiguous():
        raise ValueError(f"lengths must be [{rows}] int32, not {tuple(lengths_B.shape)} {lengths_B.dtype}")
    if scale <= 0 or (window is not None and window < 1) or (softcap is not None and softcap <= 0):
        raise ValueError(f"scale {scale}, window {window} and soft cap {softcap} must be above zero")
    wide = torch.promote_types(q_BND.dtype, torch.float32)
    if sinks_N is not None and (sinks_N.shape != q_BND.shape[1:2] or sinks_N.dtype != wide):
        raise ValueError(f"sinks must be [{q_BND.shape[1]}] {wide}, not {tuple(sinks_N.shape)} {sinks_N.dtype}")
    rules = {"scale": scale, "window": window, "softcap": softcap, "sinks_N": sinks_N}
    if not use_kernels(q_BND):
        for new, pool in ((k_BMD, keys_PMLD), (v_BMD, values_PMLD)):
            reference.store(new, pool, table_BP, lengths_B)
        found = reference.paged_attention(q_BND, keys_PMLD, values_PMLD, table_BP, lengths_B, **rules)  # type: ignore[arg-type]  # the rules are those of the reference
        return out_BND.copy_(found)
    from burnish_kernels.paged_attention.kernel import launch

    if not rows:
        return out_BND
    if split is None:
        split = splits(rows, k_BMD.shape[1], table_BP.shape[1], multiprocessors(q_BND.device))
    parts = sums = None
    if split > 1:
        parts = torch.empty((split, *q_BND.shape), dtype=torch.float32, device=q_BND.device)
        sums = torch.empty((split, *q_BND.shape[:2], 2), dtype=torch.float32, device=q_BND.device)
    launch(
        q_BND=q_BND,
        k_BMD=k_BMD,
        v_BMD=v_BMD,
        keys_PMLD=keys_PMLD,
        values_PMLD=values_PMLD,
        table_BP=table_BP,
        lengths_B=lengths_B,
        out_BND=out_BND,
        parts_SBND=parts,
        sums_SBN2=sums,
        **rules,  # type: ignore[arg-type]
    )
    return out_BND


def _validate(
    q_BND: torch.Tensor,
    k_BMD: torch.Tensor,
    v_BMD: torch.Tensor,
    keys_PMLD: torch.Tensor,
    values_PMLD: torch.Tensor,
    out_BND: torch.Tensor,
) -> None:
    if q_BND.ndim != 3 or keys_PMLD.ndim != 4 or keys_PMLD.shape != values_PMLD.shape:
        raise ValueError(f"q is [B, N, D], pages are [P, M, L, D], not {tuple(q_BND.shape)}, {tuple(keys_PMLD.shape)}")
    (rows, heads, width), (_, kv_heads, page, _) = q_BND.shape, keys_PMLD.shape
    if k_BMD.shape != (rows, kv_heads, width) or v_BMD.shape != k_BMD.shape or keys_PMLD.shape[3] != width:
        raise ValueError(f"keys must be {(rows, kv_heads, width)}, not {tuple(k_BMD.shape)}, {tuple(v_BMD.shape)}")
    if not kv_heads or heads % kv_heads:
        raise ValueError(f"{heads} query heads cannot share {kv_heads} key heads evenly")
    if out_BND.shape != q_BND.shape:
        raise ValueError(f"out must be {tuple(q_BND.shape)}, not {tuple(out_BND.shape)}")
    tensors = {"q": q_BND, "k": k_BMD, "v": v_BMD, "keys": keys_PMLD, "values": values_PMLD, "out": out_BND}
    for name, tensor in tensors.items():
        if tensor.dtype != q_BND.dtype or tensor.device != q_BND.device:
            raise ValueError(f"{name} must be {q_BND.dtype} on {q_BND.device}, not {tensor.dtype} on {tensor.device}")
        apart = tensor.ndim == 3 and tensor.shape[1] > 1 and tensor.stride(1) != width
        if tensor.numel() and (apart or tensor.stride(-1) != 1):
            raise ValueError(f"the heads of {name} must lie next to each other, not strided {tensor.stride()}")
    if not keys_PMLD.is_contiguous() or not values_PMLD.is_contiguous():
        raise ValueError("pages must be contiguous")
    if use_kernels(q_BND):
        if not HEAD_DIMS[0] <= width <= HEAD_DIMS[1]:
            raise ValueError(f"the head size must be {HEAD_DIMS[0]} to {HEAD_DIMS[1]}, not {width}")
        if q_BND.dtype not in DTYPES or page % 16 or page & (page - 1):
            raise ValueError(f"pages are of 16, 32, 64 … tokens in fp32, fp16 or bf16, not {page} in {q_BND.dtype}")
