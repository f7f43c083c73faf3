"""Attention within packed documents: validate, allocate, choose. CUDA tensors use the kernels, others `cpu`.

`forward` and `backward` are the plain steps, for callers that write their own backward pass; `attention` is the two as
one autograd operation.
"""

from __future__ import annotations

from typing import Any

import torch

from burnish_kernels.attention import cpu
from burnish_kernels.attention.candidates import tuned_config
from burnish_kernels.attention.config import AttentionConfig, choose_config
from burnish_kernels.attention.documents import Documents
from burnish_kernels.attention.tiles import tile_capacity
from burnish_kernels.dispatch import interpreted, use_kernels

HEAD_DIMS = (16, 512)
"""Smallest and largest head size that the kernels are made for."""

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def tile_rows(head_dim: int, dtype: torch.dtype, device: torch.device | str) -> int:
    """Return the rows of a tile that the kernels want for this head size, dtype and device.

    In a model whose heads differ in size, tiles are those of the largest.
    """
    return choose_config(head_dim, dtype, capability(device)).tile_rows


def capability(device: torch.device | str) -> int | None:
    """Return the compute capability as one number, such as 89; None where kernels are interpreted or not used."""
    device = torch.device(device)
    if device.type != "cuda" or interpreted():
        return None
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor


def forward(
    q_TND: torch.Tensor,
    k_TMD: torch.Tensor,
    v_TMD: torch.Tensor,
    docs: Documents,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks_N: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    lse_out: torch.Tensor | None = None,
    config: AttentionConfig | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Compute causal attention within documents.

    Key j is visible to query i if it is a row of the same document, j <= i and, with a window, i - j < window.

    Args:
        q_TND: queries `[T, N, D]`; any row stride, heads next to each other.
        k_TMD: keys `[T, M, D]`; M divides N.
        v_TMD: values `[T, M, D]`.
        docs: documents of the T rows.
        scale: factor of the scores, above zero.
        window: number of keys that a query sees, itself included; None: all before it.
        softcap: bound of the scores, which become `softcap * tanh(score / softcap)`.
        sinks_N: logit of each query head's sink `[N]` fp32, a key more that every query sees and that has no value;
            None: no sinks. They are frozen.
        out: tensor `[T, N, D]` to write the output to; may be a view with another row stride.
        lse_out: tensor `[N, T]` to write the second result to, contiguous.
        config: block sizes that replace the chosen ones.

    Returns:
        `o_TND`, and `lse_NT`: the natural logarithm of the sum of exponentials of each row's scores, fp32.

    Raises:
        ValueError: Shapes, dtypes, layouts or options do not fit.
    """
    _validate(q_TND, k_TMD, v_TMD, docs, scale, window, softcap)
    _validate_sinks(sinks_N, q_TND)
    o_TND = torch.empty_like(q_TND, memory_format=torch.contiguous_format) if out is None else out
    _validate_like("out", o_TND, q_TND)
    lse_NT = lse_out
    if lse_NT is None:
        wide = torch.promote_types(q_TND.dtype, torch.float32)
        lse_NT = torch.empty(q_TND.shape[1], q_TND.shape[0], dtype=wide, device=q_TND.device)
    _validate_lse(lse_NT, q_TND)
    if not use_kernels(q_TND):
        cpu.forward(
            *(q_TND, k_TMD, v_TMD, o_TND, lse_NT, docs.start_T),
            scale=scale,
            window=window,
            softcap=softcap,
            sinks_N=sinks_N,
        )
        return o_TND, lse_NT
    from burnish_kernels.attention.launch_kernels import launch_forward

    if q_TND.shape[0]:
        launch_forward(
            q_TND=q_TND,
            k_TMD=k_TMD,
            v_TMD=v_TMD,
            o_TND=o_TND,
            lse_NT=lse_NT,
            docs=docs,
            scale=scale,
            window=window,
            softcap=softcap,
            sinks_N=sinks_N,
            config=_config(config, q_TND, k_TMD, docs),
        )
    return o_TND, lse_NT


def backward(
    do_TND: torch.Tensor,
    q_TND: torch.Tensor,
    k_TMD: torch.Tensor,
    v_TMD: torch.Tensor,
    o_TND: torch.Tensor,
    lse_NT: torch.Tensor,
    docs: Documents,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks_N: torch.Tensor | None = None,
    dq_out: torch.Tensor | None = None,
    dk_out: torch.Tensor | None = None,
    dv_out: torch.Tensor | None = None,
    config: AttentionConfig | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute the gradients of queries, keys and values.

    Args:
        do_TND: gradient `[T, N, D]` of the output.
        q_TND: same as in `forward`.
        k_TMD: same as in `forward`.
        v_TMD: same as in `forward`.
        o_TND: output of `forward`.
        lse_NT: log-sum-exp that `forward` returned.
        docs: same as in `forward`.
        scale: same as in `forward`.
        window: same as in `forward`.
        softcap: same as in `forward`.
        sinks_N: same as in `forward`.
        dq_out: tensor `[T, N, D]` to write dQ to; may be a view with another row stride, but must not overlap an input.
        dk_out: tensor `[T, M, D]` to write dK to, under the same conditions.
        dv_out: tensor `[T, M, D]` to write dV to, under the same conditions.
        config: block sizes that replace the chosen ones.

    Returns:
        dQ, dK and dV. The same inputs give the same bits.

    Raises:
        ValueError: Shapes, dtypes, layouts or options do not fit.
    """
    _validate(q_TND, k_TMD, v_TMD, docs, scale, window, softcap)
    _validate_sinks(sinks_N, q_TND)
    dq_TND, dk_TMD, dv_TMD = (
        torch.empty_like(like, memory_format=torch.contiguous_format) if given is None else given
        for given, like in ((dq_out, q_TND), (dk_out, k_TMD), (dv_out, v_TMD))
    )
    for name, tensor, like in (
        ("do", do_TND, q_TND),
        ("o", o_TND, q_TND),
        ("dq_out", dq_TND, q_TND),
        ("dk_out", dk_TMD, k_TMD),
        ("dv_out", dv_TMD, v_TMD),
    ):
        _validate_like(name, tensor, like)
    _validate_lse(lse_NT, q_TND)
    if not q_TND.shape[0]:
        return dq_TND, dk_TMD, dv_TMD
    if not use_kernels(q_TND):
        cpu.backward(
            do_TND=do_TND,
            q_TND=q_TND,
            k_TMD=k_TMD,
            v_TMD=v_TMD,
            o_TND=o_TND,
            lse_NT=lse_NT,
            dq_TND=dq_TND,
            dk_TMD=dk_TMD,
            dv_TMD=dv_TMD,
            start_T=docs.start_T,
            scale=scale,
            window=window,
            softcap=softcap,
            sinks_N=sinks_N,
        )
        return dq_TND, dk_TMD, dv_TMD
    from burnish_kernels.attention.launch_kernels import launch_dkdv, launch_dq

    chosen = _config(config, q_TND, k_TMD, docs)
    delta_NT = torch.empty_like(lse_NT)
    shared: dict[str, Any] = {
        "do_TND": do_TND,
        "q_TND": q_TND,
        "k_TMD": k_TMD,
        "v_TMD": v_TMD,
        "lse_NT": lse_NT,
        "delta_NT": delta_NT,
        "docs": docs,
        "scale": scale,
        "window": window,
        "softcap": softcap,
        "config": chosen,
    }
    launch_dq(o_TND=o_TND, dq_TND=dq_TND, **shared)
    launch_dkdv(dk_TMD=dk_TMD, dv_TMD=dv_TMD, **shared)
    return dq_TND, dk_TMD, dv_TMD


def attention(
    q_TND: torch.Tensor,
    k_TMD: torch.Tensor,
    v_TMD: torch.Tensor,
    docs: Documents,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks_N: torch.Tensor | None = None,
    config: AttentionConfig | None = None,
) -> torch.Tensor:
    """Compute causal attention within documents as one autograd operation; see `forward`."""
    return _Attention.apply(q_TND, k_TMD, v_TMD, docs, scale, window, softcap, sinks_N, config)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q_TND: torch.Tensor,
        k_TMD: torch.Tensor,
        v_TMD: torch.Tensor,
        docs: Documents,
        scale: float,
        window: int | None,
        softcap: float | None,
        sinks_N: torch.Tensor | None,
        config: AttentionConfig | None,
    ) -> torch.Tensor:
        ctx.options = {"scale": scale, "window": window, "softcap": softcap, "sinks_N": sinks_N, "config": config}
        o_TND, lse_NT = forward(q_TND, k_TMD, v_TMD, docs, **ctx.options)
        ctx.save_for_backward(q_TND, k_TMD, v_TMD, o_TND, lse_NT)
        ctx.docs = docs
        return o_TND

    @staticmethod
    def backward(ctx: Any, do_TND: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        q_TND, k_TMD, v_TMD, o_TND, lse_NT = ctx.saved_tensors
        gradients = backward(do_TND.contiguous(), q_TND, k_TMD, v_TMD, o_TND, lse_NT, ctx.docs, **ctx.options)
        return *gradients, None, None, None, None, None, None


def _config(
    given: AttentionConfig | None, q_TND: torch.Tensor, k_TMD: torch.Tensor, docs: Documents
) -> AttentionConfig:
    group, device = q_TND.shape[1] // k_TMD.shape[1], q_TND.device
    config = given or tuned_config(q_TND.shape[2], q_TND.dtype, capability(device), group, device)
    if given is None and config.tile_rows != docs.tile_rows:
        config = choose_config(q_TND.shape[2], q_TND.dtype, capability(device), group, docs.tile_rows)
    if config.tile_rows != docs.tile_rows:
        raise ValueError(f"the documents were cut into tiles of {docs.tile_rows} rows; this needs {config.tile_rows}")
    return config


def _validate(
    q_TND: torch.Tensor,
    k_TMD: torch.Tensor,
    v_TMD: torch.Tensor,
    docs: Documents,
    scale: float,
    window: int | None,
    softcap: float | None,
) -> None:
    if q_TND.ndim != 3 or k_TMD.ndim != 3 or q_TND.shape[::2] != k_TMD.shape[::2] or k_TMD.shape != v_TMD.shape:
        shapes = [tuple(tensor.shape) for tensor in (q_TND, k_TMD, v_TMD)]
        raise ValueError(f"q must be [T, N, D], k and v [T, M, D], not {shapes}")
    rows, heads, width = q_TND.shape
    if k_TMD.shape[1] < 1 or heads % k_TMD.shape[1]:
        raise ValueError(f"{heads} query heads cannot share {k_TMD.shape[1]} key heads evenly")
    if use_kernels(q_TND) and not HEAD_DIMS[0] <= width <= HEAD_DIMS[1]:
        raise ValueError(f"the head size must be {HEAD_DIMS[0]} to {HEAD_DIMS[1]}, not {width}")
    if use_kernels(q_TND) and q_TND.dtype not in DTYPES:
        raise ValueError(f"attention is for fp32, fp16 and bf16, not {q_TND.dtype}")
    for name, tensor in (("q", q_TND), ("k", k_TMD), ("v", v_TMD)):
        _validate_like(name, tensor, q_TND, same_heads=False)
    if docs.start_T.shape != (rows,) or docs.end_T.shape != (rows,):
        raise ValueError(f"the documents describe {tuple(docs.start_T.shape)} rows, not {rows}")
    if docs.tiles_G4.shape != (tile_capacity(rows, docs.tile_rows), 4):
        raise ValueError(f"tiles of {tuple(docs.tiles_G4.shape)} are not those of {rows} rows")
    if scale <= 0:
        raise ValueError(f"the scale must be above zero, not {scale}")
    if window is not None and window < 1:
        raise ValueError(f"a window of {window} hides every key")
    if softcap is not None and softcap <= 0:
        raise ValueError(f"the soft cap must be above zero, not {softcap}")


def _validate_sinks(sinks_N: torch.Tensor | None, q_TND: torch.Tensor) -> None:
    if sinks_N is None:
        return
    wide = torch.promote_types(q_TND.dtype, torch.float32)
    if sinks_N.shape != (q_TND.shape[1],) or sinks_N.dtype != wide or not sinks_N.is_contiguous():
        raise ValueError(f"sinks must be [{q_TND.shape[1]}] {wide}, not {tuple(sinks_N.shape)} {sinks_N.dtype}")


def _validate_lse(lse_NT: torch.Tensor, q_TND: torch.Tensor) -> None:
    if lse_NT.shape != (q_TND.shape[1], q_TND.shape[0]) or not lse_NT.is_contiguous():
        raise ValueError(f"lse must be [N, T] and contiguous, not {tuple(lse_NT.shape)}")
    wide = torch.promote_types(q_TND.dtype, torch.float32)
    if lse_NT.dtype != wide or lse_NT.device != q_TND.device:
        raise ValueError(f"lse must be {wide} on {q_TND.device}, not {lse_NT.dtype} on {lse_NT.device}")


def _validate_like(name: str, tensor: torch.Tensor, like: torch.Tensor, same_heads: bool = True) -> None:
    if same_heads and tensor.shape != like.shape:
        raise ValueError(f"{name} must be {tuple(like.shape)}, not {tuple(tensor.shape)}")
    if tensor.dtype != like.dtype or tensor.device != like.device:
        raise ValueError(f"{name} must be {like.dtype} on {like.device}, not {tensor.dtype} on {tensor.device}")
    apart = tensor.shape[1] > 1 and tensor.stride(1) != tensor.shape[2]  # the stride of one head means nothing
    if tensor.numel() and (apart or tensor.stride(2) != 1):
        raise ValueError(f"the heads of {name} must lie next to each other, strides (any, D, 1), not {tensor.stride()}")
