"""Caches tokenized rows on disk, by the content of the files and the settings that they were made from.

Each entry is a folder with numbered shards and `manifest.json`, which is written last. A shard is written to a
temporary file and renamed once it is on the disk, so a killed process leaves whole shards and at most one unused file.
Without a manifest, the leading shards that are whole are used, and the rest is tokenized.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from burnish_engine.contract.errors import NoSpaceError
from burnish_engine.contract.files import make_private, write_atomic
from burnish_engine.contract.paths import user_cache_dir
from burnish_engine.contract.units import file_size
from burnish_engine.data.files.discover import DatasetPart
from burnish_engine.data.files.file_kinds import unreadable
from burnish_engine.data.tokens.shard import Shard, read_shard, write_shard

_LAYOUT = 8  # part of the key; raise it when what is stored changes
_MARGIN_BYTES = 500_000_000  # left free on the disk
_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class CacheEntry:
    """The cached shards of one dataset with one set of settings.

    Attributes:
        folder: folder of the shards.
    """

    folder: Path

    def lock(self) -> FileLock:
        """Return the lock that a process must hold to write shards."""
        self._make_folder()
        return FileLock(str(self.folder) + ".lock")

    def complete_shards(self) -> list[Shard] | None:
        """Open all shards; None unless the manifest exists and every shard that it lists is whole."""
        try:
            listed = json.loads((self.folder / _MANIFEST).read_text(encoding="utf-8"))["shards"]
            sizes = [int(size) for size in listed]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        found = list(self._from_first(sizes))
        return found if len(found) == len(sizes) else None

    def leading_shards(self) -> list[Shard]:
        """Open the shards from the first up to the first that is missing or not whole."""
        return list(self._from_first(None))

    def add(self, index: int, shard: Shard) -> Shard:
        """Write a shard, and return it mapped from the disk.

        Raises:
            NoSpaceError: The disk has no room, or the shard could not be written.
        """
        path = self._path(index)
        need = shard.tokens.nbytes + _MARGIN_BYTES
        try:
            if shutil.disk_usage(self.folder).free < need:
                raise NoSpaceError(
                    f"{self.folder.parent} has less than {file_size(need)} left for tokenized rows.",
                    "Free some space, or move Burnish's folder with BURNISH_HOME.",
                )
            write_shard(path, shard)
            return read_shard(path)
        except OSError as error:
            raise NoSpaceError(
                f"Tokenized rows could not be written to {path}: {error.strerror or error}.",
                "Free some space, or move Burnish's folder with BURNISH_HOME.",
            ) from error

    def finish(self, count: int) -> None:
        """Write the manifest, which says that the entry is complete with `count` shards.

        Raises:
            NoSpaceError: The manifest could not be written.
        """
        sizes = [self._path(index).stat().st_size for index in range(count)]
        write_atomic(self.folder / _MANIFEST, json.dumps({"shards": sizes}) + "\n")

    def _from_first(self, sizes: Sequence[int] | None) -> Iterator[Shard]:
        for index in range(len(sizes) if sizes is not None else 2**31):
            path = self._path(index)
            try:
                if sizes is not None and path.stat().st_size != sizes[index]:
                    return
                yield read_shard(path)
            except (OSError, ValueError, KeyError, TypeError):
                return

    def _path(self, index: int) -> Path:
        return self.folder / f"{index:05d}.arrow"

    def _make_folder(self) -> None:
        try:
            make_private(self.folder)
        except OSError as error:
            raise NoSpaceError(
                f"{self.folder} could not be made: {error.strerror or error}.",
                "Move Burnish's folder with BURNISH_HOME.",
            ) from error


def cache_entry_for(parts: Sequence[DatasetPart], spec_key: str) -> CacheEntry:
    """Return the cache entry for the tokenized rows of some parts.

    Args:
        parts: parts whose bytes are hashed, so that an edited file never matches an old entry.
        spec_key: key of the settings that the rows are processed with (`PipelineSpec.key`).

    Raises:
        DataError: A file cannot be read.
    """
    digest = hashlib.sha256(f"{_LAYOUT}\n{spec_key}\n".encode())
    hashes: dict[Path, str] = {}
    for part in parts:
        if part.path not in hashes:
            hashes[part.path] = _content_hash(part.path)
        digest.update(f"{hashes[part.path]} {part.format} {part.packing} {part.member}\n".encode("utf-8", "replace"))
    return CacheEntry(user_cache_dir() / "tokens" / digest.hexdigest()[:40])


def _content_hash(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error) from error
