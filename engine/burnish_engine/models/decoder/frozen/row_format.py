"""FP8 and INT8: codes with one scale for each output row of a weight, and for each token of an operand.

    Y  = s_x X8 (s_w W8)ᵀ + (X Aᵀ)(sB)ᵀ        dX = s_d D8 W8 + (dY·sB) A

where D8 is dY with the scales s_w multiplied in. In INT8 columns are rotated by blocks (R), which changes no product:
X8 and W8 are codes of X R and W R, and the frozen part of dX is (s_d D8 W8) R.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from typing_extensions import override

from burnish_engine.models.decoder.frozen.code_format import CodedProduct, CodeFormat
from burnish_engine.models.decoder.frozen.parts import CodedPart, WeightPart, part_rows
from burnish_kernels.eight_bit_linear import op as eight_bit
from burnish_kernels.eight_bit_linear.reference import rotation_of
from burnish_kernels.nf4 import op as nf4


class RowFormat(CodeFormat):
    """Codes with a scale a row; parts are `EightBitRows`. Kernels can write them beside what they make.

    Args:
        dtype: type of the codes, `eight_bit_linear.op.CODES` or `INT8`.
        rotated: whether columns of X and W are rotated by blocks before they are quantized, and those of dX back.
    """

    def __init__(self, dtype: torch.dtype, *, rotated: bool = False) -> None:
        self.dtype, self._rotated = dtype, rotated

    def _rotation(self, columns: int) -> int:
        """Return the columns of a block that is rotated; 0: none."""
        return rotation_of(columns) if self._rotated else 0

    @override
    def empty(self, rows: int, columns: int, device: torch.device | str) -> CodedPart:
        return eight_bit.new_rows(rows, columns, device, self.dtype)

    @override
    def quantize(self, weight_NK: torch.Tensor) -> CodedPart:
        return self._quantized(weight_NK)

    @override
    def scales(self, parts: Sequence[WeightPart], device: torch.device) -> torch.Tensor:
        return torch.cat([self._row_scales(part, device) for part in parts])

    @override
    def unpack(self, parts: Sequence[WeightPart], scale: torch.Tensor, out: torch.Tensor, *, transposed: bool) -> None:
        first = 0
        for part in parts:
            own = slice(first, first + part_rows(part))
            first = own.stop
            place = out[:, own] if transposed else out[own]
            if isinstance(part, nf4.Nf4):
                rotation = self._rotation(part.shape[1])
                nf4.eight_bit_codes(part, scale[own], place, transposed=transposed, rotation=rotation)
                continue
            assert isinstance(part, torch.Tensor)
            codes_NK = self._quantized(part).codes
            if transposed:
                eight_bit.transpose_codes(codes_NK, place)
            else:
                place.copy_(codes_NK)

    def new_input_codes(self, tokens: int, columns: int, device: torch.device) -> eight_bit.EightBitRows | None:
        """Allocate codes of an input `[tokens, columns]` and scales, uninitialized; None: it is rotated first."""
        # No norm and no activation rotates what it quantizes.
        return None if self._rotation(columns) else eight_bit.new_rows(tokens, columns, device, self.dtype)

    @override
    def operand(self, x_TK: torch.Tensor) -> eight_bit.EightBitRows:
        return self._quantized(x_TK)

    @override
    def output(self, operand: eight_bit.EightBitRows, product: CodedProduct) -> torch.Tensor:
        return self._multiply(operand, product, scale_N=product.scale)

    def new_gradient_codes(self, tokens: int, scale: torch.Tensor) -> eight_bit.EightBitRows:
        """Allocate codes of an output's gradient times the weight's scales, and their own scales, uninitialized."""
        return eight_bit.new_rows(tokens, len(scale), scale.device, self.dtype)

    @override
    def gradient(self, dy_TN: torch.Tensor, scale: torch.Tensor) -> eight_bit.EightBitRows:
        return eight_bit.quantize_rows(dy_TN, factor_K=scale, codes=self.dtype)

    @override
    def input_gradient(self, gradient: eight_bit.EightBitRows, product: CodedProduct) -> torch.Tensor:
        return self._multiply(gradient, product, rotation=self._rotation(len(product.codes)))

    @staticmethod
    def _multiply(
        operand: eight_bit.EightBitRows,
        product: CodedProduct,
        *,
        scale_N: torch.Tensor | None = None,
        rotation: int = 0,
    ) -> torch.Tensor:
        return eight_bit.eight_bit_linear(
            operand,
            product.codes,
            scale_N=scale_N,
            narrow_TR=product.narrow_TR,
            adapter_NR=product.adapter,
            rotation=rotation,
            dtype=product.dtype,
            out=product.out,
        )

    def _quantized(self, rows: torch.Tensor) -> eight_bit.EightBitRows:
        """Quantize rows of X or W."""
        return eight_bit.quantize_rows(rows, codes=self.dtype, rotation=self._rotation(rows.shape[1]))

    def _row_scales(self, part: WeightPart, device: torch.device) -> torch.Tensor:
        """Return the scale that each row of a part in NF4 or 16 bits has in codes, `[rows]` fp32 on the device."""
        assert isinstance(part, (torch.Tensor, nf4.Nf4))
        there = part.to(device)
        if isinstance(there, nf4.Nf4):
            return nf4.eight_bit_row_scale(there, self.dtype, rotation=self._rotation(there.shape[1]))
        return self._quantized(there).scale
