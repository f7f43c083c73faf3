"""The output projection: logits of hidden states, and the gradient of these.

Beside other products in 8 bits, the product of the logits has operands of INT8, with a scale for each row of either and
columns rotated by blocks before (`kernels/burnish_kernels/eight_bit_linear`). The gradient's product stays in 16 bits.

Shapes: T tokens, H hidden size, V vocabulary.
"""

from __future__ import annotations

import torch

from burnish_engine.models.host_memory.streamed_matrix import StreamedMatrix
from burnish_kernels.eight_bit_linear import op as eight_bit
from burnish_kernels.eight_bit_linear.reference import rotation_of


class Head:
    """The output projection of a decoder.

    Args:
        matrix_VH: weights, on the device or in page-locked host memory; may be the embeddings.
        device: device that computes.
        divisor: number that hidden states are divided by before.
        in_int8: whether logits are a product of INT8. Codes of weights on the device are kept beside them.
    """

    def __init__(
        self, matrix_VH: torch.Tensor, device: torch.device, *, divisor: float = 1.0, in_int8: bool = False
    ) -> None:
        self.matrix_VH, self._divisor, self._in_int8 = matrix_VH, divisor, in_int8
        self._streamed = StreamedMatrix(matrix_VH, device) if matrix_VH.device != device else None
        self._codes = self._rows(matrix_VH) if in_int8 and self._streamed is None else None

    def codes(self) -> dict[str, torch.Tensor]:
        """Return what is kept beside the weights, by names: codes of INT8 `[V, H]` and a scale for each row `[V]`."""
        return {} if self._codes is None else {"codes": self._codes.codes, "scales": self._codes.scale}

    def logits(self, hidden_TH: torch.Tensor) -> torch.Tensor:
        """Return logits `[T, V]` in the dtype of the hidden states: the same bits wherever the weights are."""
        if self._divisor != 1.0:
            hidden_TH = hidden_TH / self._divisor
        if not self._in_int8:
            return hidden_TH @ self.matrix_VH.t() if self._streamed is None else self._streamed.rows_product(hidden_TH)
        codes_TH = self._rows(hidden_TH)
        if self._codes is not None:
            return eight_bit.eight_bit_linear(
                codes_TH, self._codes.codes, scale_N=self._codes.scale, dtype=hidden_TH.dtype
            )
        assert self._streamed is not None
        logits_TV = hidden_TH.new_empty(len(hidden_TH), len(self.matrix_VH))
        for span, piece in self._streamed.pieces():
            codes = self._rows(piece)
            eight_bit.eight_bit_linear(codes_TH, codes.codes, scale_N=codes.scale, out=logits_TV[:, span])
            del piece, codes  # else they live while the next ones are made
        return logits_TV

    def gradient(self, dlogits_TV: torch.Tensor) -> torch.Tensor:
        """Return the gradient `[T, H]` of the hidden states that `logits` took."""
        found_TH = dlogits_TV @ self.matrix_VH if self._streamed is None else self._streamed.columns_product(dlogits_TV)
        return found_TH if self._divisor == 1.0 else found_TH.div_(self._divisor)

    def reset_copies(self) -> None:
        """Recover the copy stream after a graph capture failed half-way."""
        if self._streamed is not None:
            self._streamed.reset()

    @staticmethod
    def _rows(rows: torch.Tensor) -> eight_bit.EightBitRows:
        return eight_bit.quantize_rows(rows, codes=eight_bit.INT8, rotation=rotation_of(rows.shape[1]))
