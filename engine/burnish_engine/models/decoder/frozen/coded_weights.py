"""Frozen weights that products read in 8 bits, as codes with scales; `code_format` says which codes and scales.

Forward and backward read the same codes of W, rounded once. They are transposed for dX, and NF4 is unpacked straight
to codes, in memory that stacks share. What is rounded depends on nothing but the operand itself, so that a product that
is computed again has the same bits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from typing_extensions import override

from burnish_engine.models.decoder.frozen.code_format import CodedProduct, CodeFormat
from burnish_engine.models.decoder.frozen.matrix_weights import parts_by_name
from burnish_engine.models.decoder.frozen.parts import CodedPart, WeightPart
from burnish_engine.models.decoder.frozen.row_format import RowFormat
from burnish_engine.models.decoder.frozen.weight import FrozenWeight
from burnish_kernels.eight_bit_linear.op import EightBitRows, transpose_codes
from burnish_kernels.eight_bit_linear.projected.op import project_codes
from burnish_kernels.lora_linear import op as lora_linear


@dataclass
class CodeScratch:
    """Memory that the codes of stacks are written to, shared by stacks of which one is used at a time.

    Attributes:
        codes: memory for codes as the forward pass reads them, of one dimension; empty where all stacks store codes.
        turned: memory for transposed codes.
    """

    codes: torch.Tensor
    turned: torch.Tensor


@dataclass
class CodedWeight(FrozenWeight):
    """A frozen weight W that products read as codes of 8 bits.

    Attributes:
        form: format of the codes.
        a_RK, sb_NR: compute copies of the adapters.
        scratch: memory shared with other stacks.
    """

    form: CodeFormat
    a_RK: torch.Tensor
    sb_NR: torch.Tensor
    scratch: CodeScratch
    _is_shared: bool = field(default=False, init=False)
    _ready: set[str] = field(default_factory=set, init=False)

    @property
    @abstractmethod
    def scale(self) -> torch.Tensor:
        """Scales of the codes `[N, K]`."""

    @property
    @override
    def gradient_factor_N(self) -> torch.Tensor | None:
        return self.scale if isinstance(self.form, RowFormat) else None

    @override
    def new_input_codes(self, tokens: int) -> EightBitRows | None:
        if not isinstance(self.form, RowFormat):
            return None
        return self.form.new_input_codes(tokens, self.a_RK.shape[1], self.a_RK.device)

    @override
    def new_gradient_codes(self, tokens: int) -> EightBitRows | None:
        return self.form.new_gradient_codes(tokens, self.scale) if isinstance(self.form, RowFormat) else None

    @abstractmethod
    def codes(self) -> torch.Tensor:
        """Return the codes `[N, K]`; valid until another stack sharing the memory is used."""

    @abstractmethod
    def turned(self) -> torch.Tensor:
        """Return the transposed codes `[K, N]`; valid until another stack sharing the memory is used."""

    @contextmanager
    @override
    def prepared(self) -> Iterator[None]:
        self._is_shared = True
        self._ready.clear()
        try:
            yield
        finally:
            self._is_shared = False

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
        if fill is None:
            lora_linear.project_input(x_TE, self.a_RK, stack, drop)
        else:
            fill(self.a_RK)
        operand = self.form.operand(x_TE[:, : stack.K]) if codes is None else codes
        product = CodedProduct(
            self.codes(),
            self.scale,
            x_TE.dtype,
            narrow_TR=x_TE[:, stack.K :] if stack.R else None,
            adapter=self.sb_NR if stack.R else None,
            out=out,
        )
        y_TN = self.form.output(operand, product)
        return y_TN if bias_N is None else y_TN.add_(bias_N)

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
        dy_TN, dxa_TR = dy_TE[:, : stack.N], dy_TE[:, stack.N :]
        if wanted and stack.adapters and largest_T is not None:
            operand = self.new_gradient_codes(len(dy_TN))
            assert operand is not None, "without codes of rows, no kernel finds the largest of one"
            segments = lora_linear.output_segments(stack)
            sb_RN, factor_N = self.sb_NR.t(), self.scale
            project_codes(dy_TN, sb_RN, dxa_TR, segments, codes_out=operand, largest_T=largest_T, factor_C=factor_N)
        else:
            lora_linear.project_gradient(dy_TE, self.sb_NR, stack)
            if not wanted:
                return None
            operand = self.form.gradient(dy_TN, self.scale) if codes is None else codes
        is_dropped = drop is not None and drop.probability > 0
        fused = bool(stack.R) and not is_dropped
        product = CodedProduct(
            self.turned(),
            self.scale,
            dy_TE.dtype,
            narrow_TR=dxa_TR if fused else None,
            adapter=self.a_RK.t() if fused else None,
        )
        dx_TK = self.form.input_gradient(operand, product)
        if is_dropped and stack.R:
            lora_linear.add_adapter_gradient(dx_TK, dxa_TR, self.a_RK, stack, drop)
        return dx_TK

    def _is_needed(self, what: str) -> bool:
        """Return whether scratch memory must be filled now; it counts as filled from then on."""
        is_there = self._is_shared and what in self._ready
        self._ready.add(what)
        return not is_there


@dataclass
class StoredCodedWeight(CodedWeight):
    """A frozen weight W stored as codes.

    Attributes:
        rows: codes `[N, K]` and scales.
    """

    rows: CodedPart

    @property
    @override
    def scale(self) -> torch.Tensor:
        return self.rows.scale

    @override
    def codes(self) -> torch.Tensor:
        return self.rows.codes

    @override
    def turned(self) -> torch.Tensor:
        n, k = self.rows.codes.shape
        turned_KN = self.scratch.turned[: n * k].view(k, n)
        if self._is_needed("turned"):
            transpose_codes(self.rows.codes, turned_KN)
        return turned_KN

    @override
    def bare(self, outputs: int, inputs: int) -> FrozenWeight:
        return StoredCodedWeight(self.form, self.a_RK[:0], self.sb_NR[:, :0], self.scratch, self.rows)

    @override
    def tensors(self, outputs: int, inputs: int) -> dict[str, torch.Tensor]:
        return parts_by_name([self.rows])


@dataclass
class Nf4CodedWeight(CodedWeight):
    """A frozen weight W in NF4 (some rows may be 16-bit), unpacked straight to codes.

    Attributes:
        parts: rows of W from top to bottom, in NF4 or 16 bits.
        scales: scales of its codes, from `CodeFormat.scales`.
    """

    parts: list[WeightPart]
    scales: torch.Tensor

    @property
    @override
    def scale(self) -> torch.Tensor:
        return self.scales

    @override
    def codes(self) -> torch.Tensor:
        codes_NK = self.scratch.codes[: self._count].view(self._shape)
        if self._is_needed("codes"):
            self.form.unpack(self.parts, self.scales, codes_NK, transposed=False)
        return codes_NK

    @override
    def turned(self) -> torch.Tensor:
        turned_KN = self.scratch.turned[: self._count].view(self._shape[::-1])
        if self._is_needed("turned"):
            self.form.unpack(self.parts, self.scales, turned_KN, transposed=True)
        return turned_KN

    @property
    def _shape(self) -> tuple[int, int]:
        return len(self.sb_NR), self.a_RK.shape[1]

    @property
    def _count(self) -> int:
        return self._shape[0] * self._shape[1]

    @override
    def bare(self, outputs: int, inputs: int) -> FrozenWeight:
        return Nf4CodedWeight(self.form, self.a_RK[:0], self.sb_NR[:, :0], self.scratch, self.parts, self.scales)

    @override
    def tensors(self, outputs: int, inputs: int) -> dict[str, torch.Tensor]:
        return parts_by_name(self.parts)
