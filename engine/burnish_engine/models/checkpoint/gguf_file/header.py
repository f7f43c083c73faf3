"""Read the metadata and the tensor table of a GGUF file, fast and safely on hostile files.

`gguf.GGUFReader` takes seconds for a large vocabulary; this reader skips long arrays. Format:
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from burnish_engine.contract.errors import SetupError, UsageError

MERGED_ONTO, DEQUANTIZED = "burnish.merged_onto", "dequantized"
"""Key and value in files whose adapter was added to weights rounded to NF4 instead of the base's own."""
ADAPTER_DIGEST, MODEL_DIGEST = "burnish.adapter_sha256", "burnish.model_sha256"
"""Keys with the SHA-256 of the adapter that a file was made from, or of the weights where all were trained."""
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_NUMBERS = ("general.alignment", "general.file_type", "tokenizer.ggml.tokens")  # array of which only the length is kept
_NUMBERS_OF_ARCHITECTURE = (
    "vocab_size", "context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count",
    "attention.head_count_kv", "attention.key_length", "attention.value_length", "rope.dimension_count",
    "rope.freq_base", "attention.layer_norm_rms_epsilon",
)  # fmt: skip
_LONGEST_STRING = 64 * 1024 * 1024
_MOST_TENSORS = 1_000_000
_SHORT_ARRAY = 1024  # one number a layer
_MOST_DIMENSIONS = 4  # GGML_MAX_DIMS


@dataclass(frozen=True)
class TensorShape:
    """One tensor of a GGUF."""

    name: str  # name of the tensor in the GGUF
    shape: tuple[int, ...]  # dimensions, rows first; the last number is the length of a row
    type: str = "F16"  # type before quantization: F32, F16, BF16 or MXFP4

    @property
    def row(self) -> int:
        """Length of a row, numbers."""
        return self.shape[-1]


@dataclass(frozen=True)
class GgufHeader:
    """Content of a GGUF before its tensor data."""

    metadata: dict[str, Any]  # value of each key; short arrays of numbers as tuples, others as their length
    tensors: list[TensorShape]  # every tensor with its type
    data_start: int  # offset of the tensor data, bytes
    offsets: dict[str, int] = field(default_factory=dict)  # offset of each tensor's data after `data_start`, bytes

    @property
    def architecture(self) -> str:
        """Value of `general.architecture`."""
        return str(self.metadata.get("general.architecture", ""))

    def number(self, key: str, default: int = 0) -> int:
        """Return an integer of the architecture, such as `attention.head_count`; of a list, the first layer's."""
        value = self.metadata.get(f"{self.architecture}.{key}", default)
        if isinstance(value, tuple):
            value = value[0] if value else default
        return value if isinstance(value, int) else default

    @property
    def queries_per_key(self) -> int:
        """Query heads per key head in the first layer, as llama.cpp counts them; 0 where there are no key heads."""
        heads, keys = self.number("attention.head_count", 1), self.number("attention.head_count_kv", 1)
        return heads // keys if keys else 0

    def type_counts(self) -> dict[str, int]:
        """Number of tensors of each type, most frequent first."""
        counts: dict[str, int] = {}
        for tensor in self.tensors:
            counts[tensor.type] = counts.get(tensor.type, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: -item[1]))


def read_header(path: Path, arrays: Collection[str] = ()) -> GgufHeader:
    """Read a file's metadata and tensor table.

    Args:
        path: The file.
        arrays: keys of arrays that are read completely, such as the vocabulary's.

    Raises:
        UsageError: The file cannot be read, or is no GGUF.
        SetupError: The file is damaged.
    """
    if path.exists() and not path.is_file():  # a pipe would block
        raise UsageError(f"{path} is a folder, a pipe or a device.", "Give a .gguf file.")
    try:
        with path.open("rb") as file:
            return _read(file, path, arrays)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.", "Check the path.") from error
    except (struct.error, ValueError, UnicodeDecodeError, OverflowError, MemoryError) as error:
        raise SetupError(f"{path} is damaged: {error}.", "Make or download the file again.") from error


def _read(file: BinaryIO, path: Path, arrays: Collection[str]) -> GgufHeader:
    if (start := file.read(4)) != b"GGUF":
        raise UsageError(f"{path} is not a GGUF file (it starts with {start!r}).", "Give a .gguf file.")
    version, tensor_count, key_count = _unpack(file, "I"), _unpack(file, "Q"), _unpack(file, "Q")
    if version not in {2, 3} or tensor_count > _MOST_TENSORS or key_count > _MOST_TENSORS:
        raise ValueError(f"version {version} with {tensor_count} tensors and {key_count} keys")
    metadata = dict(_pair(file, arrays) for _ in range(key_count))
    table = [_tensor(file) for _ in range(tensor_count)]
    _require_numbers({key: value for key, value in metadata.items() if key not in arrays})
    alignment = metadata.get("general.alignment", 32)
    if alignment < 8 or alignment % 8:
        raise ValueError(f"general.alignment is {alignment}, not a multiple of 8")
    end = file.tell()
    offsets = {tensor.name: offset for tensor, offset in table}
    return GgufHeader(metadata, [tensor for tensor, _ in table], -(-end // alignment) * alignment, offsets)


def _require_numbers(metadata: dict[str, Any]) -> None:
    """Refuse text where the format has a number, or one for each layer."""
    architecture = metadata.get("general.architecture", "")
    for key in (*_NUMBERS, *(f"{architecture}.{name}" for name in _NUMBERS_OF_ARCHITECTURE)):
        value = metadata.get(key, 0)
        if not all(isinstance(part, int | float) for part in (value if isinstance(value, tuple) else (value,))):
            raise ValueError(f"{key} is {str(value)[:60]!r}, not a number")
    if not isinstance(metadata.get("general.alignment", 0), int):
        raise ValueError(f"general.alignment is {metadata['general.alignment']}, not a whole number")


def _unpack(file: BinaryIO, code: str) -> Any:
    size = struct.calcsize(f"<{code}")
    return struct.unpack(f"<{code}", file.read(size))[0]


def _string(file: BinaryIO) -> str:
    length = _unpack(file, "Q")
    if length > _LONGEST_STRING:
        raise ValueError(f"a text of {length} bytes")
    return _exactly(file, length).decode("utf-8", "replace")


def _exactly(file: BinaryIO, count: int) -> bytes:
    if count > (left := os.fstat(file.fileno()).st_size - file.tell()):
        raise ValueError(f"{count} bytes were expected and {left} are left")
    return file.read(count)


def _pair(file: BinaryIO, arrays: Collection[str]) -> tuple[str, Any]:
    key, kind = _string(file), _unpack(file, "I")
    return key, _array(file, whole=key in arrays) if kind == _ARRAY else _value(file, kind)


def _value(file: BinaryIO, kind: int) -> Any:
    return _string(file) if kind == _STRING else _unpack(file, _code(kind))


def _code(kind: int) -> str:
    """Return the format of a number for `struct`."""
    if kind not in _SCALARS:
        raise ValueError(f"a value is of the unknown type {kind}")
    return _SCALARS[kind]


def _array(file: BinaryIO, *, whole: bool) -> int | tuple[Any, ...]:
    kind, count = _unpack(file, "I"), _unpack(file, "Q")
    if kind == _STRING and whole:
        return tuple(_string(file) for _ in range(count))
    if kind in _SCALARS and (whole or count <= _SHORT_ARRAY):
        return struct.unpack(f"<{count}{_SCALARS[kind]}", _exactly(file, count * struct.calcsize(_SCALARS[kind])))
    if kind == _STRING:
        for _ in range(count):
            file.seek(_unpack(file, "Q"), 1)
    else:
        file.seek(count * struct.calcsize(f"<{_code(kind)}"), 1)
    return int(count)


def _tensor(file: BinaryIO) -> tuple[TensorShape, int]:
    """Read a tensor's entry and the offset of its data."""
    from gguf.constants import GGMLQuantizationType

    name, dimensions = _string(file), _unpack(file, "I")
    if dimensions > _MOST_DIMENSIONS:
        raise ValueError(f"the tensor {name[:60]!r} has {dimensions} dimensions")
    shape = tuple(_unpack(file, "Q") for _ in range(dimensions))
    kind = GGMLQuantizationType(_unpack(file, "I")).name
    return TensorShape(name, shape[::-1], kind), _unpack(file, "Q")
