"""Second moments of what goes into a model's linear layers, in files; and quantized files refined with them.

The triangular root of each (`feedback.root`) lies in a file of its own, so that one at a time is in memory. Layers that
read the same input share it. Longer rows than `LONGEST_INPUT` have none: a moment grows with the square of the row.
Loads no torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from burnish_engine.export.feedback import PIECE, refine, root
from burnish_engine.export.gguf.codes import LAYOUTS, Floats, dequantize

LONGEST_INPUT: Final = 8192
"""Longest row with a second moment, columns: 256 MiB."""
MOMENT_BYTES: Final = 2 * 1024**3
"""Most memory to gather moments in, bytes; on the device that computes, and never more than a quarter of its free."""

_READS_THE_SAME: Final = {"attn_k": "attn_q", "attn_v": "attn_q", "ffn_up": "ffn_gate"}
_LINEAR = re.compile(r"(blk\.\d+)\.(attn_(?:q|k|v|qkv|output)|ffn_(?:gate|up|down)|shortconv\.(?:in|out)_proj)\.weight")


class _Shaped(Protocol):
    """A tensor by its GGUF name and shape, rows first."""

    @property
    def name(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...


def input_name(weight: str) -> str:
    """What a layer's input is called, which others may read too; empty where the tensor is no linear layer's weight.

    Args:
        weight: GGUF name, such as blk.3.attn_k.weight.
    """
    match = _LINEAR.fullmatch(weight)
    return f"{match[1]}.{_READS_THE_SAME.get(match[2], match[2])}" if match else ""


def moment_rows(tensors: Iterable[_Shaped]) -> dict[str, int]:
    """Name of every input that gets a second moment, to its length, columns."""
    rows = {input_name(one.name): one.shape[-1] for one in tensors if len(one.shape) == 2}
    return {name: row for name, row in rows.items() if name and row <= LONGEST_INPUT}


def moment_bytes(rows: Iterable[int]) -> int:
    """Size of the second moments of inputs of so many columns, in memory or in files, bytes."""
    return sum(4 * row * row for row in rows)


def write_moment(folder: Path, name: str, moment: Floats) -> None:
    """Keep the root of a second moment.

    Args:
        folder: Where; created if missing.
        name: Of the input.
        moment: Mean of x xᵀ over tokens [in, in].

    Raises:
        OSError: It cannot be written.
        LinAlgError: It is no second moment.
    """
    folder.mkdir(parents=True, exist_ok=True)
    np.save(_file(folder, name), root(moment))


def rooting_bytes(longest: int) -> int:
    """Memory that the root of the longest input's moment takes, bytes: three copies in fp64, one in fp32."""
    return 28 * longest * longest


def refining_bytes(longest: int) -> int:
    """Memory that refining takes, bytes, where inputs have at most so many columns: a root and a piece of a tensor."""
    return 4 * longest * longest + 48 * max(PIECE, longest)


def refine_file(source: Path, target: Path, folder: Path, report: Callable[[int, int], None]) -> int:
    """Choose the codes of a quantized file's tensors anew, in place, where there is a second moment of their inputs.

    Args:
        source: The file it was made from.
        target: The quantized file.
        folder: The second moments.
        report: Told after each tensor how many are done, and of how many.

    Returns:
        How many tensors were refined.

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
        if tensor.tensor_type.name in LAYOUTS and input_name(tensor.name) and _file(folder, tensor.name).exists()
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
    """Where the root for a weight, or for an input, lies."""
    return folder / f"{input_name(weight) or weight}.npy"
