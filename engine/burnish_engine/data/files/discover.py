"""Finds the data files under the names of a recipe (files, folders, archives, hub datasets), in a fixed order."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from burnish_engine.contract.errors import BurnishError, DataError
from burnish_engine.contract.paths import is_address
from burnish_engine.contract.plain_text import is_unicode
from burnish_engine.data.files.archive import refuse_bomb, zip_members
from burnish_engine.data.files.dataset_folders import splits_of
from burnish_engine.data.files.file_kinds import format_of, size_of, unknown_kind, unreadable
from burnish_engine.data.files.hub_datasets import hub_folder

MOST_PARTS = 100_000
"""Most data files of a folder or archive."""

_DOC_PAGES = re.compile(r"(readme|license|licence|changelog|citation|contributing|notice)\b.*", re.IGNORECASE)
_SETTINGS = {
    "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "package.json", "manifest.json",
}  # fmt: skip
_SPLITS = {
    "train": "train", "training": "train",
    "validation": "validation", "valid": "validation", "val": "validation", "dev": "validation",
    "test": "test", "testing": "test", "eval": "test", "evaluation": "test", "heldout": "test",
}  # fmt: skip
_WORDS = re.compile(r"[a-z]+")


@dataclass(frozen=True)
class DatasetPart:
    """One part of a dataset: a data file, or a data file in an archive.

    Attributes:
        path: path of the file or archive on disk.
        format: value of `file_kinds.FORMATS`.
        size_bytes: size on disk, compressed where the part is compressed.
        packing: gz, zst, bz2, xz or zip; empty for a plain file.
        member: name of the file within a zip archive.
        entry: index of the recipe's entry that the part belongs to, from 0.
    """

    path: Path
    format: str
    size_bytes: int
    packing: str = ""
    member: str = ""
    entry: int = 0

    @property
    def name(self) -> str:
        """Name of the part in messages."""
        return f"{self.path}/{self.member}" if self.member else str(self.path)

    @property
    def short_name(self) -> str:
        """Name of the file without folders."""
        return Path(self.member or self.path.name).name


@dataclass
class FoundParts:
    """The data files under the names of a recipe.

    Attributes:
        parts: parts to read, in order.
        left_out: files there that are not read: name to reason.
    """

    parts: list[DatasetPart] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Size of all parts on disk."""
        return sum(part.size_bytes for part in self.parts)


def find_parts(names: Sequence[str]) -> FoundParts:
    """Find the parts under some names, in the order of the names; within a folder or archive, sorted by name.

    Args:
        names: files, folders, zip archives, or hub datasets as `hf://datasets/OWNER/NAME@REVISION`.

    Raises:
        DataError: Something is missing, empty, damaged or of no known kind.
        UsageError: An address is not one of a hub dataset, or the hub has no such dataset.
        SetupError: A hub dataset is not on this machine, and the environment asks for no network or the hub was not
            reached.
    """
    found = FoundParts()
    for entry, name in enumerate(names):
        add_parts(found, name, entry)
    return found


def add_parts(found: FoundParts, name: str, entry: int) -> None:
    """Find the parts under one name and add them to those found.

    Args:
        found: parts so far; it is changed.
        name: file, folder, archive or hub dataset, as `find_parts` takes them.
        entry: index of the name in the recipe.

    Raises:
        BurnishError: one of the errors of `find_parts`.
    """
    path = hub_folder(name) if is_address(name) else Path(name)
    before = len(found.parts)
    if path.is_dir():
        _from_folder(path, entry, found)
    elif path.suffix.lower() == ".zip":
        _from_zip(path, entry, found)
    else:
        found.parts.append(_file(path, entry))
    if len(found.parts) == before:
        raise DataError(f"Every data file in {path} is empty or packed twice.", "Check that they were copied.")
    if len(found.parts) - before > MOST_PARTS:
        raise DataError(f"{path} holds more than {MOST_PARTS:,} data files.", "Join them into fewer files.")


def files_under(names: Sequence[str]) -> list[Path]:
    """List the files on disk under some names, each once, in order; where that fails, return the names as paths."""
    try:
        found = find_parts(names)
    except BurnishError:
        return [Path(name) for name in names]
    return list(dict.fromkeys(part.path for part in found.parts))


def _file(path: Path, entry: int) -> DatasetPart:
    file_format, packing = format_of(path.name)
    if not file_format and path.exists():
        raise unknown_kind(str(path))
    return DatasetPart(path, file_format, size_of(path), packing, entry=entry)


def _from_folder(folder: Path, entry: int, found: FoundParts) -> None:
    try:
        names = sorted(
            path.relative_to(folder).as_posix()
            for path in folder.rglob("*")
            if path.is_file() and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        )
    except OSError as error:
        raise unreadable(folder, error) from error
    for name in names:
        if not is_unicode(name):
            raise DataError(f"The name of {folder / name} is not valid UTF-8 text.", "Rename the file.")
    if listed := splits_of(folder):
        _from_splits(folder, names, listed, entry, found)
        return
    archives = [name for name in names if name.lower().endswith(".zip")]
    for name in _files_to_read(names, str(folder), found, others=len(archives)):
        path = folder / name
        if path.stat().st_size:
            found.parts.append(_file(path, entry))
        else:
            found.left_out[str(path)] = "it is empty"
    for name in archives:
        _from_zip(folder / name, entry, found)


def _from_splits(
    folder: Path, names: Sequence[str], listed: dict[str, list[str]], entry: int, found: FoundParts
) -> None:
    """Add the files of a folder that `datasets` lists for its splits, without those for validation and testing."""
    kinds = {split: _split_of(split) for split in listed}
    for split, files in listed.items():
        other = kinds[split] if "train" in kinds.values() and kinds[split] in ("validation", "test") else ""
        for name in files:
            path = folder / name
            if other:
                found.left_out[str(path)] = f"it is of the split {other}; name it in validation_files"
            elif path.stat().st_size:
                found.parts.append(_file(path, entry))
            else:
                found.left_out[str(path)] = "it is empty"
    known = {name for files in listed.values() for name in files}
    for name in names:
        if format_of(name)[0] and name not in known and not _is_beside(name):
            found.left_out[f"{folder}/{name}"] = "the dataset does not list it"


def _from_zip(path: Path, entry: int, found: FoundParts) -> None:
    """Add the data files of an archive; they are read within it and never written under their own names."""
    size_bytes = size_of(path)
    try:
        members = zip_members(path)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise DataError(f"{path} is not a whole zip archive: {error}.", "Pack or download it again.") from error
    names = [
        name
        for name in sorted(members)
        if not any(part.startswith((".", "__MACOSX")) and part != ".." for part in name.split("/"))
    ]
    chosen = list(_files_to_read(names, str(path), found))
    refuse_bomb(str(path), size_bytes, (members[name].file_size for name in chosen))
    for name in chosen:
        info = members[name]
        if info.flag_bits & 1:
            raise DataError(f"{name} in {path} is encrypted.", "Unpack it first.")
        if not info.file_size:
            found.left_out[f"{path}/{name}"] = "it is empty"
            continue
        file_format, packing = format_of(name)
        if packing:
            found.left_out[f"{path}/{name}"] = "it is packed once more; unpack it first"
            continue
        found.parts.append(DatasetPart(path, file_format, info.compress_size, "zip", name, entry))


def _files_to_read(names: Sequence[str], where: str, found: FoundParts, *, others: int = 0) -> Iterator[str]:
    """Yield the names of the files in a folder or archive that hold rows to train on.

    Pages such as README.md, settings of the `datasets` library and splits for validation or testing are left out where
    other data files exist.

    Args:
        names: relative names of all files, with slashes, sorted.
        where: name of the folder or archive in messages.
        found: result that left-out files are added to.
        others: number of archives in the folder.
    """
    known = [name for name in names if format_of(name)[0] and _base_name(name) not in _SETTINGS]
    rows = [name for name in known if not _is_beside(name)]
    splits = {name: _split_of(name) for name in rows}
    if "train" in splits.values():
        for name in rows:
            if splits[name] in ("validation", "test"):
                found.left_out[f"{where}/{name}"] = f"it is of the split {splits[name]}; name it in validation_files"
        rows = [name for name in rows if splits[name] not in ("validation", "test")]
    chosen = rows or ([] if others else known)
    if not chosen and not others:
        raise DataError(
            f"{where} holds no data file of a known kind ({len(names)} files looked at).",
            "Give the files themselves, or convert them.",
        )
    unknown = [name for name in names if not format_of(name)[0] and not name.lower().endswith(".zip")]
    for name in unknown:
        found.left_out[f"{where}/{name}"] = "its kind is not known"
    yield from chosen


def _is_beside(name: str) -> bool:
    """Whether a file stands beside the rows: a page such as README.md, or settings of the `datasets` library."""
    return _base_name(name) in _SETTINGS or _DOC_PAGES.fullmatch(_base_name(name)) is not None


def _base_name(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def _split_of(name: str) -> str:
    """Return the split that the words of a path name, such as train in data/train-00000-of-00002.parquet."""
    for part in reversed(name.lower().split("/")):
        for word in _WORDS.findall(part):
            if word in _SPLITS:
                return _SPLITS[word]
    return ""
