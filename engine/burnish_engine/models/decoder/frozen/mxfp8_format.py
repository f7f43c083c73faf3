"""MXFP8: E4M3 codes with a power of two for each 32 x 32 of a weight, and for each 32 columns of an operand's token.

    Y  = (p_x X8)(p_w W8)ᵀ + (X Aᵀ)(sB)ᵀ        dX = (p_d D8)(p_w W8) + (dY·sB) A

The tiles of W are square, so that its powers of two serve both directions; dY is quantized along its own columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from typing_extensions import override

from burnish_engine.models.decoder.frozen.code_format import CodedProduct, CodeFormat
from burnish_engine.models.decoder.frozen.parts import CodedPart, WeightPart, part_rows
from burnish_kernels.eight_bit_linear.op import CODES, transpose_codes
from burnish_kernels.mxfp8_linear import op as mxfp8
from burnish_kernels.nf4 import op as nf4


class Mxfp8Format(CodeFormat):
    """E4M3 with an exponent byte a tile; parts are `MxWeight`. A weight has a multiple of 32 rows and columns."""

    dtype = CODES

    @override
    def empty(self, rows: int, columns: int, device: torch.device | str) -> CodedPart:
        return mxfp8.new_weight(rows, columns, device)

    @override
    def quantize(self, weight_NK: torch.Tensor) -> CodedPart:
        return mxfp8.quantize_weight(weight_NK)

    @override
    def scales(self, parts: Sequence[WeightPart], device: torch.device) -> torch.Tensor:
        # Rows of several parts may share a tile, so the whole weight is there for a moment.
        plain = [part.to(device) for part in parts if isinstance(part, torch.Tensor | nf4.Nf4)]
        weight = torch.empty(sum(map(part_rows, plain)), plain[0].shape[1], device=device)
        return mxfp8.weight_scale(nf4.dequantize_stack(plain, weight, weight.dtype))

    @override
    def unpack(self, parts: Sequence[WeightPart], scale: torch.Tensor, out: torch.Tensor, *, transposed: bool) -> None:
        first, powers = 0, mxfp8.powers(scale)
        for part in parts:
            own = slice(first, first + part_rows(part))
            place = out[:, own] if transposed else out[own]
            if isinstance(part, nf4.Nf4):
                nf4.eight_bit_codes(part, powers, place, transposed=transposed, first_row=first)
            else:
                assert isinstance(part, torch.Tensor)
                codes_NK = mxfp8.encode_rows(part, powers, first)
                if transposed:
                    transpose_codes(codes_NK, place)
                else:
                    place.copy_(codes_NK)
            first = own.stop

    @override
    def operand(self, x_TK: torch.Tensor) -> mxfp8.MxRows:
        return mxfp8.quantize_rows(x_TK)

    @override
    def output(self, operand: mxfp8.MxRows, product: CodedProduct) -> torch.Tensor:
        return _multiply(operand, mxfp8.MxWeight(product.codes, product.scale), product)

    @override
    def gradient(self, dy_TN: torch.Tensor, scale: torch.Tensor) -> mxfp8.MxRows:
        return mxfp8.quantize_rows(dy_TN)

    @override
    def input_gradient(self, gradient: mxfp8.MxRows, product: CodedProduct) -> torch.Tensor:
        return _multiply(gradient, mxfp8.MxWeight(product.codes, product.scale.t()), product)


def _multiply(operand: mxfp8.MxRows, weight: mxfp8.MxWeight, product: CodedProduct) -> torch.Tensor:
    adapter = {"narrow_TR": product.narrow_TR, "adapter_NR": product.adapter}
    return mxfp8.mxfp8_linear(operand, weight, **adapter, dtype=product.dtype, out=product.out)
