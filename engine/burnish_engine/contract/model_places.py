"""Find the folder of a model by its name: Burnish's own, one of the hub's cache, or one of LM Studio."""

from __future__ import annotations

import os
import stat
from itertools import islice
from pathlib import Path

from burnish_engine.contract.files import read_plain
from burnish_engine.contract.paths import CACHED_MODEL, expand_home, fetched_model_dir, is_hub_name

MOST_ENTRIES = 10_000
"""Entries of a folder that are looked at."""
_LONGEST_REFERENCE = 1_000_000  # bytes


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


def model_dir(name: str) -> Path:
    """Return the folder of a model that is used by its name: that of a download, else of another program that has it.

    Args:
        name: OWNER/NAME, or the name alone of an old model of the hub.

    Returns:
        The folder; where no program has the model, the one that a download would make.
    """
    fetched = fetched_model_dir(name)
    if fetched.is_dir() or not (is_hub_name(name) or is_hub_name(f"owner/{name}")):
        return fetched
    snapshot = newest_snapshot(hub_cache() / f"{CACHED_MODEL}{name.replace('/', '--')}")
    places = [snapshot] if snapshot else []
    places += [folder / name for folder in lm_studio_folders() if "/" in name]
    return next((place for place in places if _is_model(place)), fetched)


def newest_snapshot(repository: Path) -> Path | None:
    """Return the snapshot of the hub's cache that the branch main stands at, else the newest one; None: there is none.

    Args:
        repository: a model's folder in the cache.
    """
    snapshots = folders_in(repository / "snapshots")
    main = (small_text(repository / "refs" / "main", _LONGEST_REFERENCE) or "").strip()
    named = [snapshot for snapshot in snapshots if snapshot.name == main]
    return named[0] if named else max(snapshots, key=_changed, default=None)


def folders_in(path: Path) -> list[Path]:
    """List the folders in a folder; none where it cannot be read."""
    try:
        return sorted(entry for entry in islice(path.iterdir(), MOST_ENTRIES) if entry.is_dir())
    except OSError:
        return []


def regular_file_size(path: Path) -> int | None:
    """Return the size of a file; None of anything else, and where it cannot be seen."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def small_text(path: Path, longest: int) -> str | None:
    """Read a short text file; None where it is none. A pipe is not opened: that would wait for ever."""
    size = regular_file_size(path)
    if size is None or size > longest:
        return None
    try:
        return read_plain(path)
    except (OSError, UnicodeDecodeError):
        return None


def _is_model(folder: Path) -> bool:
    """Whether a folder holds a config and weights that are no GGUF."""
    try:
        return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))
    except OSError:
        return False


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
