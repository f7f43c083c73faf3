"""Store the Hessians of linear layers in files, and refine quantized files with them (GPTQ).

The Hessian of a layer is the mean of x xᵀ over its inputs x. The Cholesky factor of each (`gptq.upper_cholesky`) lies
in a file of its own, so that one at a time is in memory. Layers that read the same input share it. Rows longer than
`LONGEST_INPUT` have none, because a Hessian grows with the square of the row. Loads no torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from burnish_engine.export.gguf.block_formats import BLOCK_FORMATS, Floats, dequantize
from burnish_engine.export.quantize.gptq import PIECE, refine, upper_cholesky

LONGEST_INPUT: Final = 8192
"""Longest row with a Hessian, columns: 256 MiB."""
MOST_HESSIAN_BYTES: Final = 2 * 1024**3
"""Largest memory for Hessians during gathering, bytes, on the device that computes; at most a quarter of its free
memory."""

_READS_THE_SAME: Final = {
    "attn_k": "attn_q", "attn_v": "attn_q", "attn_gate": "attn_qkv", "ssm_alpha": "attn_qkv", "ssm_beta": "attn_qkv",
    "ffn_up": "ffn_gate", "ffn_up_shexp": "ffn_gate_shexp",
}  # fmt: skip
_LINEAR = re.compile(
    r"(blk\.\d+)\.(attn_(?:q|k|v|qkv|gate|output)|ffn_(?:gate|up|down)(?:_shexp)?|shortconv\.(?:in|out)_proj"
    r"|ssm_(?:alpha|beta|out))\.weight"
)


class _Shaped(Protocol):
    """Tensor with its GGUF name and shape, rows first."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...


def input_name(weight: str) -> str:
    """Name a layer's input, which several layers may share; empty where the tensor is no linear layer's weight.

    Args:
        weight: GGUF name, such as blk.3.attn_k.weight.
    """
    match = _LINEAR.fullmatch(weight)
    return f"{match[1]}.{_READS_THE_SAME.get(match[2], match[2])}" if match else ""


def hessian_sizes(tensors: Iterable[_Shaped]) -> dict[str, int]:
    """Map the name of every input that gets a Hessian to its length, columns."""
    rows = {input_name(one.name): one.shape[-1] for one in tensors if len(one.shape) == 2}
    return {name: row for name, row in rows.items() if name and row <= LONGEST_INPUT}


def hessian_bytes(rows: Iterable[int]) -> int:
    """Size of the Hessians of inputs with these lengths, in memory or in files, bytes."""
    return sum(4 * row * row for row in rows)


def write_hessian(folder: Path, name: str, hessian: Floats) -> None:
    """Write the Cholesky factor of a Hessian to a file.

    Args:
        folder: destination; created if missing.
        name: name of the input.
        hessian: mean of x xᵀ over tokens [in, in].

    Raises:
        OSError: The file cannot be written.
        LinAlgError: The matrix is not positive definite, or not finite.
    """
    folder.mkdir(parents=True, exist_ok=True)
    np.save(_file(folder, name), upper_cholesky(hessian))


def cholesky_bytes(longest: int) -> int:
    """Memory for the Cholesky factor of the longest input's Hessian, bytes: three copies in fp64, one in fp32."""
    return 28 * longest * longest


def refining_bytes(longest: int) -> int:
    """Memory that refining takes for inputs of at most so many columns, bytes: a factor and a piece of a tensor."""
    return 4 * longest * longest + 48 * max(PIECE, longest)


def refine_file(source: Path, target: Path, folder: Path, report: Callable[[int, int], None]) -> int:
    """Choose new codes with GPTQ, in place, for a quantized file's tensors whose inputs have a Hessian.

    Args:
        source: unquantized file that the target was made from.
        target: quantized file.
        folder: folder of the Cholesky factors.
        report: callback given, after each tensor, the number of finished tensors and of all.

    Returns:
        Number of refined tensors.

    Raises:
        OSError: A file cannot be read or written.
        ValueError: A file is damaged, or does not fit the others.
    """
    import gguf

    exact = {tensor.name: tensor for tensor in gguf.GGUFReader(source).tensors}
    reader = gguf.GGUFReader(target, "r+")
    chosen = [
        tensor
        for tensor in sorted(reader.tensors, key=lambda tensor: input_name(tensor.name))
        if tensor.tensor_type.name in BLOCK_FORMATS and input_name(tensor.name) and _file(folder, tensor.name).exists()
    ]
    held, upper = "", np.zeros((0, 0), dtype=np.float32)
    for done, tensor in enumerate(chosen):
        if (name := input_name(tensor.name)) != held:
            held, upper = name, np.load(_file(folder, tensor.name))
        _refine_tensor(exact[tensor.name], tensor, upper)
        report(done + 1, len(chosen))
    reader.data.flush()
    return len(chosen)


def _refine_tensor(exact: Any, tensor: Any, upper: Floats) -> None:
    step = max(PIECE // len(upper), 1)
    for start in range(0, len(tensor.data), step):
        piece = slice(start, start + step)
        weights = dequantize(exact.data[piece], exact.tensor_type.name)
        tensor.data[piece] = refine(weights, np.array(tensor.data[piece]), tensor.tensor_type.name, upper)


def _file(folder: Path, weight: str) -> Path:
    """Path of the factor for a weight, or for an input."""
    return folder / f"{input_name(weight) or weight}.npy"
