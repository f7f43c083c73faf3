"""Stacks of experts' weights in four bits as they lie in memory.

Shapes: E experts, N rows and K columns of one expert's weight, b = N·K / 64 blocks of NF4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from burnish_kernels.nf4.reference import BLOCK, NESTED_BLOCK
from burnish_kernels.nf4.state import Nf4

MXFP4_BLOCK = 32
"""Values that share a scale (OCP Microscaling Formats specification 1.0, section 5.2)."""


@dataclass(frozen=True)
class Nf4Experts:
    """NF4 weights, each expert's bytes those of the weight quantized alone.

    Attributes:
        packed: two indices of levels in a byte, `[E, N·K / 2]` uint8, the first in the high nibble.
        shape: rows N and columns K of one expert; 64 divides K.
        absmax: scales `[E, b]`: fp32, or uint8 if they are quantized too.
        nested_absmax: scales of the scales, `[E, ceil(b / 256)]` fp32; None if the scales are not quantized.
        code256: levels of the 8-bit scales, `[256]` fp32.
        offset: mean of each expert's scales, `[E]` fp32.
    """

    packed: torch.Tensor
    shape: tuple[int, int]
    absmax: torch.Tensor
    nested_absmax: torch.Tensor | None = None
    code256: torch.Tensor | None = None
    offset: torch.Tensor | None = None

    @property
    def experts(self) -> int:
        """Number of experts, E."""
        return self.packed.shape[0]

    @property
    def double(self) -> bool:
        """Whether the scales are quantized too."""
        return self.nested_absmax is not None

    def expert(self, index: int) -> Nf4:
        """Return one expert's weight, which shares the stack's memory."""
        if self.nested_absmax is None or self.offset is None:
            return Nf4(self.packed[index], self.shape, absmax=self.absmax[index])
        return Nf4(
            self.packed[index],
            self.shape,
            absmax_q=self.absmax[index],
            nested_absmax=self.nested_absmax[index],
            code256=self.code256,
            offset=self.offset[index : index + 1],
        )

    def put(self, index: int, weight: Nf4) -> None:
        """Copy an expert's weight, quantized alone, to its place.

        Raises:
            ValueError: The matrix has another shape or kind of scales.
        """
        if (weight.shape, weight.double) != (self.shape, self.double):
            raise ValueError(f"expert {index} is {weight.shape}, double {weight.double}; the stack is {self.shape}")
        own = self.expert(index).tensors()
        for name, tensor in weight.tensors().items():
            own[name].copy_(tensor)

    def check(self) -> None:
        """Raise ValueError unless the sizes and types fit one another."""
        rows, columns = self.shape
        if columns % BLOCK or rows < 1 or columns < 1 or rows * columns >= 1 << 31:
            raise ValueError(f"an expert in NF4 has a multiple of {BLOCK} columns and under 2^31 values: {self.shape}")
        blocks = rows * columns // BLOCK
        scales = torch.uint8 if self.double else torch.float32
        _check("packed", self.packed, (self.experts, rows * columns // 2), torch.uint8)
        _check("absmax", self.absmax, (self.experts, blocks), scales)
        if self.double:
            nested = (self.experts, -(blocks // -NESTED_BLOCK))
            _check("nested_absmax", self.nested_absmax, nested, torch.float32)
            _check("code256", self.code256, (256,), torch.float32)
            _check("offset", self.offset, (self.experts,), torch.float32)


@dataclass(frozen=True)
class Mxfp4Experts:
    """MXFP4 weights as gpt-oss is published.

    Attributes:
        blocks: two E2M1 values in a byte, `[E, N, K / 32, 16]` uint8, the first in the low nibble.
        scales: exponents `[E, N, K / 32]` uint8, at most 254: a block's values count 2^(scale - 127) times.
    """

    blocks: torch.Tensor
    scales: torch.Tensor

    @property
    def experts(self) -> int:
        """Number of experts, E."""
        return self.blocks.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows N and columns K of one expert."""
        return self.blocks.shape[1], self.blocks.shape[2] * MXFP4_BLOCK

    def check(self) -> None:
        """Raise ValueError unless the sizes and types fit one another."""
        if self.blocks.ndim != 4 or self.blocks.shape[1] * self.blocks.shape[2] >= 1 << 26:
            raise ValueError(f"blocks must be [E, N, K / 32, 16] of under 2^31 values, not {tuple(self.blocks.shape)}")
        experts, rows, blocks = self.blocks.shape[:3]
        _check("blocks", self.blocks, (experts, rows, blocks, MXFP4_BLOCK // 2), torch.uint8)
        _check("scales", self.scales, (experts, rows, blocks), torch.uint8)


Packed = Nf4Experts | Mxfp4Experts


def empty_nf4(experts: int, shape: tuple[int, int], *, double: bool, device: torch.device | str) -> Nf4Experts:
    """Allocate a stack, uninitialized, to put experts into one after another.

    Args:
        experts: number of experts.
        shape: rows N and columns K of an expert.
        double: whether the scales are quantized too.
        device: device of the tensors.

    Raises:
        ValueError: No stack can have experts of this shape.
    """
    blocks = shape[0] * shape[1] // BLOCK

    def new(dtype: torch.dtype, *size: int) -> torch.Tensor:
        return torch.empty(size, dtype=dtype, device=device)

    packed, absmax = new(torch.uint8, experts, shape[0] * shape[1] // 2), (experts, blocks)
    stack = Nf4Experts(packed, shape, new(torch.float32, *absmax))
    if double:
        stack = Nf4Experts(
            packed,
            shape,
            new(torch.uint8, *absmax),
            new(torch.float32, experts, -(blocks // -NESTED_BLOCK)),
            new(torch.float32, 256),
            new(torch.float32, experts),
        )
    stack.check()
    return stack


def stack_nf4(weights: Sequence[Nf4]) -> Nf4Experts:
    """Stack weights of one shape, quantized alone; their bytes stay as they are.

    Raises:
        ValueError: There are none, or their shapes or kinds of scales differ.
    """
    if not weights or any((one.shape, one.double) != (weights[0].shape, weights[0].double) for one in weights):
        raise ValueError(f"experts must have one shape and kind of scales, not {[one.shape for one in weights]}")
    stack = empty_nf4(len(weights), weights[0].shape, double=weights[0].double, device=weights[0].device)
    for index, weight in enumerate(weights):
        stack.put(index, weight)
    return stack


def _check(name: str, tensor: torch.Tensor | None, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    if tensor is None:
        raise ValueError(f"{name} is missing")
    if tensor.shape != shape or tensor.dtype != dtype or not tensor.is_contiguous():
        raise ValueError(f"{name} must be {shape} {dtype} and contiguous, not {tuple(tensor.shape)} {tensor.dtype}")
