"""List a GGUF's tensors by the names that they have in a base model. Loads no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burnish_engine.contract.errors import SetupError
from burnish_engine.models.checkpoint.gguf_file.header import read_header
from burnish_engine.models.checkpoint.gguf_file.model_config import PLAIN
from burnish_engine.models.checkpoint.gguf_file.tensor_names import places
from burnish_engine.models.checkpoint.safetensors_header import StoredTensor
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.families import family
from burnish_kernels.gguf_blocks.types import row_bytes


def gguf_tensors(path: Path, config: Mapping[str, Any]) -> dict[str, StoredTensor]:
    """Return every tensor of a file's model by name; types are GGUF's, which calls plain ones as safetensors does.

    Args:
        path: the file.
        config: config.json that was read from it.

    Raises:
        SetupError: The file is damaged, or lacks tensors.
    """
    spec = decoder_spec(dict(config))
    known = family(spec.family) if spec else None
    if spec is None or known is None or known.gguf is None:
        raise SetupError(f"{path} is of no known family.", "Open the model again by its path.")
    header, size = read_header(path), path.stat().st_size
    shapes = {tensor.name: tensor for tensor in header.tensors}
    named, found = places(known.gguf, spec.num_layers), {}
    for name, shape in known.tensors(spec).items():
        (place,) = named(name) or ("",)
        tensor = shapes.get(place)
        if tensor is None:
            raise SetupError(f"{path} lacks the tensor {place or name}.", "Download the file again.")
        if tensor.shape != shape:
            raise SetupError(
                f"{place} in {path} has the shape {list(tensor.shape)} where {list(shape)} was expected.",
                "Download the file again.",
            )
        plain = PLAIN.get(tensor.type)
        count = math.prod(shape)
        length = count * plain if plain else count // tensor.row * row_bytes(tensor.type, tensor.row)
        start = header.data_start + header.offsets[place]
        if start + length > size:
            raise SetupError(f"{path} ends within {place}.", "Download the file again.")
        found[name] = StoredTensor(name, path, tensor.type, shape, start, start + length)
    return found
