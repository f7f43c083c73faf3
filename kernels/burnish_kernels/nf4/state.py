"""A weight in NF4 as it lies in memory, and its form in published checkpoints.

A pre-quantized checkpoint of bitsandbytes holds, for the weight `name`: `name` (the packed bytes), `name.absmax`,
`name.quant_map`, `name.nested_absmax`, `name.nested_quant_map` and `name.quant_state.bitsandbytes__nf4`, a JSON
document as bytes with quant_type, blocksize, dtype, shape, nested_blocksize, nested_dtype and nested_offset.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from burnish_kernels.nf4.reference import BLOCK, NESTED_BLOCK, levels

MAX_STATE_BYTES = 65536  # longest JSON document; real ones have about 200 bytes


@dataclass(frozen=True)
class Nf4:
    """One quantized weight.

    Attributes:
        packed: bytes `[ceil(N·K / 2)]` uint8, two indices of levels in each, the first in the high nibble.
        shape: rows N and columns K of the weight.
        absmax_q: 8-bit scales `[blocks]` uint8; None if the scales are not quantized.
        absmax: scales `[blocks]` fp32; None if they are quantized.
        nested_absmax: scales of the scales, `[ceil(blocks / 256)]` fp32.
        code256: levels of the 8-bit scales, `[256]` fp32.
        offset: mean of the scales, `[1]` fp32.
    """

    packed: torch.Tensor
    shape: tuple[int, int]
    absmax_q: torch.Tensor | None = None
    absmax: torch.Tensor | None = None
    nested_absmax: torch.Tensor | None = None
    code256: torch.Tensor | None = None
    offset: torch.Tensor | None = None

    @property
    def double(self) -> bool:
        """Whether the scales are quantized too."""
        return self.absmax_q is not None

    @property
    def device(self) -> torch.device:
        """Device of the tensors."""
        return self.packed.device

    @property
    def nbytes(self) -> int:
        """Number of bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors by field name."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Nf4:
        """Return the same weight on another device."""
        moved: dict[str, Any] = {
            name: value.to(device, non_blocking=non_blocking) for name, value in self.tensors().items()
        }
        return replace(self, **moved)

    def check(self) -> None:
        """Raise ValueError unless the sizes and dtypes fit the shape."""
        rows, columns = self.shape
        if rows < 1 or columns < 1:
            raise ValueError(f"a weight has at least one row and one column, not {self.shape}")
        sizes = _sizes(self.shape, double=self.double)
        tensors = self.tensors()
        if tensors.keys() != sizes.keys():
            raise ValueError(f"NF4 needs {sorted(sizes)}, not {sorted(tensors)}")
        for name, (dtype, size) in sizes.items():
            tensor = tensors[name]
            if tensor.dtype != dtype or tensor.shape != (size,) or not tensor.is_contiguous():
                raise ValueError(f"{name} must be [{size}] {dtype}, not {tuple(tensor.shape)} {tensor.dtype}")
            if tensor.device != self.device:
                raise ValueError(f"{name} is on {tensor.device}, the packed weight on {self.device}")


def empty(shape: tuple[int, int], *, double: bool, device: torch.device | str) -> Nf4:
    """Allocate the tensors of a weight, uninitialized.

    Args:
        shape: rows N and columns K of the weight.
        double: whether the scales are quantized too.
        device: device of the tensors.
    """
    sizes = _sizes(shape, double=double)
    return Nf4(shape=shape, **{name: torch.empty(size, dtype=of, device=device) for name, (of, size) in sizes.items()})


def _sizes(shape: tuple[int, int], *, double: bool) -> dict[str, tuple[torch.dtype, int]]:
    """Return dtype and length of each tensor of a weight."""
    count = shape[0] * shape[1]
    blocks = -(count // -BLOCK)
    sizes = {"packed": (torch.uint8, -(count // -2))}
    if not double:
        return sizes | {"absmax": (torch.float32, blocks)}
    return sizes | {
        "absmax_q": (torch.uint8, blocks),
        "nested_absmax": (torch.float32, -(blocks // -NESTED_BLOCK)),
        "code256": (torch.float32, 256),
        "offset": (torch.float32, 1),
    }


def from_bitsandbytes(tensors: Mapping[str, torch.Tensor], prefix: str) -> Nf4:
    """Read a weight of a checkpoint that bitsandbytes quantized; the tensors are shared, not copied.

    Args:
        tensors: tensors of the checkpoint by name.
        prefix: name of the weight, such as `model.layers.0.self_attn.q_proj.weight`.

    Raises:
        ValueError: A tensor is missing or does not fit, or the quantization is one that is not supported.
    """

    def part(name: str) -> torch.Tensor:
        if prefix + name not in tensors:
            raise ValueError(f"{prefix}{name} is not in the checkpoint")
        return tensors[prefix + name]

    state = _quant_state(tensors, prefix)
    _require(prefix, state, "quant_type", "nf4")
    _require(prefix, state, "blocksize", BLOCK)
    shape = state.get("shape")
    if not (isinstance(shape, list) and len(shape) == 2 and all(type(size) is int and size > 0 for size in shape)):
        raise ValueError(f"{prefix}: shape {shape!r} is not that of a matrix")
    given = part(".quant_map").flatten().float().cpu()
    if given.shape != (16,) or not torch.equal(given, levels()):
        raise ValueError(f"{prefix}: quant_map {given.tolist()} holds other levels than NF4's")
    packed = part("").contiguous().view(torch.uint8).flatten()
    rows, columns = shape
    if f"{prefix}.nested_absmax" not in tensors:
        found = Nf4(packed, (rows, columns), absmax=part(".absmax").flatten())
    else:
        _require(prefix, state, "nested_blocksize", NESTED_BLOCK)
        offset = state.get("nested_offset")
        if not isinstance(offset, float | int):
            raise ValueError(f"{prefix}: nested_offset {offset!r} is not a number")
        found = Nf4(
            packed,
            (rows, columns),
            absmax_q=part(".absmax").flatten(),
            nested_absmax=part(".nested_absmax").flatten(),
            code256=part(".nested_quant_map").flatten(),
            offset=torch.tensor([float(offset)], dtype=torch.float32, device=packed.device),
        )
    try:
        found.check()
    except ValueError as error:
        raise ValueError(f"{prefix}: {error}") from None
    return found


def _quant_state(tensors: Mapping[str, torch.Tensor], prefix: str) -> dict[str, Any]:
    start = f"{prefix}.quant_state."
    names = [name for name in tensors if name.startswith(start)]
    if len(names) != 1:
        raise ValueError(f"{prefix} needs one quant_state, not {names}")
    if names[0] != f"{start}bitsandbytes__nf4":
        raise ValueError(
            f"{prefix}: quantized as {names[0].removeprefix(start)!r}; only bitsandbytes__nf4 is supported"
        )
    raw = tensors[names[0]]
    if raw.dtype != torch.uint8 or raw.numel() > MAX_STATE_BYTES:
        raise ValueError(f"{prefix}: quant_state is {raw.numel()} values of {raw.dtype}, not a JSON document's bytes")
    try:
        state = json.loads(bytes(raw.flatten().tolist()))
    except ValueError as error:
        raise ValueError(f"{prefix}: quant_state is not JSON ({error})") from None
    if not isinstance(state, dict):
        raise ValueError(f"{prefix}: quant_state is a {type(state).__name__}, not a JSON object")
    return state


def _require(prefix: str, state: dict[str, Any], key: str, value: object) -> None:
    if state.get(key) != value:
        raise ValueError(f"{prefix}: {key} {state.get(key)!r} is not supported, only {value!r}")
