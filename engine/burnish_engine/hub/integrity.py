"""Compares a model's files with their published checksums, where this machine knows them. No torch.

Known are those of models that Burnish fetched (its manifest) and of the hub's cache, which names each file's content by
its checksum: SHA-256 of large files, git's SHA-1 of small ones.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.facts.advice import ModelIntegrity
from burnish_engine.contract.files import refuse_special
from burnish_engine.contract.paths import safe_name
from burnish_engine.hub.manifest import read_manifest
from burnish_engine.runs.file_hashes import known_sha256

Progress = Callable[[str, int, int], None]

_BLOCK_BYTES = 2**20  # between two calls of a hash's `canceled`
_LARGEST_BLOB_BYTES = 50_000_000  # larger files are in large-file storage, which names them by SHA-256


def check_files(folder: Path, progress: Progress) -> ModelIntegrity:
    """Compare the files of a model with their published checksums. Hashes of files that did not change are kept.

    Args:
        folder: folder of the model.
        progress: callback given the file's name, the bytes that were read and all bytes; it may raise to stop.

    Returns:
        Number and size of the files that are as published, and how many have no known checksum.

    Raises:
        SetupError: A file is missing, cannot be read, or has other content.
    """
    try:
        published = _published(folder)
        files = [path for path in sorted(folder.iterdir()) if path.is_file() and path.suffix != ".md"]
    except OSError as error:
        what = f"The model's folder {folder} cannot be read: {error.strerror or error}."
        raise SetupError(what, "Fetch the model, or check its path.") from error
    total = sum((folder / name).stat().st_size for name in published if (folder / name).is_file())
    done = 0
    for name, wanted in published.items():
        path, before = folder / name, done

        def read(name: str = name, before: int = before) -> bool:
            nonlocal done
            done = min(done + _BLOCK_BYTES, total)
            progress(name, max(before, done), total)
            return False

        try:
            progress(name, before, total)
            found = known_sha256(path, read) if len(wanted) == len(hashlib.sha256().hexdigest()) else _git_sha1(path)
            done = before + path.stat().st_size
        except OSError as error:
            raise SetupError(
                f"{name} of the model in {folder} cannot be read: {error.strerror or error}.", "Fetch the model again."
            ) from error
        if found != wanted:
            raise SetupError(
                f"{name} of the model in {folder} is damaged: its content is not the published one (checksum "
                f"{found[:12]}..., expected {wanted[:12]}...).",
                "Fetch the model again.",
            )
    return ModelIntegrity(
        checked=len(published), bytes=done, unpublished=sum(file.name not in published for file in files)
    )


def _published(folder: Path) -> dict[str, str]:
    """Map the name of each file with a known checksum to that checksum."""
    manifest = read_manifest(folder)
    if manifest is not None:
        return {file.name: file.sha256 for file in manifest.files if safe_name(file.name) == file.name}
    found = {}
    for path in sorted(folder.iterdir()):
        target = path.resolve()
        by_content = target.parent.name == "blobs" and re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", target.name)
        if by_content and (len(target.name) == len(hashlib.sha256().hexdigest()) or _is_small(target)):
            found[path.name] = target.name
    return found


def _is_small(path: Path) -> bool:
    return path.is_file() and path.stat().st_size <= _LARGEST_BLOB_BYTES


def _git_sha1(path: Path) -> str:
    refuse_special(path)
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
