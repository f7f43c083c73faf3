"""Launch the attention kernels; launchers assert and never allocate."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import triton

from burnish_kernels.attention import kernel
from burnish_kernels.dispatch import interpreted

if TYPE_CHECKING:
    from burnish_kernels.attention.config import AttentionConfig, KernelConfig
    from burnish_kernels.attention.documents import Documents

LOG2_E = math.log2(math.e)
MOST_TILES = 65535
"""Largest second dimension of a grid (CUDA C++ Programming Guide, "Compute Capabilities")."""
LAUNCH_OPERATIONS = 16e12
"""Most floating-point operations of a launch: a second at 40 % of 40 TFLOP/s. Windows resets a card whose kernel takes
two ("Timeout Detection and Recovery")."""


def launch_forward(
    *,
    q_TND: torch.Tensor,
    k_TMD: torch.Tensor,
    v_TMD: torch.Tensor,
    o_TND: torch.Tensor,
    lse_NT: torch.Tensor,
    docs: Documents,
    scale: float,
    window: int | None,
    softcap: float | None,
    sinks_N: torch.Tensor | None = None,
    config: AttentionConfig,
) -> None:
    """Fill `o_TND` and `lse_NT`."""
    rows, heads, _ = q_TND.shape
    assert o_TND.shape == q_TND.shape
    assert lse_NT.shape == (heads, rows)
    assert lse_NT.dtype == torch.float32
    constants = compiled_in(q_TND, k_TMD, window, softcap, config.tile_rows, config.forward)
    tiles = docs.tiles_G4[: len(docs.tiles_G4) // 2]
    for part in parts(tiles, rows, q_TND, window, products=2):
        kernel.forward_kernel[(heads // constants["HEADS"], len(part))](
            q_ptr=q_TND,
            k_ptr=k_TMD,
            v_ptr=v_TMD,
            o_ptr=o_TND,
            lse_ptr=lse_NT,
            sinks_ptr=sinks_N,
            start_ptr=docs.start_T,
            tiles_ptr=part,
            T=rows,
            window=window or 0,
            **_factors(scale, softcap),
            **_strides(Q=q_TND, K=k_TMD, V=v_TMD, O=o_TND),
            **constants,
            HAS_SINKS=sinks_N is not None,
            **_resources(config.forward),
        )


def launch_dq(
    *,
    do_TND: torch.Tensor,
    q_TND: torch.Tensor,
    k_TMD: torch.Tensor,
    v_TMD: torch.Tensor,
    o_TND: torch.Tensor,
    lse_NT: torch.Tensor,
    delta_NT: torch.Tensor,
    dq_TND: torch.Tensor,
    docs: Documents,
    scale: float,
    window: int | None,
    softcap: float | None,
    config: AttentionConfig,
) -> None:
    """Fill `dq_TND` and `delta_NT`."""
    rows, heads, _ = q_TND.shape
    assert do_TND.shape == o_TND.shape == dq_TND.shape == q_TND.shape
    assert lse_NT.shape == delta_NT.shape == (heads, rows)
    assert lse_NT.dtype == delta_NT.dtype == torch.float32
    constants = compiled_in(q_TND, k_TMD, window, softcap, config.tile_rows, config.dq)
    tiles = docs.tiles_G4[: len(docs.tiles_G4) // 2]
    for part in parts(tiles, rows, q_TND, window, products=3):
        kernel.dq_kernel[(heads // constants["HEADS"], len(part))](
            q_ptr=q_TND,
            k_ptr=k_TMD,
            v_ptr=v_TMD,
            o_ptr=o_TND,
            do_ptr=do_TND,
            dq_ptr=dq_TND,
            lse_ptr=lse_NT,
            delta_ptr=delta_NT,
            start_ptr=docs.start_T,
            tiles_ptr=part,
            T=rows,
            window=window or 0,
            scale=scale,
            **_factors(scale, softcap),
            **_strides(Q=q_TND, K=k_TMD, V=v_TMD, O=o_TND, DO=do_TND, DQ=dq_TND),
            **constants,
            **_resources(config.dq),
        )


def launch_dkdv(
    *,
    do_TND: torch.Tensor,
    q_TND: torch.Tensor,
    k_TMD: torch.Tensor,
    v_TMD: torch.Tensor,
    lse_NT: torch.Tensor,
    delta_NT: torch.Tensor,
    dk_TMD: torch.Tensor,
    dv_TMD: torch.Tensor,
    docs: Documents,
    scale: float,
    window: int | None,
    softcap: float | None,
    config: AttentionConfig,
) -> None:
    """Fill `dk_TMD` and `dv_TMD`; `launch_dq` must have filled `delta_NT`."""
    rows, heads, _ = q_TND.shape
    assert do_TND.shape == q_TND.shape
    assert dk_TMD.shape == dv_TMD.shape == k_TMD.shape
    assert lse_NT.shape == delta_NT.shape == (heads, rows)
    assert lse_NT.dtype == delta_NT.dtype == torch.float32
    constants = compiled_in(q_TND, k_TMD, window, softcap, config.tile_rows, config.dkdv)
    tiles = docs.tiles_G4[len(docs.tiles_G4) // 2 :]
    for part in parts(tiles, rows, q_TND, window, products=4):
        kernel.dkdv_kernel[(k_TMD.shape[1], len(part))](
            q_ptr=q_TND,
            k_ptr=k_TMD,
            v_ptr=v_TMD,
            do_ptr=do_TND,
            dk_ptr=dk_TMD,
            dv_ptr=dv_TMD,
            lse_ptr=lse_NT,
            delta_ptr=delta_NT,
            end_ptr=docs.end_T,
            tiles_ptr=part,
            T=rows,
            window=window or 0,
            scale=scale,
            **_factors(scale, softcap),
            **_strides(Q=q_TND, K=k_TMD, V=v_TMD, DO=do_TND, DK=dk_TMD, DV=dv_TMD),
            **constants,
            **_resources(config.dkdv),
        )


def parts(
    tiles_G4: torch.Tensor, rows: int, q_TND: torch.Tensor, window: int | None, *, products: int
) -> Iterator[torch.Tensor]:
    """Split the tiles of one kernel into launches that are all short, whatever documents the rows hold.

    Args:
        tiles_G4: tiles, heaviest first: a share of them takes at most twice its share of the time.
        rows: number of rows T.
        q_TND: queries.
        window: same as in `forward`.
        products: number of matrix products that the kernel makes of a pair of blocks.
    """
    visible = rows * min(rows, window or rows) / 2
    operations = 2.0 * products * visible * q_TND.shape[1] * q_TND.shape[2]
    launches = max(math.ceil(2 * operations / LAUNCH_OPERATIONS), 1)
    step = min(-(-len(tiles_G4) // launches), MOST_TILES)
    return (tiles_G4[first : first + step] for first in range(0, len(tiles_G4), step))


def compiled_in(
    q_TND: torch.Tensor,
    k_TMD: torch.Tensor,
    window: int | None,
    softcap: float | None,
    tile_rows: int,
    chosen: KernelConfig,
) -> dict[str, Any]:
    """Return the constants of a kernel, strides aside."""
    group = q_TND.shape[1] // k_TMD.shape[1]
    return {
        "GROUP": group,
        "HEADS": math.gcd(group, chosen.heads),
        "D": q_TND.shape[2],
        "WIDTH": triton.next_power_of_2(q_TND.shape[2]),
        "TILE": tile_rows,
        "BLOCK": chosen.block,
        "BRANCH": chosen.branch,
        "HAS_WINDOW": window is not None,
        "HAS_CAP": softcap is not None,
        "PRECISION": _precision(q_TND.dtype),
    }


def _precision(dtype: torch.dtype) -> str:
    """Return how matrices are multiplied: fp32 never in TF32; 16-bit types have only one way."""
    if interpreted():
        return "interpreted"
    return "ieee" if dtype == torch.float32 else "tf32"


def _factors(scale: float, softcap: float | None) -> dict[str, float]:
    """Return what the kernels multiply scores by, before and after the soft cap."""
    if softcap is None:
        return {"factor": scale * LOG2_E, "cap": 0.0, "cap_factor": 0.0}
    return {"factor": 1.0, "cap": softcap * LOG2_E, "cap_factor": 2.0 * LOG2_E * scale / softcap}


def _strides(**tensors: torch.Tensor) -> dict[str, int]:
    return {f"{name}_STRIDE": tensor.stride(0) for name, tensor in tensors.items()}


def _resources(chosen: KernelConfig) -> dict[str, int | None]:
    return {"num_warps": chosen.warps, "num_stages": chosen.stages, "maxnreg": chosen.registers or None}
