"""Say whether a file is the one that an export proved, was changed since, or is unknown to the run's reports."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from burnish_engine.advise.facts.gguf_size import type_bytes
from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.facts.facts import FidelityReport, QuantFidelity
from burnish_engine.export.base.staging import Canceled, never, stop_if
from burnish_engine.models.checkpoint.gguf_file.header import GgufHeader

_BLOCK_BYTES = 2**20
_MOST_NAMED = 5  # tensors in a sentence
_SAME_FILE = 0.5  # share of equal tensors from which on a file of another name is taken for a changed one


@dataclass(frozen=True)
class FileHashes:
    """Hashes of a GGUF file."""

    file: str  # SHA-256 of the whole file, hexadecimal
    tensors: dict[str, str]  # SHA-256 of each tensor's data, hexadecimal, by its name


@dataclass(frozen=True)
class Provenance:
    """Answer of the reports about a file."""

    state: Literal["proven", "changed", "unknown"]  # as in `QuantFidelity.provenance`
    problem: str = ""  # what was changed since the file was proven, as a sentence; empty where nothing was


def hash_file(path: Path, header: GgufHeader, canceled: Canceled = never) -> FileHashes:
    """Hash a file and each of its tensors; every byte is read once.

    Args:
        path: GGUF file.
        header: header of the file.
        canceled: callback polled between blocks; True stops the work.

    Raises:
        SetupError: The file ends before a tensor does, or two tensors overlap.
        StoppedError: Canceled.
    """
    whole, tensors, at = hashlib.sha256(), dict[str, str](), 0
    places = sorted(
        ((header.data_start + header.offsets[tensor.name], tensor) for tensor in header.tensors), key=lambda one: one[0]
    )
    with path.open("rb") as file:

        def read(until: int | None, *digests: hashlib._Hash) -> None:
            nonlocal at
            while until is None or at < until:
                stop_if(canceled, "The verification")
                block = file.read(_BLOCK_BYTES if until is None else min(_BLOCK_BYTES, until - at))
                if not block:
                    break
                at += len(block)
                for digest in (whole, *digests):
                    digest.update(block)

        for start, tensor in places:
            end, digest = start + type_bytes(tensor.shape, tensor.type), hashlib.sha256()
            if start < at:
                raise SetupError(f"{path} is damaged: {tensor.name} overlaps another tensor.", "Export it again.")
            read(start)
            read(end, digest)
            if at < end:
                raise SetupError(
                    f"{path} is damaged: it ends {end - at} bytes before {tensor.name} does.",
                    "Make or download the file again.",
                )
            tensors[tensor.name] = digest.hexdigest()
        read(None)
    return FileHashes(whole.hexdigest(), tensors)


def find_provenance(name: str, found: FileHashes, reports: Iterable[FidelityReport]) -> Provenance:
    """Look a file up in the reports of exports.

    Args:
        name: name of the file.
        found: hashes of the file.
        reports: reports of the run's exports, and the one beside the file.
    """
    files = [file for report in reports for file in report.files if file.passed]
    if any(file.sha256 == found.file for file in files):
        return Provenance("proven")
    origin = _origin(name, found.tensors, files)
    if origin is None:
        return Provenance("unknown")
    return Provenance("changed", f"It changed since it was proven as {origin.file}: {_changes(origin, found.tensors)}.")


def _origin(name: str, tensors: Mapping[str, str], files: Sequence[QuantFidelity]) -> QuantFidelity | None:
    """The proven file that a file was made from by a change: that of its name, or the one with most equal tensors."""
    named = next((file for file in files if file.file == name), None)
    if named is not None or not files:
        return named
    nearest = max(files, key=lambda file: _equal(file, tensors))
    return nearest if _equal(nearest, tensors) > _SAME_FILE * len(tensors) else None


def _equal(file: QuantFidelity, tensors: Mapping[str, str]) -> int:
    return len(file.tensor_sha256.items() & tensors.items())


def _changes(origin: QuantFidelity, tensors: Mapping[str, str]) -> str:
    """Describe what differs, completing a sentence."""
    before = origin.tensor_sha256
    groups = {
        "other data in": [name for name in before if name in tensors and tensors[name] != before[name]],
        "without": [name for name in before if name not in tensors],
        "new:": [name for name in tensors if name not in before],
    }
    if not before:
        return "its SHA-256 is another one"
    said = [f"{what} {_listed(names)}" for what, names in groups.items() if names]
    return "; ".join(said) or "its tensors are as they were, and its settings, vocabulary or padding are not"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more tensors" if more > 0 else "")
