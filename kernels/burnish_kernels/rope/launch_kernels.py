"""Launch the kernels of QK norm and rotary embedding; launchers assert and never allocate."""

from __future__ import annotations

from typing import Any

import torch
import triton

from burnish_kernels.kernel_overlap import launch_options
from burnish_kernels.rope import kernel

TILE = 1024  # pairs a program: 8 a thread, so 16 bytes of each half
WARPS = 4


def launch_forward(
    *,
    q_in_TND: torch.Tensor,
    k_in_TMD: torch.Tensor,
    table_PR: torch.Tensor | None,
    index_T: torch.Tensor | None,
    q_weight_D: torch.Tensor | None,
    k_weight_D: torch.Tensor | None,
    q_TND: torch.Tensor,
    k_TMD: torch.Tensor,
    eps: float,
    one_plus_weight: bool,
    interleaved: bool,
) -> None:
    """Fill `q_TND` and `k_TMD`."""
    assert q_in_TND.shape == q_TND.shape
    assert k_in_TMD.shape == k_TMD.shape
    assert _strides_agree(q_in_TND, k_in_TMD)
    constants = configuration(
        q_TND.shape[1], k_TMD.shape[1], q_TND.shape[2], 0 if table_PR is None else table_PR.shape[1],
        norm=q_weight_D is not None, in_place=_same(q_in_TND, q_TND) and _same(k_in_TMD, k_TMD),
        query_spacing=_spacing(q_in_TND),
    )  # fmt: skip
    if not constants["HALF"] and not constants["WRITE_REST"]:
        return
    kernel.rope_forward_kernel[_grid(q_TND.shape[0], constants)](
        q_in_ptr=q_in_TND,
        k_in_ptr=k_in_TMD,
        table_ptr=table_PR,
        index_ptr=index_T,
        q_weight_ptr=q_weight_D,
        k_weight_ptr=k_weight_D,
        q_ptr=q_TND,
        k_ptr=k_TMD,
        T=q_TND.shape[0],
        in_stride=q_in_TND.stride(0),
        q_stride=q_TND.stride(0),
        k_stride=k_TMD.stride(0),
        eps=eps,
        INTERLEAVED=interleaved,
        ONE_PLUS=one_plus_weight,
        **constants,
        num_warps=WARPS,
        **launch_options(q_TND, q_TND.shape[0]),
    )


def launch_backward(
    *,
    dq_TND: torch.Tensor,
    dk_TMD: torch.Tensor,
    q_in_TND: torch.Tensor | None,
    k_in_TMD: torch.Tensor | None,
    table_PR: torch.Tensor | None,
    index_T: torch.Tensor | None,
    q_weight_D: torch.Tensor | None,
    k_weight_D: torch.Tensor | None,
    q_out_TND: torch.Tensor,
    k_out_TMD: torch.Tensor,
    eps: float,
    one_plus_weight: bool,
    interleaved: bool,
) -> None:
    """Fill `q_out_TND` and `k_out_TMD`, the gradients before rotation and norm."""
    assert dq_TND.shape == q_out_TND.shape
    assert dk_TMD.shape == k_out_TMD.shape
    assert _strides_agree(q_out_TND, k_out_TMD)
    q_in_TND, k_in_TMD = q_out_TND if q_in_TND is None else q_in_TND, k_out_TMD if k_in_TMD is None else k_in_TMD
    assert _strides_agree(q_in_TND, k_in_TMD)
    constants = configuration(
        dq_TND.shape[1], dk_TMD.shape[1], dq_TND.shape[2], 0 if table_PR is None else table_PR.shape[1],
        norm=q_weight_D is not None, in_place=_same(dq_TND, q_out_TND) and _same(dk_TMD, k_out_TMD),
        query_spacing=_spacing(q_out_TND),
    )  # fmt: skip
    if not constants["HALF"] and not constants["WRITE_REST"]:
        return
    kernel.rope_backward_kernel[_grid(dq_TND.shape[0], constants)](
        dq_ptr=dq_TND,
        dk_ptr=dk_TMD,
        q_in_ptr=q_in_TND,
        k_in_ptr=k_in_TMD,
        table_ptr=table_PR,
        index_ptr=index_T,
        q_weight_ptr=q_weight_D,
        k_weight_ptr=k_weight_D,
        q_out_ptr=q_out_TND,
        k_out_ptr=k_out_TMD,
        T=dq_TND.shape[0],
        dq_stride=dq_TND.stride(0),
        dk_stride=dk_TMD.stride(0),
        in_stride=q_in_TND.stride(0),
        out_stride=q_out_TND.stride(0),
        eps=eps,
        INTERLEAVED=interleaved,
        ONE_PLUS=one_plus_weight,
        **constants,
        num_warps=WARPS,
    )


def configuration(
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    rotary_dim: int,
    *,
    norm: bool,
    in_place: bool,
    query_spacing: int | None = None,
) -> dict[str, Any]:
    """Return the constants of a launch except INTERLEAVED and ONE_PLUS: the same for every dtype and GPU."""
    half, rest = rotary_dim // 2, head_dim - rotary_dim
    half_block = triton.next_power_of_2(max(1, half))
    rest_block = triton.next_power_of_2(max(1, rest))
    return {
        "N": num_heads,
        "M": num_kv_heads,
        "Q_SPACING": query_spacing or head_dim,
        "D": head_dim,
        "HALF": half,
        "NORM": norm,
        "WRITE_REST": rest > 0 and (norm or not in_place),  # what passes through unchanged is there already
        "ROWS": max(1, TILE // max(half_block, rest_block // 2)),
        "HALF_BLOCK": half_block,
        "REST_BLOCK": rest_block,
    }


def _grid(tokens: int, constants: dict[str, Any]) -> tuple[int]:
    rows = constants["ROWS"]
    return (triton.cdiv(tokens * constants["N"], rows) + triton.cdiv(tokens * constants["M"], rows),)


def _spacing(q_TND: torch.Tensor) -> int:
    return q_TND.stride(1) if q_TND.shape[1] > 1 else q_TND.shape[2]  # views of a single head have any stride


def _strides_agree(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Compare the distances between tokens; views of a single token, and those without heads, have any."""
    return one.shape[0] == 1 or not other.shape[1] or one.stride(0) == other.stride(0)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.data_ptr() == other.data_ptr() and one.stride() == other.stride()
