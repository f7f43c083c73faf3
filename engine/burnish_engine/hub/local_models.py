"""Find the models on this machine, Burnish's own and those of other programs. Only names and sizes are read.

Looked through are Burnish's folder, the hub's cache, the folders of LM Studio and Ollama, and those a person named.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from burnish_engine.contract.files import read_plain
from burnish_engine.contract.paths import CACHED_MODEL, cached_model_name, expand_home, models_dir

LocalPlace = Literal["burnish", "folder", "hub_cache", "lm_studio", "ollama"]
_MOST = 200  # models that are listed of a place
_MOST_ENTRIES = 10_000  # entries of a folder that are looked at
_LONGEST_MANIFEST = 1_000_000  # bytes
_LONGEST_CONFIG = 50_000_000  # bytes
_LARGEST = 2**60  # bytes; no disk holds more


@dataclass(frozen=True)
class FoundModel:
    """A model on this machine.

    Attributes:
        name: name that the program gives it whose folder it is in.
        place: that program.
        folder: its folder; of Ollama the one with all files.
        bytes: size of its weights.
        gguf_only: whether its weights are GGUF files only, or parts of one.
    """

    name: str
    place: LocalPlace
    folder: Path
    bytes: int
    gguf_only: bool

    @property
    def path(self) -> str:
        """Name or folder for a recipe's `model.path`."""
        return self.name if self.place == "burnish" else str(self.folder)


def hub_cache() -> Path:
    """Return the folder of the hub's cache, as huggingface_hub chooses it."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if named := os.environ.get(variable):
            return expand_home(named)
    if home := os.environ.get("HF_HOME"):
        return expand_home(home) / "hub"
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "huggingface" / "hub"


def lm_studio_folders() -> list[Path]:
    """Return the folders in which LM Studio keeps models, of newer and of older versions."""
    return [Path.home() / ".lmstudio" / "models", Path.home() / ".cache" / "lm-studio" / "models"]


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
    for folder in _folders(models):
        owner, _, name = folder.name.partition("--")
        if name:
            yield from _model(folder, f"{owner}/{name}", "burnish")


def _in_hub_cache(cache: Path) -> Iterator[FoundModel]:
    for repository in _folders(cache):
        snapshot = _newest_snapshot(repository) if repository.name.startswith(CACHED_MODEL) else None
        if snapshot is not None:
            yield from _model(snapshot, cached_model_name(snapshot), "hub_cache")


def _newest_snapshot(repository: Path) -> Path | None:
    """Return the snapshot that the branch main stands at, else the newest one."""
    snapshots = _folders(repository / "snapshots")
    main = (_small_text(repository / "refs" / "main") or "").strip()
    named = [snapshot for snapshot in snapshots if snapshot.name == main]
    return named[0] if named else max(snapshots, key=_changed, default=None)


def _in_lm_studio(models: Path) -> Iterator[FoundModel]:
    for publisher in _folders(models):
        for folder in _folders(publisher):
            yield from _model(folder, f"{publisher.name}/{folder.name}", "lm_studio")


def _in_ollama(models: Path) -> Iterator[FoundModel]:
    """List Ollama's models: each is a manifest that names its GGUF by its hash."""
    root = models / "manifests"
    try:
        manifests = sorted(islice(root.glob("*/*/*/*"), _MOST_ENTRIES))
    except OSError:
        return
    for manifest in manifests:
        size = _ollama_bytes(manifest)
        if size:
            owner, name, tag = manifest.parts[-3:]
            title = f"{name}:{tag}" if owner == "library" else f"{owner}/{name}:{tag}"
            yield FoundModel(title, "ollama", models, size, gguf_only=True)


def _ollama_bytes(manifest: Path) -> int:
    """Return the size of the weights that a manifest names; 0 where it names none or cannot be read."""
    try:
        layers = json.loads(_small_text(manifest) or "")["layers"]
        size = sum(int(layer["size"]) for layer in layers if str(layer["mediaType"]).endswith(".image.model"))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return 0
    return size if 0 < size <= _LARGEST else 0


def _model(folder: Path, name: str, place: LocalPlace) -> Iterator[FoundModel]:
    """Describe a folder that holds weights; nothing else is a model."""
    sizes = {ending: _sizes(folder, ending) for ending in ("safetensors", "gguf")}
    config = _file_size(folder / "config.json")
    whole = sizes["safetensors"] if config is not None and config <= _LONGEST_CONFIG else []
    if whole or sizes["gguf"]:
        yield FoundModel(name, place, folder, sum(whole or sizes["gguf"]), gguf_only=not whole)


def _sizes(folder: Path, ending: str) -> list[int]:
    """Return the sizes of a folder's files; none where an entry is no file, such as a pipe, which nothing may open."""
    sizes = list[int]()
    try:
        for path in islice(folder.glob(f"*.{ending}"), _MOST_ENTRIES):
            if path.is_symlink() and not path.exists():  # its file is gone
                continue
            size = _file_size(path)
            if size is None:
                return []
            sizes.append(size)
    except OSError:
        return []
    return sizes


def _file_size(path: Path) -> int | None:
    """Return the size of a file; None of anything else, and where it cannot be seen."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _small_text(path: Path) -> str | None:
    """Read a short text file; None where it is none. A pipe is not opened: that would wait for ever."""
    size = _file_size(path)
    if size is None or size > _LONGEST_MANIFEST:
        return None
    try:
        return read_plain(path)
    except (OSError, UnicodeDecodeError):
        return None


def _is_text(name: str) -> bool:
    """Whether a name from a file system is text that can be sent: it may hold bytes of another encoding."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(entry for entry in islice(path.iterdir(), _MOST_ENTRIES) if entry.is_dir())
    except OSError:
        return []


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
