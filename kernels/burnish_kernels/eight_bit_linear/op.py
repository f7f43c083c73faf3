"""Products of 8-bit operands over a frozen weight: validate, allocate, choose.

Triton on GPUs that multiply such codes, E4M3 or INT8, else PyTorch.

With rows quantized to codes q and scales s (`quantize_rows`), and an adapter in 16 bits:

    y  = s_x q_x (s_w q_w)ᵀ + (x Aᵀ) (s B)ᵀ        dx = s_d q_d q_w + (dy s B) A

For dx the scales of W's rows are multiplied into dy before it is quantized, `quantize_rows(dy, factor_K=s_w)`, and the
weight is the same codes transposed, `transpose_codes(q_w)`: one payload serves both directions, rounded once.

Rows of X and W may be rotated by blocks of columns before they are quantized, which leaves y as it is: numbers that are
far above their neighbors spread over a block, and the row's scale leaves more levels to the others (QuaRot, Ashkboos et
al. 2024, arXiv 2404.00456). R is orthogonal and symmetric, so that dx = (s_d q_d q_w) R + (dy s B) A, where q_w are
codes of W R; the product's own kernel multiplies with R. It rounds s_d q_d q_w to 16 bits before, so that the result is
rounded twice, and in L2 √2 times as far from the exact one as what is rounded once.

Norm and gated activation write codes and scales beside their rows (`codes_out`), of which a program of theirs has all.
Rows that are rotated are quantized afterwards, by `quantize_rows`. A program of attention has some heads of a row, and
the gradients of query, key and value come from several kernels: those rows too are quantized afterwards. So is what
`swiglu.adapted` writes, whose programs have more rows than the cache holds; of its gradient it finds the scales, and
`projected.op.project_codes` makes the codes where it is read.

Shapes: T tokens, K columns of the reduction, N outputs, R ranks.
"""

from __future__ import annotations

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.eight_bit_linear import reference
from burnish_kernels.eight_bit_linear.rows import CODES, INT8, LARGEST, EightBitRows
from burnish_kernels.eight_bit_linear.tiles import UNALIGNED, EightBitTile, choose_tile, use_eight_bit_kernels

__all__ = [
    "CODES",
    "INT8",
    "LARGEST",
    "EightBitRows",
    "eight_bit_linear",
    "new_rows",
    "quantize_rows",
    "transpose_codes",
    "writes_codes",
]

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
OUTPUTS = (torch.float16, torch.bfloat16)

MOST_COLUMNS = (2**31 - 1) // 127**2
"""Most columns of a product of INT8, whose sums are in int32."""


def quantize_rows(
    x_TK: torch.Tensor,
    *,
    factor_K: torch.Tensor | None = None,
    codes: torch.dtype = CODES,
    rotation: int = 0,
    out: EightBitRows | None = None,
) -> EightBitRows:
    """Quantize each row to codes with one scale, its largest magnitude over 448 (E4M3) or 127; 1 for a row of zeros.

    A row that holds a NaN or an infinity gives products that are not finite, so that the step is not taken.

    Args:
        x_TK: rows to quantize, fp32, fp16 or bf16; may be strided.
        factor_K: factor of each column `[K]` fp32, multiplied before; None: none.
        codes: type of the codes, `CODES` (E4M3) or `INT8`; that of `out` if given.
        rotation: columns of a block that is rotated before, 16, 32 or 64 (`reference.rotation_of`); 0: none. Not with
            factors.
        out: codes and scales to write to. Allocated if None.

    Returns:
        The quantized rows.

    Raises:
        ValueError: Shapes or types do not fit.
    """
    if x_TK.ndim != 2 or x_TK.dtype not in FLOATS or (x_TK.shape[1] > 1 and x_TK.stride(1) != 1):
        raise ValueError(f"x must be rows of one of {FLOATS}, not {tuple(x_TK.shape)} {x_TK.dtype}")
    tokens, columns = x_TK.shape
    if factor_K is not None:
        _require_vector("factor", factor_K, columns)
    if rotation:
        if factor_K is not None:
            raise ValueError("rows that are rotated have no factors")
        reference.check_rotation(rotation, columns)
    if out is None:
        out = new_rows(tokens, columns, x_TK.device, codes)
    _require_codes(out, tokens, columns)
    if not x_TK.numel():
        out.scale.fill_(1.0)
    elif use_eight_bit_kernels(x_TK, out.codes.dtype):
        from burnish_kernels.eight_bit_linear.quantize import kernel

        if rotation:
            kernel.launch_quantize_rotated(x_TK, rotation, out)
        else:
            kernel.launch_quantize_rows(x_TK, factor_K, out)
    else:
        made, scale = reference.quantize_rows(x_TK, factor_K, out.codes.dtype, rotation)
        out.codes.copy_(made)
        out.scale.copy_(scale)
    return out


def new_rows(rows: int, columns: int, device: torch.device | str, codes: torch.dtype = CODES) -> EightBitRows:
    """Allocate uninitialized codes, of the type given, and scales of a matrix `[rows, columns]`."""
    made = torch.empty(rows, columns, dtype=codes, device=device)
    return EightBitRows(made, torch.empty(rows, dtype=torch.float32, device=device))


def writes_codes(out: EightBitRows | None, x_TK: torch.Tensor, factor_K: torch.Tensor | None = None) -> bool:
    """Return whether a kernel that makes rows like `x_TK` is to quantize them as well.

    Not where no codes are wanted, nor on GPUs that do not multiply them, where `quantize_rows` does it afterwards.

    Args:
        out: codes and scales that are wanted; None: none.
        x_TK: a tensor of the rows' shape and device.
        factor_K: factor of each column `[K]` fp32; None: none.

    Raises:
        ValueError: Shapes or types do not fit.
    """
    if out is None:
        return False
    tokens, columns = x_TK.shape
    _require_codes(out, tokens, columns)
    if factor_K is not None:
        _require_vector("factor", factor_K, columns)
    return use_eight_bit_kernels(x_TK, out.codes.dtype)


def transpose_codes(codes_NK: torch.Tensor, out_KN: torch.Tensor) -> torch.Tensor:
    """Transpose a matrix of bytes; a product that reads codes across their rows would be slower than this detour.

    Args:
        codes_NK: codes, or any numbers of one byte; rows may be strided.
        out_KN: memory of the same type to write to; rows may be strided.

    Returns:
        The given memory.

    Raises:
        ValueError: Shapes or types do not fit.
    """
    if codes_NK.ndim != 2 or codes_NK.element_size() != 1 or codes_NK.stride(1) != 1:
        raise ValueError(f"codes must be rows of bytes, not {tuple(codes_NK.shape)} {codes_NK.dtype}")
    rows, columns = codes_NK.shape
    if out_KN.shape != (columns, rows) or out_KN.dtype != codes_NK.dtype or out_KN.stride(1) != 1:
        raise ValueError(f"out must be {(columns, rows)} {codes_NK.dtype}, not {tuple(out_KN.shape)} {out_KN.dtype}")
    if not codes_NK.numel():
        return out_KN
    if use_kernels(codes_NK):
        from burnish_kernels.eight_bit_linear.quantize.kernel import launch_transpose

        launch_transpose(codes_NK, out_KN)
        return out_KN
    return out_KN.copy_(codes_NK.t())


def eight_bit_linear(
    x: EightBitRows,
    weight_NK: torch.Tensor,
    *,
    scale_N: torch.Tensor | None = None,
    narrow_TR: torch.Tensor | None = None,
    adapter_NR: torch.Tensor | None = None,
    rotation: int = 0,
    dtype: torch.dtype = torch.bfloat16,
    out: torch.Tensor | None = None,
    tile: EightBitTile | None = None,
) -> torch.Tensor:
    """Compute (x Wᵀ) scales R + narrow adapterᵀ, summed in fp32 and rounded once; codes of INT8 in int32, exactly.

    With a rotation R the first summand is rounded to the result's type before it is rotated.

    Args:
        x: quantized rows `[T, K]`: of the input, or of the output's gradient with W's scales folded in.
        weight_NK: codes of the weight `[N, K]`, of the type of x, rows may be strided; for the input's gradient the
            transposed ones.
        scale_N: scale of each row of the weight, fp32; None: none, as for the input's gradient.
        narrow_TR: input times the adapter's first matrix, of the result's type, rows may be strided; None: no adapter.
        adapter_NR: second matrix of the adapter, of the result's type, any strides: scaled B, or Aᵀ.
        rotation: outputs of a block that is rotated, 16, 32 or 64 (`reference.rotation_of`); 0: none.
        dtype: type of the result, fp16 or bf16; that of `out` if given.
        out: tensor `[T, N]` to write to, rows may be strided. Allocated if None.
        tile: configuration of the kernel; None: the one for the device.

    Returns:
        The product `[T, N]`.

    Raises:
        ValueError: Shapes or types do not fit.
    """
    x.check()
    tokens, columns = x.codes.shape
    codes = x.codes.dtype
    if weight_NK.ndim != 2 or weight_NK.dtype != codes or weight_NK.shape[1] != columns:
        raise ValueError(f"the weight must be [N, {columns}] {codes}, not {tuple(weight_NK.shape)} {weight_NK.dtype}")
    if columns > 1 and weight_NK.stride(1) != 1:
        raise ValueError(f"a row of the weight must lie side by side, not strided {weight_NK.stride()}")
    if codes == INT8 and columns > MOST_COLUMNS:
        raise ValueError(f"sums of {columns:,} products of INT8 might not fit int32; at most {MOST_COLUMNS:,}")
    outputs = len(weight_NK)
    if scale_N is not None:
        _require_vector("scale", scale_N, outputs)
    if rotation:
        reference.check_rotation(rotation, outputs)
    if out is None:
        out = torch.empty(tokens, outputs, dtype=dtype, device=weight_NK.device)
    validate_product(out, (tokens, outputs), narrow_TR, adapter_NR)
    if not out.numel():
        return out
    if not use_eight_bit_kernels(out, codes):
        operands = (x.codes, x.scale, weight_NK, scale_N, narrow_TR, adapter_NR)
        return out.copy_(reference.eight_bit_linear(*operands, rotation=rotation, result=out.dtype))
    from burnish_kernels.eight_bit_linear.kernel import EightBitProduct, launch_eight_bit_linear

    tile = tile or choose_tile(out.device, codes, columns, rotated=rotation > 0)
    product = EightBitProduct(x, weight_NK, scale_N, narrow_TR, adapter_NR, rotation, out, tile)
    if tile.persistent:
        from burnish_kernels.eight_bit_linear.persistent.kernel import (
            fits_copy_engine,
            launch_eight_bit_linear_persistent,
        )

        if fits_copy_engine(x.codes, weight_NK, out):
            launch_eight_bit_linear_persistent(product)
            return out
        product = product._replace(tile=UNALIGNED)
    launch_eight_bit_linear(product)
    return out


def _require_codes(out: EightBitRows, tokens: int, columns: int) -> None:
    out.check()
    if out.codes.shape != (tokens, columns):
        raise ValueError(f"out must be {(tokens, columns)}, not {tuple(out.codes.shape)}")


def _require_vector(name: str, vector: torch.Tensor, size: int) -> None:
    if vector.shape != (size,) or vector.dtype != torch.float32 or not vector.is_contiguous():
        raise ValueError(f"{name} must be [{size}] fp32, not {tuple(vector.shape)} {vector.dtype}")


def validate_product(
    out: torch.Tensor, shape: tuple[int, int], narrow_TR: torch.Tensor | None, adapter_NR: torch.Tensor | None
) -> None:
    """Check the result and the adapter of a product of 8-bit operands.

    Args:
        out: tensor `[T, N]` that is written to.
        shape: shape that it must have.
        narrow_TR: input times the adapter's first matrix; None: no adapter.
        adapter_NR: second matrix of the adapter.

    Raises:
        ValueError: Shapes or types do not fit.
    """
    if out.shape != shape or out.dtype not in OUTPUTS or (shape[1] > 1 and out.stride(1) != 1):
        raise ValueError(f"out must be {shape}, one of {OUTPUTS}, not {tuple(out.shape)} {out.dtype}")
    if narrow_TR is None and adapter_NR is None:
        return
    if narrow_TR is None or adapter_NR is None:
        raise ValueError("an adapter needs both its narrow rows and its matrix")
    (tokens, outputs), ranks, dtype = shape, narrow_TR.shape[-1], out.dtype
    if narrow_TR.shape != (tokens, ranks) or narrow_TR.dtype != dtype or (ranks > 1 and narrow_TR.stride(1) != 1):
        raise ValueError(f"narrow must be [{tokens}, R] {dtype}, not {tuple(narrow_TR.shape)} {narrow_TR.dtype}")
    if adapter_NR.shape != (outputs, ranks) or adapter_NR.dtype != dtype:
        raise ValueError(f"the adapter must be {(outputs, ranks)} {dtype}, not {tuple(adapter_NR.shape)}")
