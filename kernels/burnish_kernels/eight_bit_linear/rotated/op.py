"""Rows of a product with a rotated weight rotated back where they lie: validate, choose.

    dX = (D W R) R + (dY sB) A

W R are the columns of W rotated by blocks, as X's are for the forward product: numbers that are far above their
neighbors spread over a block, and a scale for the row leaves more levels to the others (QuaRot, Ashkboos et al. 2024,
arXiv 2404.00456). R is symmetric, so that twice rotated is as before.

Shapes: T tokens, K columns, R ranks.
"""

from __future__ import annotations

import torch

from burnish_kernels.dispatch import use_kernels
from burnish_kernels.eight_bit_linear import reference
from burnish_kernels.eight_bit_linear.op import validate_product

__all__ = ["rotate_back"]


def rotate_back(
    x_TK: torch.Tensor,
    rotation: int,
    *,
    narrow_TR: torch.Tensor | None = None,
    adapter_KR: torch.Tensor | None = None,
) -> torch.Tensor:
    """Rotate rows by blocks of columns, in place, and add an adapter's product.

    Args:
        x_TK: rows, fp16 or bf16; may be strided.
        rotation: columns of a block, 16, 32 or 64, which divide K.
        narrow_TR: gradient times the adapter's second matrix, of the type of the rows; None: no adapter.
        adapter_KR: first matrix of the adapter, transposed, of the type of the rows, any strides.

    Returns:
        The given rows.

    Raises:
        ValueError: Shapes or types do not fit.
    """
    validate_product(x_TK, tuple(x_TK.shape), narrow_TR, adapter_KR)
    reference.check_rotation(rotation, x_TK.shape[1])
    if not x_TK.numel():
        return x_TK
    if use_kernels(x_TK):
        from burnish_kernels.eight_bit_linear.rotated.kernel import launch_rotate_back

        launch_rotate_back(x_TK=x_TK, rotation=rotation, narrow_TR=narrow_TR, adapter_KR=adapter_KR)
        return x_TK
    return x_TK.copy_(reference.rotate_back(x_TK, rotation, narrow_TR, adapter_KR))
