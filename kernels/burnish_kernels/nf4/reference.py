"""NF4 in plain PyTorch: the definition that the kernels are compared with.

Dettmers et al. 2023 (QLoRA, arXiv 2305.14314): the 16 levels are quantiles of a normal distribution, one scale for 64
neighbors of the flattened weight, and the scales themselves, less their mean, in 8 bits with one scale for 256 of them.
The 8-bit map is the dynamic one of Dettmers et al. 2022 (arXiv 2110.02861). Levels, order of operations and rounding
are those of bitsandbytes, so that its files and ours hold the same bytes.

Shapes: N rows, K columns, n = N·K values, b = ceil(n / 64) blocks.
"""

from __future__ import annotations

import torch

BLOCK = 64
NESTED_BLOCK = 256
TILE = 32  # rows and columns that share a scale where a weight is written as E4M3 in tiles

# QLoRA, appendix E, as the float32 numbers that bitsandbytes computes with.
LEVELS = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)

# A block smaller than this is taken for zeros: the reciprocal of its scale would not be finite.
SMALLEST_SCALE = 1e-38


def levels(device: torch.device | str = "cpu") -> torch.Tensor:
    """Return the 16 levels, `[16]` fp32, ascending."""
    return torch.tensor(LEVELS, dtype=torch.float32, device=device)


def dynamic_map() -> torch.Tensor:
    """Return the 256 levels of the signed dynamic 8-bit type, `[256]` fp32, ascending.

    Seven decades; the decade 10^-6 has one level of each sign, each further one twice as many, evenly spaced; and 0, 1.
    """
    found = [0.0, 1.0]
    for decade in range(7):
        edges = torch.linspace(0.1, 1, 2**decade + 1, dtype=torch.float32)
        centers = (edges[:-1] + edges[1:]) / 2.0
        found += (10 ** (decade - 6) * centers).tolist()
        found += (-(10 ** (decade - 6)) * centers).tolist()
    return torch.tensor(sorted(found), dtype=torch.float32)


def quantize_blocks(values_n: torch.Tensor, code_C: torch.Tensor, block: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Find the nearest level of each value over its block's largest magnitude; halfway goes to the smaller level.

    Args:
        values_n: floating-point values `[n]`; the last block may be short.
        code_C: levels `[C]` fp32, ascending, at most 256.
        block: number of values that share a scale.

    Returns:
        Index of the level, `[n]` uint8, and the scales, `[ceil(n / block)]` fp32.
    """
    count = values_n.numel()
    wide = values_n.float()
    if count % block:
        wide = torch.nn.functional.pad(wide, (0, block - count % block))
    blocks = wide.view(-1, block)
    scale = blocks.abs().amax(dim=1)
    # Times the reciprocal, not a division: they differ in the last bit, and bitsandbytes multiplies.
    unit = blocks * (1.0 / scale.clamp(min=SMALLEST_SCALE)).unsqueeze(1)
    middle = (code_C[:-1] + code_C[1:]) / 2
    index = torch.bucketize(unit.clamp_(-1, 1), middle, out_int32=True).to(torch.uint8)
    return index.view(-1)[:count], scale


def pack(index_n: torch.Tensor) -> torch.Tensor:
    """Pack two indices in a byte, `[ceil(n / 2)]` uint8, the first in the high nibble; a missing one is level 0."""
    if index_n.numel() % 2:
        index_n = torch.nn.functional.pad(index_n, (0, 1), value=LEVELS.index(0.0))
    return (index_n[::2] << 4) | index_n[1::2]


def dequantize_scales(
    absmax_q_b: torch.Tensor, nested_absmax_c: torch.Tensor, code_256: torch.Tensor, offset_1: torch.Tensor
) -> torch.Tensor:
    """Return the blocks' scales, `[b]` fp32, from 8 bits: the product is rounded, then the mean added and rounded."""
    nested = nested_absmax_c.repeat_interleave(NESTED_BLOCK)[: absmax_q_b.numel()]
    return code_256.index_select(0, absmax_q_b.int()) * nested + offset_1


def dequantize(packed: torch.Tensor, scale_b: torch.Tensor, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Return the values, `[count]`: level times scale in fp32, rounded once to `dtype`."""
    level = levels(packed.device)
    pair = torch.stack([level.repeat_interleave(16), level.repeat(16)], dim=1)  # of each byte
    values = pair.index_select(0, packed.int()).view(-1)[:count]
    whole = count // BLOCK * BLOCK
    values[:whole].view(-1, BLOCK).mul_(scale_b[: whole // BLOCK].unsqueeze(1))
    values[whole:] *= scale_b[whole // BLOCK :]
    return values.to(dtype)
