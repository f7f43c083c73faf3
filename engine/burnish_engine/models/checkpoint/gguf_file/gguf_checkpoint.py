"""Read a GGUF's weights as the base model has them: what the converter changed is undone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from typing_extensions import override

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.files import read_plain
from burnish_engine.models.checkpoint.gguf_file.changes import original
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.checkpoint.weights import Checkpoint
from burnish_engine.models.families import family
from burnish_kernels.gguf_blocks import op as gguf_blocks
from burnish_kernels.gguf_blocks.blocks import GgufBlocks
from burnish_kernels.gguf_blocks.types import BLOCK_TYPES, row_bytes

_PIECE = 1 << 26  # weights that are decoded at a time


class GgufCheckpoint(Checkpoint):
    """The weights of a model folder that was made of a GGUF.

    Args:
        folder: the folder, see `gguf_folder`.

    Raises:
        SetupError: The file is gone or damaged.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        config: dict[str, Any] = json.loads(read_plain(folder / "config.json"))
        spec = decoder_spec(config)
        known = family(spec.family) if spec else None
        assert spec is not None
        assert known is not None
        assert known.gguf is not None
        self._spec, self._rules = spec, known.gguf

    @override
    def block_type(self, name: str) -> str:
        kind = self.dtype(name) if name in self else ""
        return kind if kind in BLOCK_TYPES else ""

    @override
    def read_blocks(self, name: str) -> GgufBlocks:
        rows = self._blocks(name, 0, self.shape(name)[0])
        return GgufBlocks(original(self._rules, self._spec, name, rows.data), rows.kind)

    @override
    def read(self, name: str) -> torch.Tensor:
        if not self.block_type(name):
            return original(self._rules, self._spec, name, super().read(name))
        return gguf_blocks.dequantize(self.read_blocks(name), dtype=torch.float32)

    @override
    def read_into(self, name: str, destination: torch.Tensor, rows: slice | None = None) -> None:
        kind, shape = self.block_type(name), self.shape(name)
        first, end, _ = (rows or slice(None)).indices(shape[0]) if shape else (0, 0, 1)
        if tuple(destination.shape) != (end - first, *shape[1:]):
            raise SetupError(
                f"The tensor {name} has the shape {[end - first, *shape[1:]]} where {list(destination.shape)} was "
                "expected.",
                "Download the file again.",
            )
        if not kind:
            changed = self._changes(name)
            if changed:
                destination.copy_(self.read(name)[first:end])
            else:
                super().read_into(name, destination, rows)
        elif self._changes(name):
            self._decode(GgufBlocks(self.read_blocks(name).data[first:end], kind), destination)
        else:
            step = max(1, _PIECE // shape[1])
            for start in range(first, end, step):
                part = self._blocks(name, start, min(step, end - start))
                self._decode(part, destination[start - first : start - first + step])

    def _changes(self, name: str) -> bool:
        """Return whether the converter changed a tensor."""
        rows = self.shape(name)[0]
        probe = torch.arange(rows, dtype=torch.float32)
        return not torch.equal(original(self._rules, self._spec, name, probe), probe)

    def _decode(self, weight: GgufBlocks, destination: torch.Tensor) -> None:
        """Write a weight's values where they belong, decoded there."""
        there = GgufBlocks(weight.data.to(destination.device), weight.kind)
        gguf_blocks.dequantize(there, dtype=destination.dtype, out=destination.detach())

    def _blocks(self, name: str, first: int, count: int) -> GgufBlocks:
        """Read some of a weight's rows as they lie in the file."""
        stored = self._stored(name)
        size = row_bytes(stored.dtype, stored.shape[1])
        data = torch.empty(count, size, dtype=torch.uint8)
        self._fill(data.view(-1), stored, stored.start + first * size)
        return GgufBlocks(data, stored.dtype)
