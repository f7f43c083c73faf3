"""Read and write an importance matrix in llama.cpp's own format (tools/imatrix/imatrix.cpp). Loads no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.errors import SetupError

_SUM, _COUNT = ".in_sum2", ".counts"


@dataclass(frozen=True)
class Importance:
    """Importance matrix of a model."""

    columns: dict[str, npt.NDArray[np.float32]]
    """Mean square of each input column [in], fp32, by the weight's GGUF name; of a stack of experts, that of each
    expert's [experts, in], 1 for an expert that saw no token."""
    tokens: int  # number of tokens that it was computed on
    routed: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    """Number of tokens that each expert saw [experts], by the name of the stack."""

    @property
    def unseen(self) -> tuple[int, int]:
        """Number of experts, of all layers, that saw no token, and number of all; each counts once."""
        counts = [seen for name, seen in self.routed.items() if "ffn_down" in name]
        return sum(int((seen == 0).sum()) for seen in counts), sum(map(len, counts))


def with_unknown(importance: Importance, shapes: Mapping[str, Sequence[int]]) -> Importance:
    """Add matrices of whose inputs nothing is known: all columns weigh alike.

    llama.cpp's quantizer refuses types of two bits for a matrix that its importance matrix does not have.

    Args:
        importance: importance matrix of the others.
        shapes: shape of each such matrix, or stack of experts, rows first, by GGUF name.
    """
    alike = {name: np.ones((*shape[:-2], shape[-1]), dtype=np.float32) for name, shape in shapes.items()}
    return replace(importance, columns=importance.columns | alike)


def write_importance(importance: Importance, path: Path, datasets: Sequence[str] = ()) -> None:
    """Write the matrix in llama.cpp's format, which its own llama-quantize takes as well.

    Raises:
        OSError: The file cannot be written.
    """
    import gguf

    writer = gguf.GGUFWriter(path, "imatrix")
    try:
        writer.add_string("general.type", "imatrix")
        writer.add_array("imatrix.datasets", list(datasets) or ["training rows"])
        writer.add_uint32("imatrix.chunk_count", 1)
        writer.add_uint32("imatrix.chunk_size", importance.tokens)
        for name, columns in importance.columns.items():
            counts = importance.routed.get(name, np.array([importance.tokens]))[:, None]
            sums = columns.astype(np.float64).reshape(len(counts), -1) * counts
            writer.add_tensor(name + _SUM, sums.astype(np.float32))
            writer.add_tensor(name + _COUNT, counts.astype(np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def read_importance(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    """Read the mean square of each column, by the weight's name, from a file in llama.cpp's format.

    Of a stack these are the columns of each expert, one after the other; 1 where it saw no token, as in llama.cpp's own
    quantizer.

    Raises:
        SetupError: The file is not in that format.
    """
    import gguf

    try:
        tensors: Mapping[str, Any] = {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}
        names = [name.removesuffix(_SUM) for name in tensors if name.endswith(_SUM)]
        return {name: _means(tensors[name + _SUM], tensors[name + _COUNT]) for name in names}
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise SetupError(f"{path} is no importance matrix: {error}.", "Export again.") from error


def _means(sums: npt.NDArray[np.float32], counts: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    seen = counts.reshape(-1, 1)
    means = np.where(seen > 0, sums.reshape(len(seen), -1) / np.maximum(seen, 1.0), 1.0)
    return means.astype(np.float32).reshape(-1)
