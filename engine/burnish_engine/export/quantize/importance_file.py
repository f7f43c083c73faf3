"""Read and write an importance matrix in llama.cpp's own format (tools/imatrix/imatrix.cpp). Loads no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.errors import SetupError

_SUM, _COUNT = ".in_sum2", ".counts"


@dataclass(frozen=True)
class Importance:
    """Importance matrix of a model.

    Attributes:
        columns: mean square of each input column [in], fp32, by the weight's GGUF name.
        tokens: number of tokens that it was computed on.
    """

    columns: dict[str, npt.NDArray[np.float32]]
    tokens: int


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
            writer.add_tensor(name + _SUM, (columns.astype(np.float64) * importance.tokens).astype(np.float32)[None])
            writer.add_tensor(name + _COUNT, np.array([[importance.tokens]], dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def read_importance(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    """Read the mean square of each column, by the weight's name, from a file in llama.cpp's format.

    Raises:
        SetupError: The file is not in that format.
    """
    import gguf

    try:
        tensors: Mapping[str, Any] = {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}
        names = [name.removesuffix(_SUM) for name in tensors if name.endswith(_SUM)]
        return {
            name: (tensors[name + _SUM].reshape(-1) / max(float(tensors[name + _COUNT].reshape(-1)[0]), 1.0)).astype(
                np.float32
            )
            for name in names
        }
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise SetupError(f"{path} is no importance matrix: {error}.", "Export again.") from error
