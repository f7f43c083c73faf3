"""NF4 weights: quantize, dequantize, also to 8-bit codes, paste a LoRA's matrices. Validate, allocate, launch.

There is no gradient: a quantized weight is frozen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.eight_bit_linear.reference import check_rotation, encode, rotate, row_scale
from burnish_kernels.eight_bit_linear.rows import CODES, LARGEST_OF
from burnish_kernels.eight_bit_linear.tiles import use_eight_bit_kernels
from burnish_kernels.nf4 import reference
from burnish_kernels.nf4.reference import BLOCK, NESTED_BLOCK, TILE
from burnish_kernels.nf4.state import Nf4, empty, from_bitsandbytes

__all__ = [
    "Nf4",
    "dequantize",
    "dequantize_stack",
    "eight_bit_codes",
    "eight_bit_row_scale",
    "empty",
    "from_bitsandbytes",
    "paste",
    "quantize",
]

FLOATS = (torch.float32, torch.float16, torch.bfloat16)

# Values quantized at a time: about 16 bytes of temporary memory each. Small ones stay in a processor's cache.
CHUNK = {"cuda": 1 << 24, "cpu": 1 << 18}


def quantize(weight_NK: torch.Tensor, *, double: bool = True) -> Nf4:
    """Quantize a weight where it lies, byte for byte as bitsandbytes does with blocks of 64.

    Args:
        weight_NK: weight `[N, K]`, fp32, fp16 or bf16.
        double: whether to quantize the scales as well (`compress_statistics`).

    Raises:
        ValueError: Not a matrix of one of these dtypes.
    """
    if weight_NK.ndim != 2 or weight_NK.dtype not in FLOATS or not weight_NK.numel():
        raise ValueError(f"weight must be a matrix of floats, not {tuple(weight_NK.shape)} {weight_NK.dtype}")
    rows, columns = weight_NK.shape
    flat = weight_NK.detach().reshape(-1)
    level = reference.levels(flat.device)
    packed = torch.empty(-(flat.numel() // -2), dtype=torch.uint8, device=flat.device)
    scale = torch.empty(-(flat.numel() // -BLOCK), dtype=torch.float32, device=flat.device)
    chunk = CHUNK["cpu" if flat.device.type == "cpu" else "cuda"]
    for start in range(0, flat.numel(), chunk):
        index, part = reference.quantize_blocks(flat[start : start + chunk], level, BLOCK)
        packed[start // 2 : (start + chunk) // 2] = reference.pack(index)
        scale[start // BLOCK : (start + chunk) // BLOCK] = part
    if not double:
        return Nf4(packed, (rows, columns), absmax=scale)
    code = reference.dynamic_map().to(flat.device)
    offset = scale.mean()
    absmax_q, nested = reference.quantize_blocks(scale - offset, code, NESTED_BLOCK)
    return Nf4(packed, (rows, columns), absmax_q=absmax_q, nested_absmax=nested, code256=code, offset=offset.reshape(1))


def dequantize(weight: Nf4, *, dtype: torch.dtype, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return the weight's values, `[N, K]`: level x (8-bit level x nested scale + offset) in fp32, rounded once.

    Args:
        weight: quantized weight.
        dtype: dtype of the result.
        out: tensor to write to; rows may be strided, columns not. Allocated if None.

    Raises:
        ValueError: The tensors do not fit one another.
    """
    weight.check()
    if dtype not in FLOATS:
        raise ValueError(f"dtype must be one of {FLOATS}, not {dtype}")
    if out is None:
        out = torch.empty(weight.shape, dtype=dtype, device=weight.device)
    if out.shape != weight.shape or out.dtype != dtype or out.device != weight.device or out.stride(1) != 1:
        raise ValueError(
            f"out must be {weight.shape} {dtype} on {weight.device} with its columns side by side, "
            f"not {tuple(out.shape)} {out.dtype} on {out.device} with strides {out.stride()}"
        )
    if use_kernels(weight.packed):
        from burnish_kernels.nf4.kernel import launch_dequantize

        launch_dequantize(weight, out)
    else:
        for rows, values in _row_chunks(weight, dtype):
            out[rows] = values
    return out


def dequantize_stack(parts: Sequence[Nf4 | torch.Tensor], out: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Dequantize weights one under another, such as q, k and v; published checkpoints mix NF4 and 16-bit ones.

    Args:
        parts: quantized weights and plain `[N_i, K]` ones, top first.
        out: tensor `[sum of N_i, K]` to write to, rows may be strided.
        dtype: dtype of the result.

    Raises:
        ValueError: The parts do not fill `out`.
    """
    if any(len(part.shape) != 2 or part.shape[1] != out.shape[1] for part in parts):
        raise ValueError(f"parts must have {out.shape[1]} columns, not {[tuple(part.shape) for part in parts]}")
    if sum(part.shape[0] for part in parts) != out.shape[0] or out.dtype != dtype:
        raise ValueError(f"{[tuple(part.shape) for part in parts]} do not make {tuple(out.shape)} {out.dtype}")
    first = 0
    for part in parts:
        rows_NK = out[first : first + part.shape[0]]
        if isinstance(part, Nf4):
            dequantize(part, dtype=dtype, out=rows_NK)
        else:
            rows_NK.copy_(part)
        first += part.shape[0]
    return out


def eight_bit_row_scale(weight: Nf4, codes: torch.dtype = CODES, *, rotation: int = 0) -> torch.Tensor:
    """Return the scale of each row in 8 bits, `[N]` fp32: that of `eight_bit_linear.quantize_rows` for the same values.

    Args:
        weight: quantized weight.
        codes: type of the codes, `CODES` (E4M3) or `INT8`.
        rotation: columns of a block that is rotated before; 0: none.

    Raises:
        ValueError: The tensors do not fit one another.
    """
    weight.check()
    largest = torch.empty(weight.shape[0], dtype=torch.float32, device=weight.device)
    for rows, values in _row_chunks(weight, torch.float32):
        largest[rows] = (rotate(values, rotation) if rotation else values).abs_().amax(dim=1)
    return row_scale(largest, codes)


def eight_bit_codes(
    weight: Nf4,
    scale: torch.Tensor,
    out: torch.Tensor,
    *,
    transposed: bool = False,
    first_row: int = 0,
    rotation: int = 0,
) -> torch.Tensor:
    """Return the weight in E4M3 or INT8, as the memory given is: the fp32 value over its scale, rounded once.

    Args:
        weight: quantized weight.
        scale: scale of each row `[N]` fp32, as `eight_bit_row_scale` makes them; or of each 32 x 32 values of a larger
            weight `[tiles, K / 32]` fp32, of which this one is some rows.
        out: memory to write to, E4M3 or INT8 `[N, K]`, or `[K, N]` if transposed; rows may be strided, so that weights
            that lie one under another fill parts of one.
        transposed: whether the transposed weight is wanted, as for the input's gradient.
        first_row: number of the first row in the larger weight.
        rotation: columns of a block that is rotated before, as for the scales; 0: none. Not with scales of tiles.

    Returns:
        The given memory.

    Raises:
        ValueError: The tensors do not fit one another.
    """
    weight.check()
    rows, columns = weight.shape
    wanted = (columns, rows) if transposed else (rows, columns)
    if out.shape != wanted or out.dtype not in LARGEST_OF or out.device != weight.device or out.stride(1) != 1:
        raise ValueError(f"out must be {wanted} codes on {weight.device}, not {tuple(out.shape)} {out.dtype}")
    tiled = scale.ndim == 2
    fits = scale.shape == (rows,)
    if tiled:
        fits = columns == TILE * scale.shape[1] and 0 <= first_row <= TILE * len(scale) - rows
    if not fits or scale.dtype != torch.float32 or not scale.is_contiguous():
        raise ValueError(f"scales must be [{rows}] or of tiles, fp32, not {tuple(scale.shape)} {scale.dtype}")
    if rotation:
        check_rotation(rotation, columns)
        if tiled:
            raise ValueError("weights with scales of tiles are not rotated")
    if use_eight_bit_kernels(weight.packed, out.dtype):
        from burnish_kernels.nf4.kernel import launch_encode, whole_words

        if whole_words(weight):
            launch_encode(weight, scale, out, transposed=transposed, first_row=first_row, rotation=rotation)
            return out
    out_NK = out.t() if transposed else out
    for chunk, values in _row_chunks(weight, torch.float32):
        if tiled:
            own = torch.arange(first_row + chunk.start, first_row + chunk.start + len(values), device=scale.device)
            tiles = scale[own // TILE].repeat_interleave(TILE, dim=1)
            out_NK[chunk] = encode(values / tiles, torch.ones(len(values), device=scale.device), out.dtype)
        else:
            own = rotate(values, rotation) if rotation else values
            out_NK[chunk] = encode(own, scale[chunk], out.dtype)
    return out


def paste(buffer: torch.Tensor, rows: int, columns: int, a_RK: torch.Tensor, sb_NR: torch.Tensor) -> None:
    """Write a LoRA's matrices around the weight: A under it, scaled B beside it; the corner is left as it is.

    Args:
        buffer: matrix `[N + R, K + R]`, rows may be strided.
        rows: number of rows N of the weight in the buffer's top left.
        columns: number of columns K of the weight.
        a_RK: stacked A `[R, K]`, any strides.
        sb_NR: scaled B `[N, R]`, any strides.

    Raises:
        ValueError: The sizes or dtypes do not fit.
    """
    rank = a_RK.shape[0]
    if buffer.shape != (rows + rank, columns + rank) or a_RK.shape != (rank, columns) or sb_NR.shape != (rows, rank):
        raise ValueError(
            f"A {tuple(a_RK.shape)} and B {tuple(sb_NR.shape)} do not fit around [{rows}, {columns}] "
            f"in {tuple(buffer.shape)}"
        )
    if not buffer.dtype == a_RK.dtype == sb_NR.dtype:
        raise ValueError(f"dtypes differ: {buffer.dtype}, A {a_RK.dtype}, B {sb_NR.dtype}")
    if buffer.stride(1) != 1:
        raise ValueError(f"the buffer's columns must be side by side, not {buffer.stride()}")
    if use_kernels(buffer):
        from burnish_kernels.nf4.kernel import launch_paste

        launch_paste(buffer, a_RK, sb_NR)
    else:
        buffer[rows:, :columns] = a_RK
        buffer[:rows, columns:] = sb_NR


def _row_chunks(weight: Nf4, dtype: torch.dtype) -> Iterator[tuple[slice, torch.Tensor]]:
    """Run the reference on a few rows at a time: whole blocks, so that temporary memory stays small."""
    rows, columns = weight.shape
    if weight.absmax_q is None:
        scale = weight.absmax
    else:
        scale = reference.dequantize_scales(weight.absmax_q, weight.nested_absmax, weight.code256, weight.offset)
    assert scale is not None
    unit = BLOCK // math.gcd(BLOCK, columns)  # fewest rows that hold whole blocks
    chunk = CHUNK["cpu" if weight.device.type == "cpu" else "cuda"]
    step = max(1, chunk // (unit * columns)) * unit
    for first in range(0, rows, step):
        count = min(step, rows - first) * columns
        start = first * columns
        part = weight.packed[start // 2 : -((start + count) // -2)]
        values = reference.dequantize(part, scale[start // BLOCK : -((start + count) // -BLOCK)], count, dtype)
        yield slice(first, first + step), values.view(-1, columns)
