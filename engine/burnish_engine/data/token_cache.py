"""Tokenized rows kept on disk by the content that they were made from. Trusted only where they are whole.

A folder for each content: numbered shards, and `manifest.json`, written last. A shard is written aside and renamed
once it is on the disk, so that a process that is killed leaves whole shards and at most one file that nobody reads.
Without a manifest the shards from the first on, as far as they are whole, are used, and the rest is made.
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
from burnish_engine.data.checks import unreadable
from burnish_engine.data.places import Part
from burnish_engine.data.shard import Shard, read_shard, write_shard

_LAYOUT = 3  # part of the key; raise it when what is stored changes
_MARGIN_BYTES = 500_000_000  # left free on the disk
_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Kept:
    """The place for one content's shards.

    Attributes:
        folder: Where they lie.
    """

    folder: Path

    def lock(self) -> FileLock:
        """One process at a time makes them."""
        self._made()
        return FileLock(str(self.folder) + ".lock")

    def whole(self) -> list[Shard] | None:
        """All shards, if the manifest says that they are all there, and they are."""
        try:
            listed = json.loads((self.folder / _MANIFEST).read_text(encoding="utf-8"))["shards"]
            sizes = [int(size) for size in listed]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        found = list(self._from_first(sizes))
        return found if len(found) == len(sizes) else None

    def begun(self) -> list[Shard]:
        """The shards from the first on that are whole."""
        return list(self._from_first(None))

    def add(self, index: int, shard: Shard) -> Shard:
        """Keep a shard; what comes back is mapped from the disk.

        Raises:
            NoSpaceError: It could not be written.
        """
        path = self._path(index)
        need = shard.tokens.nbytes + _MARGIN_BYTES
        try:
            if shutil.disk_usage(self.folder).free < need:
                raise NoSpaceError(
                    f"{self.folder.parent} has less than {need / 1e9:.1f} GB left for tokenized rows.",
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
        """Say that there are as many shards and no more.

        Raises:
            NoSpaceError: It could not be written.
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

    def _made(self) -> None:
        try:
            make_private(self.folder)
        except OSError as error:
            raise NoSpaceError(
                f"{self.folder} could not be made: {error.strerror or error}.",
                "Move Burnish's folder with BURNISH_HOME.",
            ) from error


def kept_for(parts: Sequence[Part], instructions_key: str) -> Kept:
    """The place for what some parts become.

    Args:
        parts: Their bytes are read to be hashed, so that an edited file is never mistaken for what it was.
        instructions_key: Of what is done with them.

    Raises:
        DataError: A file cannot be read.
    """
    digest = hashlib.sha256(f"{_LAYOUT}\n{instructions_key}\n".encode())
    hashes: dict[Path, str] = {}
    for part in parts:
        if part.path not in hashes:
            hashes[part.path] = _content_hash(part.path)
        digest.update(f"{hashes[part.path]} {part.format} {part.packing} {part.member}\n".encode("utf-8", "replace"))
    return Kept(user_cache_dir() / "tokens" / digest.hexdigest()[:40])


def _content_hash(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise unreadable(path, error) from error
