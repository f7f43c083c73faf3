"""Products with a frozen matrix in host memory, whose rows are copied to the device in pieces.

While one piece is multiplied, the next one is copied.

Shapes: C rows, V rows of the matrix, H columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from burnish_engine.models.host_memory.copy_stream import CopyStream

PIECE_BYTES = 32 << 20
"""Size of a piece of the matrix; two pieces are on the device at once. It takes about 1.3 ms on PCIe 4 x16."""


class StreamedMatrix:
    """A matrix in page-locked host memory, and the stream that copies it.

    Args:
        matrix_VH: matrix in host memory.
        device: device that makes the products.
        piece_bytes: bytes of a piece.
    """

    def __init__(self, matrix_VH: torch.Tensor, device: torch.device, piece_bytes: int = PIECE_BYTES) -> None:
        self._matrix, self._device = matrix_VH, device
        rows = max(1, piece_bytes // (matrix_VH.shape[1] * matrix_VH.element_size()))
        self._spans = [slice(first, min(first + rows, len(matrix_VH))) for first in range(0, len(matrix_VH), rows)]
        self._copies = CopyStream(device)

    def rows_product(self, x_CH: torch.Tensor) -> torch.Tensor:
        """Return the product X Mᵀ, `[C, V]`: the same numbers as in one product."""
        out = x_CH.new_empty(len(x_CH), len(self._matrix))
        for span, piece in self.pieces():
            torch.mm(x_CH, piece.t(), out=out[:, span])
            del piece  # else it lives while the next one is fetched
        return out

    def columns_product(self, y_CV: torch.Tensor) -> torch.Tensor:
        """Return the product Y M, `[C, H]`: the pieces' products are added in fp32."""
        total = torch.zeros(len(y_CV), self._matrix.shape[1], dtype=torch.float32, device=y_CV.device)
        for span, piece in self._pieces(self._spans[::-1]):
            total += y_CV[:, span] @ piece
            del piece
        return total.to(y_CV.dtype)

    def pieces(self) -> Iterator[tuple[slice, torch.Tensor]]:
        """Yield spans of rows, top first, and these rows on the device; drop each before the next one is asked for."""
        yield from self._pieces(self._spans)

    def _pieces(self, spans: Sequence[slice]) -> Iterator[tuple[slice, torch.Tensor]]:
        """Yield spans of rows and these rows on the device."""
        if not self._copies.is_asynchronous:
            yield from ((span, self._matrix[span]) for span in spans)
            return
        coming = self._fetch(spans[0])
        for number, span in enumerate(spans):
            piece, arrived = coming
            if number + 1 < len(spans):
                coming = self._fetch(spans[number + 1])
            self._copies.wait(arrived)
            yield span, piece
            del piece

    def reset(self) -> None:
        """Recover the copy stream when a graph capture failed half-way."""
        self._copies.join_capture()

    def _fetch(self, span: slice) -> tuple[torch.Tensor, torch.cuda.Event | None]:
        host = self._matrix[span]
        piece = torch.empty_like(host, device=self._device)
        return piece, self._copies.copy(host, piece)
