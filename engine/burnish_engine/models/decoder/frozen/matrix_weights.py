"""Frozen weights that products read in the compute dtype, as the matrix M = [[W, sB], [A, 0]] of `stacked_linear`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from typing_extensions import override

from burnish_engine.models.decoder.frozen.parts import WeightPart, part_tensors, unpack
from burnish_engine.models.decoder.frozen.weight import FrozenWeight
from burnish_kernels.decode_linear import op as decode_linear
from burnish_kernels.decode_linear.eight_bit import op as eight_bit_decode
from burnish_kernels.decode_linear.nf4 import op as nf4_decode
from burnish_kernels.dispatch import use_kernels
from burnish_kernels.eight_bit_linear.rows import EightBitRows
from burnish_kernels.lora_linear import op as lora_linear
from burnish_kernels.nf4 import op as nf4


class MatrixWeight(FrozenWeight):
    """A frozen weight that products read as a part of M."""

    @property
    @override
    def gradient_factor_N(self) -> None:
        return None

    @override
    def new_input_codes(self, tokens: int) -> None:
        return None

    @override
    def new_gradient_codes(self, tokens: int) -> None:
        return None

    @abstractmethod
    def buffer(self) -> torch.Tensor:
        """Return the whole matrix M, ready to multiply with; valid until another stack sharing its memory asks."""

    @override
    def forward(
        self,
        x_TE: torch.Tensor,
        stack: lora_linear.Stack,
        *,
        bias_N: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
        drop: lora_linear.Dropout | None = None,
        fill: Callable[[torch.Tensor], object] | None = None,
        codes: EightBitRows | None = None,
    ) -> torch.Tensor:
        matrix = self.buffer()
        if fill is None:
            return lora_linear.forward(x_TE, matrix, stack, bias_N=bias_N, out=out, drop=drop)
        fill(matrix[stack.N :, : stack.K])
        out = x_TE.new_empty(len(x_TE), stack.N) if out is None else out
        return lora_linear.times_transposed(x_TE, matrix[: stack.N], bias_N, out)

    @override
    def decode(
        self, x_TE: torch.Tensor, stack: lora_linear.Stack, *, bias_N: torch.Tensor | None, out: torch.Tensor | None
    ) -> torch.Tensor | None:
        return None

    @override
    def input_gradient(
        self,
        dy_TE: torch.Tensor,
        stack: lora_linear.Stack,
        *,
        wanted: bool,
        drop: lora_linear.Dropout | None = None,
        largest_T: torch.Tensor | None = None,
        codes: EightBitRows | None = None,
    ) -> torch.Tensor | None:
        return lora_linear.input_gradient(dy_TE, self.buffer(), stack, needs_dx=wanted, drop=drop)


@dataclass
class ResidentWeight(MatrixWeight):
    """A frozen weight W that stays in M in the compute dtype."""

    matrix: torch.Tensor

    @override
    def buffer(self) -> torch.Tensor:
        return self.matrix

    @override
    def decode(
        self, x_TE: torch.Tensor, stack: lora_linear.Stack, *, bias_N: torch.Tensor | None, out: torch.Tensor | None
    ) -> torch.Tensor | None:
        if not use_kernels(x_TE) or not decode_linear.is_possible(len(x_TE), stack):
            return None
        return decode_linear.forward(x_TE[:, : stack.K], self.buffer(), stack, bias_N=bias_N, out=out)

    @override
    def prepared(self) -> AbstractContextManager[None]:
        return nullcontext()

    @override
    def bare(self, outputs: int, inputs: int) -> FrozenWeight:
        return ResidentWeight(self.matrix[:outputs, :inputs])

    @override
    def tensors(self, outputs: int, inputs: int) -> dict[str, torch.Tensor]:
        return {"": self.matrix[:outputs, :inputs]}


@dataclass
class StreamedWeight(ResidentWeight):
    """A frozen weight W in M in the compute dtype, in memory to which layers are copied from the host by turns.

    Attributes:
        matrix: memory `[N + R, K + R]`; W is there while its layer computes.
        a_RK, sb_NR: compute copies of the adapters, pasted beside W.
    """

    a_RK: torch.Tensor
    sb_NR: torch.Tensor

    @override
    def buffer(self) -> torch.Tensor:
        if self.a_RK.shape[0]:
            nf4.paste(self.matrix, self.sb_NR.shape[0], self.a_RK.shape[1], self.a_RK, self.sb_NR)
        return self.matrix


@dataclass
class QuantizedWeight(MatrixWeight):
    """A frozen weight W in NF4, FP8 or blocks of GGUF, unpacked into scratch memory that other stacks share.

    Some rows may be in 16 bits.

    Few tokens of replies are multiplied with NF4 or FP8 as they are.

    Attributes:
        parts: rows of W from top to bottom.
        a_RK, sb_NR: compute copies of the adapters, pasted beside W.
        scratch: memory `[N + R, K + R]`; nothing reads the corner below sB and beside A.
    """

    parts: list[WeightPart]
    a_RK: torch.Tensor
    sb_NR: torch.Tensor
    scratch: torch.Tensor
    _is_shared: bool = False
    _is_ready: bool = False

    @contextmanager
    @override
    def prepared(self) -> Iterator[None]:
        self._is_shared, self._is_ready = True, False
        try:
            yield
        finally:
            self._is_shared = False

    @override
    def buffer(self) -> torch.Tensor:
        if self._is_shared and self._is_ready:
            return self.scratch
        self._is_ready = True
        n, k = self.sb_NR.shape[0], self.a_RK.shape[1]
        unpack(self.parts, self.scratch[:n, :k])
        if self.a_RK.shape[0]:
            nf4.paste(self.scratch, n, k, self.a_RK, self.sb_NR)
        return self.scratch

    @override
    def decode(
        self, x_TE: torch.Tensor, stack: lora_linear.Stack, *, bias_N: torch.Tensor | None, out: torch.Tensor | None
    ) -> torch.Tensor | None:
        x_TK = x_TE[:, : stack.K]
        if not use_kernels(x_TE):
            return None
        if eight_bit_decode.is_possible(x_TK, self.parts, stack):
            (rows,) = self.parts
            assert isinstance(rows, EightBitRows)
            return eight_bit_decode.forward(x_TK, rows, self.a_RK, self.sb_NR, stack, bias_N=bias_N, out=out)
        if not nf4_decode.is_possible(x_TK, self.parts, stack):
            return None
        parts = [part for part in self.parts if isinstance(part, nf4.Nf4)]
        return nf4_decode.forward(x_TK, parts, self.a_RK, self.sb_NR, stack, bias_N=bias_N, out=out)

    @override
    def bare(self, outputs: int, inputs: int) -> FrozenWeight:
        return QuantizedWeight(self.parts, self.a_RK[:0], self.sb_NR[:, :0], self.scratch[:outputs, :inputs])

    @override
    def tensors(self, outputs: int, inputs: int) -> dict[str, torch.Tensor]:
        return parts_by_name(self.parts)


def parts_by_name(parts: list[WeightPart]) -> dict[str, torch.Tensor]:
    """Return the tensors of a weight's parts, by names that say which part each is of."""
    return {
        f"part {number} {name}".rstrip(): tensor
        for number, part in enumerate(parts)
        for name, tensor in part_tensors(part).items()
    }
