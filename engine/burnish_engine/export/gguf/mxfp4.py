"""Turn MXFP4 as safetensors hold it into GGUF's, bit for bit: the same codes and exponents in another order.

A block of 32 weights is one exponent (E8M0) and 32 codes (E2M1). gpt-oss's files hold neighbors in one byte, the first
in its low bits, and the exponents in a tensor of their own. GGUF's block (`block_mxfp4`, ggml-common.h) is the exponent
and then 16 bytes, of which byte i has weight i in its low and weight i + 16 in its high bits.
"""

from __future__ import annotations

from typing import Final

import torch

BLOCK, BLOCK_BYTES = 32, 17
_HALF: Final = BLOCK // 2


def repack(blocks: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Reorder a matrix's codes.

    Args:
        blocks: codes [rows, columns / 32, 16], the first of two neighbors in the low bits, uint8.
        scales: exponents [rows, columns / 32], uint8.

    Returns:
        Bytes of GGUF's rows [rows, columns / 32 * 17], uint8.
    """
    codes = torch.stack([blocks & 15, blocks >> 4], dim=-1).flatten(-2)
    packed = codes[..., :_HALF] | codes[..., _HALF:] << 4
    return torch.cat([scales[..., None], packed], dim=-1).flatten(1)
