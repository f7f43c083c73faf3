"""Find the models on this machine, Burnish's own and those of other programs. Only names and sizes are read.

Looked through are Burnish's folder, the hub's cache, the folders of LM Studio and Ollama, and those a person named.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from burnish_engine.contract.model_places import (
    MOST_ENTRIES,
    folders_in,
    hub_cache,
    lm_studio_folders,
    newest_snapshot,
    regular_file_size,
    small_text,
)
from burnish_engine.contract.paths import CACHED_MODEL, cached_model_name, expand_home, models_dir

LocalPlace = Literal["burnish", "folder", "hub_cache", "lm_studio", "ollama"]
_MOST = 200  # models that are listed of a place
_LONGEST_MANIFEST = 1_000_000  # bytes
_LONGEST_CONFIG = 50_000_000  # bytes
_BLOB = re.compile(r"sha256:[0-9a-f]{64}")
_LARGEST = 2**60  # bytes; no disk holds more


@dataclass(frozen=True)
class FoundModel:
    """A model on this machine.

    Attributes:
        name: name that the program gives it whose folder it is in.
        place: that program.
        folder: its folder; of Ollama the one with all files.
        file: its GGUF, where that is all there is and it is one file; else None.
        bytes: size of its weights.
        gguf_only: whether its weights are GGUF files only, or parts of one.
    """

    name: str
    place: LocalPlace
    folder: Path
    bytes: int
    gguf_only: bool
    file: Path | None = None

    @property
    def path(self) -> str:
        """Name, file or folder for a recipe's `model.path`."""
        if self.file is not None:
            return str(self.file)
        return self.name if self.place == "burnish" else str(self.folder)


def ollama_folder() -> Path:
    """Return the folder in which Ollama keeps models."""
    named = os.environ.get("OLLAMA_MODELS")
    return expand_home(named) if named else Path.home() / ".ollama" / "models"


def find_local_models(folders: Sequence[str] = ()) -> list[FoundModel]:
    """List the models on this machine, GGUF files last; unreadable ones are left out.

    Args:
        folders: further folders of models.
    """
    found = [*islice(_fetched(models_dir()), _MOST), *islice(_in_hub_cache(hub_cache()), _MOST)]
    found += islice(_in_ollama(ollama_folder()), _MOST)
    for named in map(Path, folders[:_MOST]):
        found += _model(named, named.name, "folder")
    for folder in lm_studio_folders():
        found += islice(_in_lm_studio(folder), _MOST)
    found = [model for model in found if _is_text(f"{model.name}{model.folder}")]
    return sorted(found, key=lambda model: (model.gguf_only, model.name.casefold()))


def _fetched(models: Path) -> Iterator[FoundModel]:
    for folder in folders_in(models):
        owner, _, name = folder.name.partition("--")
        if name:
            yield from _model(folder, f"{owner}/{name}", "burnish")


def _in_hub_cache(cache: Path) -> Iterator[FoundModel]:
    for repository in folders_in(cache):
        snapshot = newest_snapshot(repository) if repository.name.startswith(CACHED_MODEL) else None
        if snapshot is not None:
            yield from _model(snapshot, cached_model_name(snapshot), "hub_cache")


def _in_lm_studio(models: Path) -> Iterator[FoundModel]:
    for publisher in folders_in(models):
        for folder in folders_in(publisher):
            yield from _model(folder, f"{publisher.name}/{folder.name}", "lm_studio")


def _in_ollama(models: Path) -> Iterator[FoundModel]:
    """List Ollama's models: each is a manifest that names its GGUF by its hash."""
    root = models / "manifests"
    try:
        manifests = sorted(islice(root.glob("*/*/*/*"), MOST_ENTRIES))
    except OSError:
        return
    for manifest in manifests:
        size, digest = _ollama_weights(manifest)
        if size:
            owner, name, tag = manifest.parts[-3:]
            title = f"{name}:{tag}" if owner == "library" else f"{owner}/{name}:{tag}"
            file = models / "blobs" / digest.replace(":", "-")
            yield FoundModel(title, "ollama", models, size, gguf_only=True, file=file if _BLOB.match(digest) else None)


def _ollama_weights(manifest: Path) -> tuple[int, str]:
    """Return size and hash of the weights that a manifest names; 0 where it names none or cannot be read."""
    try:
        layers = json.loads(small_text(manifest, _LONGEST_MANIFEST) or "")["layers"]
        weights = [layer for layer in layers if str(layer["mediaType"]).endswith(".image.model")]
        size = sum(int(layer["size"]) for layer in weights)
        digest = str(weights[0].get("digest", "")) if len(weights) == 1 else ""
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return 0, ""
    return (size if 0 < size <= _LARGEST else 0), digest


def _model(folder: Path, name: str, place: LocalPlace) -> Iterator[FoundModel]:
    """Describe a folder that holds weights; nothing else is a model."""
    sizes = {ending: _sizes(folder, ending) for ending in ("safetensors", "gguf")}
    config = regular_file_size(folder / "config.json")
    whole = sizes["safetensors"] if config is not None and config <= _LONGEST_CONFIG else []
    if whole or sizes["gguf"]:
        size = sum(whole or sizes["gguf"])
        yield FoundModel(name, place, folder, size, gguf_only=not whole, file=None if whole else _only_gguf(folder))


def _only_gguf(folder: Path) -> Path | None:
    """Return a folder's GGUF with a language model; None where it has several. Some have one for images beside it."""
    files = [path for path in islice(folder.glob("*.gguf"), MOST_ENTRIES) if "mmproj" not in path.name.lower()]
    return files[0] if len(files) == 1 else None


def _sizes(folder: Path, ending: str) -> list[int]:
    """Return the sizes of a folder's files; none where an entry is no file, such as a pipe, which nothing may open."""
    sizes = list[int]()
    try:
        for path in islice(folder.glob(f"*.{ending}"), MOST_ENTRIES):
            if path.is_symlink() and not path.exists():  # its file is gone
                continue
            size = regular_file_size(path)
            if size is None:
                return []
            sizes.append(size)
    except OSError:
        return []
    return sizes


def _is_text(name: str) -> bool:
    """Whether a name from a file system is text that can be sent: it may hold bytes of another encoding."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
