"""Frozen weights that products read in 8 bits, E4M3 or INT8 with one scale for each output row.

    Y  = s_x X8 (s_w W8)ᵀ + (X Aᵀ)(sB)ᵀ        dX = s_d D8 W8 + (dY·sB) A

where D8 is dY with the scales s_w multiplied in: forward and backward read the same codes of W, rounded once. The codes
are transposed for dX, and NF4 is unpacked straight to codes, in memory that stacks share. What is rounded depends on
nothing but the operand itself, so that a product that is computed again has the same bits.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from typing_extensions import override

from burnish_engine.contract.recipe.fp8_use import Codes
from burnish_engine.models.decoder.frozen.matrix_weights import parts_by_name
from burnish_engine.models.decoder.frozen.parts import WeightPart, part_rows
from burnish_engine.models.decoder.frozen.weight import FrozenWeight
from burnish_kernels.fp8_linear import op as fp8
from burnish_kernels.fp8_linear.projected.op import project_codes
from burnish_kernels.lora_linear import op as lora_linear
from burnish_kernels.nf4 import op as nf4

CODES: dict[Codes, torch.dtype] = {"fp8": fp8.CODES, "int8": fp8.INT8}
"""Type of codes in memory, by their number format."""


def quantized_operand(x_TK: torch.Tensor, codes: torch.dtype, factor_K: torch.Tensor | None = None) -> fp8.Fp8Rows:
    """Quantize the operand of an 8-bit product, a scale for each token.

    Args:
        x_TK: input or gradient, rows may be strided.
        codes: type of the codes.
        factor_K: fp32 factor of each column, multiplied in before; None: none.
    """
    return fp8.quantize_rows(x_TK, factor_K=factor_K, codes=codes)


@dataclass
class Fp8Scratch:
    """Memory that the codes of stacks are written to, shared by stacks of which one is used at a time.

    Attributes:
        codes: memory for codes as the forward pass reads them, of one dimension; empty where all stacks store codes.
        turned: memory for transposed codes, of the same type.
    """

    codes: torch.Tensor
    turned: torch.Tensor

    @classmethod
    def empty(cls, codes: int, turned: int, kind: torch.dtype, device: torch.device) -> Fp8Scratch:
        """Allocate memory for so many codes of a type, uninitialized."""
        return cls(*(torch.empty(count, dtype=kind, device=device) for count in (codes, turned)))


@dataclass
class Fp8Weight(FrozenWeight):
    """A frozen weight W that products read as codes, of the type of the scratch memory.

    Attributes:
        a_RK, sb_NR: compute copies of the adapters.
        scratch: memory shared with other stacks.
    """

    a_RK: torch.Tensor
    sb_NR: torch.Tensor
    scratch: Fp8Scratch
    _is_shared: bool = field(default=False, init=False)
    _ready: set[str] = field(default_factory=set, init=False)

    @property
    @abstractmethod
    def scale_N(self) -> torch.Tensor:
        """Scale of each row, fp32."""

    @property
    @override
    def gradient_factor_N(self) -> torch.Tensor:
        return self.scale_N

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
    ) -> torch.Tensor:
        if fill is None:
            lora_linear.project_input(x_TE, self.a_RK, stack, drop)
        else:
            fill(self.a_RK)
        y_TN = fp8.fp8_linear(
            quantized_operand(x_TE[:, : stack.K], self._kind),
            self.codes(),
            scale_N=self.scale_N,
            narrow_TR=x_TE[:, stack.K :] if stack.R else None,
            adapter_NR=self.sb_NR if stack.R else None,
            dtype=x_TE.dtype,
            out=out,
        )
        return y_TN if bias_N is None else y_TN.add_(bias_N)

    @override
    def input_gradient(
        self,
        dy_TE: torch.Tensor,
        stack: lora_linear.Stack,
        *,
        wanted: bool,
        drop: lora_linear.Dropout | None = None,
        largest_T: torch.Tensor | None = None,
    ) -> torch.Tensor | None:
        dy_TN, dxa_TR = dy_TE[:, : stack.N], dy_TE[:, stack.N :]
        if wanted and stack.adapters and largest_T is not None:
            codes = fp8.new_rows(len(dy_TN), stack.N, dy_TN.device, self._kind)
            segments = lora_linear.output_segments(stack)
            project_codes(
                dy_TN, self.sb_NR.t(), dxa_TR, segments, codes_out=codes, largest_T=largest_T, factor_C=self.scale_N
            )
        else:
            lora_linear.project_gradient(dy_TE, self.sb_NR, stack)
            if not wanted:
                return None
            codes = quantized_operand(dy_TN, self._kind, self.scale_N)
        is_dropped = drop is not None and drop.probability > 0
        fused = bool(stack.R) and not is_dropped
        dx_TK = fp8.fp8_linear(
            codes,
            self.turned(),
            narrow_TR=dxa_TR if fused else None,
            adapter_NR=self.a_RK.t() if fused else None,
            dtype=dy_TE.dtype,
        )
        if is_dropped and stack.R:
            lora_linear.add_adapter_gradient(dx_TK, dxa_TR, self.a_RK, stack, drop)
        return dx_TK

    @property
    def _kind(self) -> torch.dtype:
        """Type of the codes."""
        return self.scratch.turned.dtype

    def _is_needed(self, what: str) -> bool:
        """Return whether scratch memory must be filled now; it counts as filled from then on."""
        is_there = self._is_shared and what in self._ready
        self._ready.add(what)
        return not is_there


@dataclass
class StoredFp8Weight(Fp8Weight):
    """A frozen weight W stored in codes.

    Attributes:
        rows: codes `[N, K]` and scales.
    """

    rows: fp8.Fp8Rows

    @property
    @override
    def scale_N(self) -> torch.Tensor:
        return self.rows.scale

    @override
    def codes(self) -> torch.Tensor:
        return self.rows.codes

    @override
    def turned(self) -> torch.Tensor:
        n, k = self.rows.codes.shape
        turned_KN = self.scratch.turned[: n * k].view(k, n)
        if self._is_needed("turned"):
            fp8.transpose_codes(self.rows.codes, turned_KN)
        return turned_KN

    @override
    def bare(self, outputs: int, inputs: int) -> FrozenWeight:
        return StoredFp8Weight(self.a_RK[:0], self.sb_NR[:, :0], self.scratch, self.rows)

    @override
    def tensors(self, outputs: int, inputs: int) -> dict[str, torch.Tensor]:
        return parts_by_name([self.rows])


@dataclass
class Nf4Fp8Weight(Fp8Weight):
    """A frozen weight W in NF4 (some rows may be 16-bit), unpacked straight to codes.

    Attributes:
        parts: rows of W from top to bottom, in NF4 or 16 bits.
        scales: scale of each row in 8 bits, from `row_scales`.
    """

    parts: list[WeightPart]
    scales: torch.Tensor

    @property
    @override
    def scale_N(self) -> torch.Tensor:
        return self.scales

    @override
    def codes(self) -> torch.Tensor:
        codes_NK = self.scratch.codes[: self._count].view(self._shape)
        if self._is_needed("codes"):
            self._write(codes_NK, transposed=False)
        return codes_NK

    @override
    def turned(self) -> torch.Tensor:
        turned_KN = self.scratch.turned[: self._count].view(self._shape[::-1])
        if self._is_needed("turned"):
            self._write(turned_KN, transposed=True)
        return turned_KN

    @property
    def _shape(self) -> tuple[int, int]:
        return len(self.scales), self.a_RK.shape[1]

    @property
    def _count(self) -> int:
        return self._shape[0] * self._shape[1]

    def _write(self, out: torch.Tensor, *, transposed: bool) -> None:
        first = 0
        for part in self.parts:
            own = slice(first, first + part_rows(part))
            first = own.stop
            place, scale = out[:, own] if transposed else out[own], self.scales[own]
            if isinstance(part, nf4.Nf4):
                nf4.fp8_codes(part, scale, place, transposed=transposed)
                continue
            assert isinstance(part, torch.Tensor)
            codes_NK = quantized_operand(part, self._kind).codes
            if transposed:
                fp8.transpose_codes(codes_NK, place)
            else:
                place.copy_(codes_NK)

    @override
    def bare(self, outputs: int, inputs: int) -> FrozenWeight:
        return Nf4Fp8Weight(self.a_RK[:0], self.sb_NR[:, :0], self.scratch, self.parts, self.scales)

    @override
    def tensors(self, outputs: int, inputs: int) -> dict[str, torch.Tensor]:
        return parts_by_name(self.parts)


def row_scales(part: WeightPart, device: torch.device, codes: torch.dtype) -> torch.Tensor:
    """Return the scale that each row of a part in NF4 or 16 bits has in such codes, `[rows]` fp32 on the device."""
    assert not isinstance(part, fp8.Fp8Rows)
    there = part.to(device)
    return nf4.fp8_row_scale(there, codes) if isinstance(there, nf4.Nf4) else quantized_operand(there, codes).scale
