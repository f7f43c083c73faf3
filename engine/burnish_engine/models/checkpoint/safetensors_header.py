"""Read the header of a safetensors file: names, types, shapes, byte ranges. Safe on hostile files; loads no torch.

Format: 8 bytes of header length (little-endian), that many bytes of JSON, then the tensors without gaps
(https://github.com/huggingface/safetensors#format). The limits are those of its reference reader.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.files import read_plain, refuse_special

_LONGEST_HEADER = 100_000_000  # MAX_HEADER_SIZE of the reference reader
_LARGEST = 2**63 - 1
_MOST_DIMENSIONS = 64  # torch's
TYPE_BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
"""Bits of a number by its type's name in the format."""
PLAIN_TYPES = frozenset({"F64", "F32", "F16", "BF16"})
"""Types of weights that are not quantized."""
_REMEDY = "Download the file again, from a source you trust."


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file.

    Attributes:
        name: name of the tensor.
        file: file that holds it.
        dtype: type by the format's name, such as BF16.
        shape: size of each dimension.
        start: byte of the file where its data begins.
        end: byte of the file after its last one.
    """

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


def stored_tensors(file: Path) -> dict[str, StoredTensor]:
    """Return every tensor of a file by name.

    Raises:
        SetupError: The file cannot be read, or is damaged.
    """
    try:
        refuse_special(file)
        with file.open("rb") as opened:
            size = file.stat().st_size
            length = int.from_bytes(opened.read(8), "little")
            if size < 8 or length > min(_LONGEST_HEADER, size - 8):
                raise ValueError(f"its header would be {length} bytes of {size}")
            header = json.loads(opened.read(length).decode("utf-8"), object_pairs_hook=_no_duplicates)
        return _checked(header, file, 8 + length, size)
    except OSError as error:
        raise SetupError(f"{file} cannot be read: {error.strerror or error}.", "Check permissions and disk.") from error
    except (ValueError, TypeError, KeyError, RecursionError, MemoryError) as error:
        raise SetupError(f"{file} is damaged: {_short(error)}.", _REMEDY) from error


def folder_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Return every tensor of a folder: from `model.safetensors`, or else from the files that its index lists.

    Raises:
        SetupError: There is neither, the index is wrong or names a file outside the folder, or a file is damaged.
    """
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():  # transformers looks for them in this order
        return stored_tensors(single)
    if not index.is_file():
        raise SetupError(
            f"The model folder {folder} has neither {single.name} nor {index.name}.",
            "Download the model again, with all its files.",
        )
    places = _weight_map(index)
    files = {name: stored_tensors(folder / name) for name in sorted(set(places.values()))}
    lost = [name for name, file in places.items() if name not in files[file]]
    if lost:
        raise SetupError(
            f"{index} places {len(lost)} tensors in files that do not have them, first {_text(lost[0])} in "
            f"{places[lost[0]]}.",
            "Download the model again.",
        )
    return {name: files[file][name] for name, file in places.items()}


def _weight_map(index: Path) -> dict[str, str]:
    """Read an index: tensor to file name. All files must be safetensors inside the folder."""
    try:
        places = json.loads(read_plain(index))["weight_map"]
        if not places or not all(isinstance(name, str) for name in places.values()):
            raise TypeError
    except OSError as error:
        raise SetupError(
            f"{index} cannot be read: {error.strerror or error}.", "Check permissions and disk."
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise SetupError(f"{index} has no usable weight_map (tensor name to file name).", _REMEDY) from None
    for name in set(places.values()):
        leaves = any(path.anchor or ".." in path.parts for path in (PurePosixPath(name), PureWindowsPath(name)))
        if leaves or not name.endswith(".safetensors"):
            raise SetupError(
                f"{index} names the weight file {name!r}, which is not a safetensors file inside the model folder.",
                "Do not use this copy of the model; download it again from a source you trust.",
            )
    return dict(places)


def _checked(header: Any, file: Path, data_start: int, size: int) -> dict[str, StoredTensor]:
    if not isinstance(header, dict):
        raise TypeError(f"its header is a {type(header).__name__}, not an object")
    header.pop("__metadata__", None)
    found = [_tensor(name, entry, file, data_start) for name, entry in header.items()]
    end = data_start
    for tensor in sorted(found, key=lambda one: (one.start, one.end)):
        if tensor.start != end:
            raise ValueError(f"{_text(tensor.name)} begins at byte {tensor.start}, where {end} was expected")
        end = tensor.end
    if end != size:
        raise ValueError(f"its tensors end at byte {end}, the file at {size}")
    return {tensor.name: tensor for tensor in found}


def _tensor(name: str, entry: Any, file: Path, data_start: int) -> StoredTensor:
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if dtype not in TYPE_BITS:
        raise ValueError(f"{_text(name)} has the unknown type {_text(dtype)}")
    numbers = [*shape, *offsets]
    ranks = len(shape) <= _MOST_DIMENSIONS and len(offsets) == 2
    if not ranks or not all(type(number) is int and 0 <= number <= _LARGEST for number in numbers):
        raise ValueError(f"{_text(name)} has the shape {_text(shape)} and the offsets {_text(offsets)}")
    start, end = offsets
    bits = math.prod(shape) * TYPE_BITS[dtype]
    if bits != 8 * (end - start):
        raise ValueError(f"{_text(name)} of shape {_text(shape)} and type {dtype} has {end - start} bytes")
    return StoredTensor(name, file, dtype, tuple(shape), data_start + start, data_start + end)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("its header has a name twice")
    return found


def _text(value: object) -> str:
    """Format a value of the file for a message, shortened to 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _short(error: Exception) -> str:
    text = f"it lacks {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
    return text if len(text) <= 300 else f"{text[:297]}..."
