"""From what a recipe names (files, folders, archives, dataset folders) to the parts that are read, in a fixed order."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from burnish_engine.contract.errors import BurnishError, DataError
from burnish_engine.data.archive import refuse_bomb, zip_members
from burnish_engine.data.checks import format_of, size_of, unknown_kind, unreadable
from burnish_engine.data.hub_sets import HUB_PREFIX, hub_folder

MOST_PARTS = 100_000
"""Most files of a folder or archive."""

_PAGES = re.compile(r"(readme|license|licence|changelog|citation|contributing|notice)\b.*", re.IGNORECASE)
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
class Part:
    """One stretch of rows: a file, or a file in an archive.

    Attributes:
        path: The file on disk.
        format: A value of `checks.FORMATS`.
        size_bytes: As it lies there, packed where it is packed.
        packing: gz, zst, bz2, xz or zip; empty for a plain file.
        member: Its name within a zip archive.
        entry: Which of the recipe's files it belongs to, from 0.
    """

    path: Path
    format: str
    size_bytes: int
    packing: str = ""
    member: str = ""
    entry: int = 0

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return f"{self.path}/{self.member}" if self.member else str(self.path)

    @property
    def short_name(self) -> str:
        """Its name without folders."""
        return Path(self.member or self.path.name).name


@dataclass
class Found:
    """What lies under the names of a recipe.

    Attributes:
        parts: What is read, in order.
        left_out: Files that lie there and are not read: name to why.
    """

    parts: list[Part] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Of all parts, as they lie on disk."""
        return sum(part.size_bytes for part in self.parts)


def find_parts(names: Sequence[str]) -> Found:
    """The parts under some names, in the order of the names; within a folder or archive by name.

    Args:
        names: Files, folders, zip archives, or hub datasets as `hf://datasets/OWNER/NAME@REVISION`.

    Raises:
        DataError: Something is missing, empty, damaged or of no known kind.
        SetupError: A hub dataset is not here and no network is wanted.
    """
    found = Found()
    for entry, name in enumerate(names):
        path = hub_folder(name) if name.startswith(HUB_PREFIX) else Path(name)
        before = len(found.parts)
        if path.is_dir():
            _from_folder(path, entry, found)
        elif path.suffix.lower() == ".zip":
            _from_zip(path, entry, found)
        else:
            found.parts.append(_file(path, entry))
        if len(found.parts) - before > MOST_PARTS:
            raise DataError(f"{path} holds more than {MOST_PARTS:,} data files.", "Join them into fewer files.")
    return found


def files_under(names: Sequence[str]) -> list[Path]:
    """The files on disk that some names mean, each once, in order; a name as it is where nothing can be found there."""
    try:
        found = find_parts(names)
    except BurnishError:
        return [Path(name) for name in names]
    return list(dict.fromkeys(part.path for part in found.parts))


def _file(path: Path, entry: int) -> Part:
    file_format, packing = format_of(path.name)
    if not file_format and path.exists():
        raise unknown_kind(str(path))
    return Part(path, file_format, size_of(path), packing, entry=entry)


def _from_folder(folder: Path, entry: int, found: Found) -> None:
    try:
        names = sorted(
            path.relative_to(folder).as_posix()
            for path in folder.rglob("*")
            if path.is_file() and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
        )
    except OSError as error:
        raise unreadable(folder, error) from error
    archives = [name for name in names if name.lower().endswith(".zip")]
    for name in _chosen(names, str(folder), found, others=len(archives)):
        path = folder / name
        if path.stat().st_size:
            found.parts.append(_file(path, entry))
        else:
            found.left_out[str(path)] = "it is empty"
    for name in archives:
        _from_zip(folder / name, entry, found)


def _from_zip(path: Path, entry: int, found: Found) -> None:
    """Members are read where they lie and never written under their own names."""
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
    chosen = list(_chosen(names, str(path), found))
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
        found.parts.append(Part(path, file_format, info.compress_size, "zip", name, entry))


def _chosen(names: Sequence[str], where: str, found: Found, *, others: int = 0) -> Iterator[str]:
    """Those files of a folder or archive that hold rows to train on.

    Pages such as README.md, settings of the `datasets` library and splits for validation or testing are left out where
    there is something else.

    Args:
        names: Relative, with slashes, sorted.
        where: The folder or archive.
        found: Takes what is left out.
        others: Archives that lie in the folder too.
    """
    known = [name for name in names if format_of(name)[0] and _last(name) not in _SETTINGS]
    rows = [name for name in known if not _PAGES.fullmatch(_last(name))]
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


def _last(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def _split_of(name: str) -> str:
    """The split that a path's words name, as the hub's datasets do: data/train-00000-of-00002.parquet."""
    for part in reversed(name.lower().split("/")):
        for word in _WORDS.findall(part):
            if word in _SPLITS:
                return _SPLITS[word]
    return ""
