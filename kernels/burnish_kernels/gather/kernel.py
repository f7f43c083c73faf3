"""Rows of a table in Triton: one program a row, in blocks of columns. Launchers assert and never allocate.

Offsets are int64: V times the table's row stride may pass 2^31, and so may T times that of the output.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

MOST_COLUMNS = 4096  # a block's columns: 32 a thread, all requested before any is waited for, because the link is slow
WARPS = 4


@triton.jit
def gather_kernel(
    table_ptr,  # [V, H]
    ids_ptr,  # [T]
    out_ptr,  # [T, H]
    H,
    table_stride,
    out_stride,
    BLOCK: tl.constexpr,
):
    """Copy one block of columns of one row."""
    row = tl.program_id(0).to(tl.int64)
    source = table_ptr + tl.load(ids_ptr + row).to(tl.int64) * table_stride
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < H
    tl.store(out_ptr + row * out_stride + column, tl.load(source + column, mask=inside), mask=inside)


def block_columns(columns: int) -> int:
    """Return the columns that one program copies: a power of two."""
    return min(MOST_COLUMNS, triton.next_power_of_2(columns))


def launch_gather(table_VH: torch.Tensor, ids_T: torch.Tensor, out_TH: torch.Tensor) -> None:
    """Fill `out_TH`."""
    rows, columns = out_TH.shape
    assert ids_T.shape == (rows,)
    assert table_VH.shape[1] == columns
    assert ids_T.stride(0) == 1
    block = block_columns(columns)
    gather_kernel[(rows, triton.cdiv(columns, block))](
        table_ptr=table_VH,
        ids_ptr=ids_T,
        out_ptr=out_TH,
        H=columns,
        table_stride=table_VH.stride(0),
        out_stride=out_TH.stride(0),
        BLOCK=block,
        num_warps=WARPS,
    )
