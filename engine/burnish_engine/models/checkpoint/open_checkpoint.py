"""Open the weights of a checked model."""

from __future__ import annotations

from burnish_engine.models.checkpoint.gguf_file.folder import gguf_of
from burnish_engine.models.checkpoint.gguf_file.gguf_checkpoint import GgufCheckpoint
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.checkpoint.weights import Checkpoint


def open_checkpoint(source: ModelSource) -> Checkpoint:
    """Return the weights of a model, from its safetensors or its GGUF.

    Raises:
        SetupError: There are no weights, or a file is damaged; the message names it.
    """
    if gguf_of(source.folder) is not None:
        return GgufCheckpoint(source.folder)
    return Checkpoint(source.folder, wrapper=source.wrapper)
