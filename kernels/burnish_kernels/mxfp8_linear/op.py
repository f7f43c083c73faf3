"""MXFP8 products over a frozen weight: validate, allocate, choose. Triton on GPUs with E4M3, else PyTorch.

With codes q and powers of two p of blocks (`blocks`), and an adapter in 16 bits:

    y  = (p_x q_x) (p_w q_w)ᵀ + (x Aᵀ) (s B)ᵀ        dx = (p_d q_d) (p_w q_w) + (dy s B) A

A row has a power of two for each 32 columns that are summed over, so x and dy are quantized along their own columns.
The weight has one for each tile of 32 x 32: for dx the same codes (`eight_bit_linear.transpose_codes`) and powers are
transposed.

Shapes: T tokens, K columns of the reduction, N outputs, R ranks.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from burnish_kernels.eight_bit_linear.op import FLOATS, validate_product
from burnish_kernels.eight_bit_linear.rows import CODES
from burnish_kernels.eight_bit_linear.tiles import use_eight_bit_kernels
from burnish_kernels.mxfp8_linear import reference
from burnish_kernels.mxfp8_linear.blocks import BLOCK, MxRows, MxWeight
from burnish_kernels.mxfp8_linear.tiles import choose_tile

__all__ = [
    "BLOCK",
    "MxRows",
    "MxWeight",
    "encode_rows",
    "expand_mxfp4",
    "mxfp8_linear",
    "new_weight",
    "powers",
    "quantize_rows",
    "quantize_weight",
    "weight_scale",
]

CHUNK = 1 << 24
"""Values quantized at a time: about 12 bytes of temporary memory each."""

MOST_PLACES = 14
"""Most binary places between the largest scale of a 32 x 32 tile of MXFP4 and another of its rows: 0.5 and 1.5 are then
still multiples of E4M3's smallest number, 2^-9."""


def quantize_rows(x_TK: torch.Tensor, *, out: MxRows | None = None) -> MxRows:
    """Quantize each 32 columns of each row to E4M3 with a power of two.

    A block that holds a NaN or an infinity gives products that are not finite, so that the step is not taken.

    Args:
        x_TK: rows to quantize, fp32, fp16 or bf16; may be strided; 32 divides K.
        out: codes and exponents to write to. Allocated if None.

    Returns:
        The quantized rows.

    Raises:
        ValueError: Shapes or types do not fit.
    """
    if x_TK.ndim != 2 or x_TK.dtype not in FLOATS or (x_TK.shape[1] > 1 and x_TK.stride(1) != 1):
        raise ValueError(f"x must be rows of one of {FLOATS}, not {tuple(x_TK.shape)} {x_TK.dtype}")
    tokens, columns = x_TK.shape
    if out is None:
        codes = torch.empty(tokens, columns, dtype=CODES, device=x_TK.device)
        out = MxRows(codes, torch.empty(tokens, columns // BLOCK, dtype=torch.uint8, device=x_TK.device))
    out.check()
    if out.codes.shape != x_TK.shape:
        raise ValueError(f"out must be {tuple(x_TK.shape)}, not {tuple(out.codes.shape)}")
    if not x_TK.numel():
        return out
    if use_eight_bit_kernels(x_TK):
        from burnish_kernels.mxfp8_linear.kernel import launch_quantize_rows

        launch_quantize_rows(x_TK, out)
        return out
    codes, scale = reference.quantize_rows(x_TK)
    out.codes.copy_(codes)
    out.scale.copy_(scale)
    return out


def new_weight(rows: int, columns: int, device: torch.device | str) -> MxWeight:
    """Allocate uninitialized codes and exponents of a weight `[rows, columns]`.

    Raises:
        ValueError: 32 does not divide both sizes.
    """
    _require_tiles((rows, columns))
    scale = torch.empty(rows // BLOCK, columns // BLOCK, dtype=torch.uint8, device=device)
    return MxWeight(torch.empty(rows, columns, dtype=CODES, device=device), scale)


def quantize_weight(weight_NK: torch.Tensor) -> MxWeight:
    """Quantize each 32 x 32 values of a weight to E4M3 with a power of two; done once, when it is loaded.

    Args:
        weight_NK: weight to quantize, fp32, fp16 or bf16; 32 divides both sizes.

    Raises:
        ValueError: The shape does not fit.
    """
    rows, columns = weight_NK.shape
    made = new_weight(rows, columns, weight_NK.device)
    for own, tiles in _chunks(rows, columns):
        made.codes[own], made.scale[tiles] = reference.quantize_weight(weight_NK[own])
    return made


def weight_scale(weight_NK: torch.Tensor) -> torch.Tensor:
    """Return the exponents `[N / 32, K / 32]` uint8 that `quantize_weight` gives a weight.

    Raises:
        ValueError: The shape does not fit.
    """
    rows, columns = weight_NK.shape
    _require_tiles((rows, columns))
    return torch.cat([reference.weight_scale(weight_NK[own]) for own, _ in _chunks(rows, columns)])


def powers(scale: torch.Tensor) -> torch.Tensor:
    """Return the powers of two of exponents that were made here, fp32; infinity for those of values not finite."""
    return (scale.int() << 23).view(torch.float32)


def encode_rows(rows_RK: torch.Tensor, power: torch.Tensor, first: int) -> torch.Tensor:
    """Return the codes of some rows of a weight, E4M3 `[R, K]`.

    Args:
        rows_RK: values of the rows, fp32, fp16 or bf16.
        power: power of two of each tile of the weight, from `powers`.
        first: number of the first of the rows in the weight.
    """
    own = torch.arange(first, first + len(rows_RK), device=rows_RK.device) // BLOCK
    return (rows_RK.float() / power[own].repeat_interleave(BLOCK, dim=1)).to(CODES)


def expand_mxfp4(blocks: torch.Tensor, scales: torch.Tensor) -> MxWeight:
    """Return an MXFP4 weight as MXFP8 with the same values, to the last bit.

    A tile of 32 x 32 takes the largest scale of its rows, of which 6 becomes 384; the numbers of E2M1 in rows of up to
    14 places less are E4M3 numbers too.

    Args:
        blocks: two E2M1 values in a byte, `[N, K / 32, 16]` uint8, the first in the low nibble; 32 divides N.
        scales: exponents `[N, K / 32]` uint8, at most 254: a block's values count 2^(scale - 127) times.

    Raises:
        ValueError: Shapes or types do not fit, or the scales of a tile are too far apart.
    """
    if scales.ndim != 2 or len(scales) % BLOCK or scales.dtype != torch.uint8:
        raise ValueError(f"scales must be [N, K / 32] uint8 of {BLOCK} rows each, not {tuple(scales.shape)}")
    if blocks.shape != (*scales.shape, BLOCK // 2) or blocks.dtype != torch.uint8:
        raise ValueError(f"blocks must be {(*scales.shape, BLOCK // 2)} uint8, not {tuple(blocks.shape)}")
    codes, scale = reference.expand_mxfp4(blocks, scales)
    places = scale.int().repeat_interleave(BLOCK, dim=0) + reference.FP4_TOP - scales.int()
    if bool(((places > MOST_PLACES) & ((blocks & 0x77) != 0).any(dim=2)).any()):
        raise ValueError(f"rows of a tile are more than {MOST_PLACES} binary places apart, too far for one scale")
    return MxWeight(codes, scale)


def mxfp8_linear(
    x: MxRows,
    weight: MxWeight,
    *,
    narrow_TR: torch.Tensor | None = None,
    adapter_NR: torch.Tensor | None = None,
    dtype: torch.dtype = torch.bfloat16,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute x Wᵀ + narrow adapterᵀ, summed in fp32 and rounded once.

    Args:
        x: quantized rows `[T, K]`: of the input, or of the output's gradient.
        weight: weight `[N, K]`; for the input's gradient the transposed one.
        narrow_TR: input times the adapter's first matrix, of the result's type, rows may be strided; None: no adapter.
        adapter_NR: second matrix of the adapter, of the result's type, any strides: scaled B, or Aᵀ.
        dtype: type of the result, fp16 or bf16; that of `out` if given.
        out: tensor `[T, N]` to write to, rows may be strided. Allocated if None.

    Returns:
        The product `[T, N]`.

    Raises:
        ValueError: Shapes or types do not fit.
    """
    x.check()
    weight.check()
    (tokens, columns), outputs = x.codes.shape, len(weight.codes)
    if weight.codes.shape[1] != columns:
        raise ValueError(f"the weight must be [N, {columns}], not {tuple(weight.codes.shape)}")
    if out is None:
        out = torch.empty(tokens, outputs, dtype=dtype, device=weight.codes.device)
    validate_product(out, (tokens, outputs), narrow_TR, adapter_NR)
    if not out.numel():
        return out
    if not use_eight_bit_kernels(out):
        rows, tiles = (x.codes, x.scale), (weight.codes, weight.scale)
        return out.copy_(reference.mxfp8_linear(rows, tiles, narrow_TR, adapter_NR))
    from burnish_kernels.mxfp8_linear.kernel import launch_mxfp8_linear

    launch_mxfp8_linear(
        x=x,
        weight=weight,
        narrow_TR=narrow_TR,
        adapter_NR=adapter_NR,
        out_TN=out,
        tile=choose_tile(out.device),
    )
    return out


def _require_tiles(shape: tuple[int, int]) -> None:
    if not all(shape) or shape[0] % BLOCK or shape[1] % BLOCK:
        raise ValueError(f"a weight is divided into {BLOCK} x {BLOCK} values, not {shape}")


def _chunks(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """Yield some rows of a weight after the other, and their rows of tiles, so that temporary memory stays small."""
    step = max(1, CHUNK // (BLOCK * columns))
    for first in range(0, rows // BLOCK, step):
        yield slice(first * BLOCK, (first + step) * BLOCK), slice(first, first + step)
