"""Find models in the folders of other programs: the hub's cache, LM Studio, Ollama. Only names and sizes are read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from burnish_engine.contract.paths import CACHED_MODEL, cached_model_name

LocalPlace = Literal["hub_cache", "lm_studio", "ollama"]
_MOST = 200  # models that are listed of a place
_LONGEST_MANIFEST = 1_000_000


@dataclass(frozen=True)
class FoundModel:
    """A model in the folder of another program.

    Attributes:
        name: name that this program gives it.
        place: program whose folder it is in.
        folder: its folder; of Ollama the one with all files.
        bytes: size of its weights.
        gguf_only: whether its weights are GGUF files only, or parts of one.
    """

    name: str
    place: LocalPlace
    folder: Path
    bytes: int
    gguf_only: bool


def hub_cache() -> Path:
    """Return the folder of the hub's cache, as huggingface_hub chooses it."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if named := os.environ.get(variable):
            return Path(named).expanduser()
    if home := os.environ.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "huggingface" / "hub"


def lm_studio_folders() -> list[Path]:
    """Return the folders in which LM Studio keeps models, of newer and of older versions."""
    return [Path.home() / ".lmstudio" / "models", Path.home() / ".cache" / "lm-studio" / "models"]


def ollama_folder() -> Path:
    """Return the folder in which Ollama keeps models."""
    named = os.environ.get("OLLAMA_MODELS")
    return Path(named).expanduser() if named else Path.home() / ".ollama" / "models"


def find_local_models() -> list[FoundModel]:
    """List the models in the folders of other programs, GGUF files last; unreadable ones are left out."""
    found = [*_in_hub_cache(hub_cache()), *_in_ollama(ollama_folder())]
    for folder in lm_studio_folders():
        found += _in_lm_studio(folder)
    return sorted(found, key=lambda model: (model.gguf_only, model.name.casefold()))


def _in_hub_cache(cache: Path) -> Iterator[FoundModel]:
    for repository in _folders(cache)[:_MOST]:
        snapshot = _newest_snapshot(repository) if repository.name.startswith(CACHED_MODEL) else None
        if snapshot is not None:
            yield from _model(snapshot, cached_model_name(snapshot), "hub_cache")


def _newest_snapshot(repository: Path) -> Path | None:
    """Return the snapshot that the branch main stands at, else the newest one."""
    snapshots = _folders(repository / "snapshots")
    try:
        main = (repository / "refs" / "main").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        main = ""
    named = [snapshot for snapshot in snapshots if snapshot.name == main]
    return named[0] if named else max(snapshots, key=_changed, default=None)


def _in_lm_studio(models: Path) -> Iterator[FoundModel]:
    for publisher in _folders(models)[:_MOST]:
        for folder in _folders(publisher)[:_MOST]:
            yield from _model(folder, f"{publisher.name}/{folder.name}", "lm_studio")


def _in_ollama(models: Path) -> Iterator[FoundModel]:
    """List Ollama's models: each is a manifest that names its GGUF by its hash."""
    root = models / "manifests"
    try:
        manifests = sorted(root.glob("*/*/*/*"))[:_MOST]
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
        if manifest.stat().st_size > _LONGEST_MANIFEST:
            return 0
        layers = json.loads(manifest.read_text(encoding="utf-8"))["layers"]
        return sum(int(layer["size"]) for layer in layers if str(layer["mediaType"]).endswith(".image.model"))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return 0


def _model(folder: Path, name: str, place: LocalPlace) -> Iterator[FoundModel]:
    """Describe a folder that holds weights; nothing else is a model."""
    sizes = {ending: _sizes(folder, ending) for ending in ("safetensors", "gguf")}
    whole = sizes["safetensors"] if (folder / "config.json").is_file() else []
    if whole or sizes["gguf"]:
        yield FoundModel(name, place, folder, sum(whole or sizes["gguf"]), gguf_only=not whole)


def _sizes(folder: Path, ending: str) -> list[int]:
    found = []
    for path in folder.glob(f"*.{ending}"):
        try:
            found.append(path.stat().st_size)
        except OSError:  # a link whose file is gone
            continue
    return found


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(entry for entry in path.iterdir() if entry.is_dir())
    except OSError:
        return []


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
