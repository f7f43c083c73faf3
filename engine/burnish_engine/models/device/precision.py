"""Make torch compute in the precision that was asked for, and in no other."""

from __future__ import annotations

import torch

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Name in a recipe to what the model computes in."""


def exact_products(*, tf32: bool = False) -> None:
    """Make matrix products accumulate in fp32, and fp32 stay fp32.

    Torch's defaults allow lower precision outside matrix products: convolutions use TF32, and partial sums of split
    products are added in 16 bits. All of these are process-wide switches.

    Args:
        tf32: whether to allow fp32 products in TF32 (10 bits of mantissa).
    """
    # Sets more than allow_tf32 does: with "medium", as some libraries leave it, CPUs multiply fp32 in bf16.
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = tf32
    matmul = torch.backends.cuda.matmul
    matmul.allow_bf16_reduced_precision_reduction = False
    matmul.allow_fp16_reduced_precision_reduction = False
