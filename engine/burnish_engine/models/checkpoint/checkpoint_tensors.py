"""List the tensors of a model folder, whose weights are safetensors or lie in a GGUF. Loads no torch."""

from __future__ import annotations

import json
from pathlib import Path

from burnish_engine.contract.files import read_plain
from burnish_engine.models.checkpoint.gguf_file.folder import gguf_of
from burnish_engine.models.checkpoint.gguf_file.tensors import gguf_tensors
from burnish_engine.models.checkpoint.safetensors_header import StoredTensor, folder_tensors


def checkpoint_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Return every tensor of a model folder by name.

    Raises:
        SetupError: There are no weights, they are damaged, or an index names a file outside the folder.
    """
    gguf = gguf_of(folder)
    if gguf is None:
        return folder_tensors(folder)
    return gguf_tensors(gguf, json.loads(read_plain(folder / "config.json")))
