"""Labels of a run in lists, beside its state: model, data, and which held-out rows it was measured on."""

from __future__ import annotations

import functools
import hashlib
import json
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish_engine.contract.files import read_plain
from burnish_engine.contract.paths import RunPaths

_NOT_READ = ("workers",)
_TRAINING_ONLY = ("files", "weights", *_NOT_READ)
"""Keys of [data] that do not change the held-out rows, where these come from files of their own."""


@dataclass(frozen=True)
class RunLabels:
    """Texts about a run.

    Attributes:
        model: base model, as in the recipe.
        data: names of the training files.
        held_out: text that is equal for runs measured on the same held-out rows in the same way; empty: unknown.
        objective: objective that the recipe learns by; empty: unknown.
    """

    model: str = ""
    data: str = ""
    held_out: str = ""
    objective: str = ""


def run_labels(paths: RunPaths) -> RunLabels:
    """Read the labels of a run; empty ones where its recipe cannot be read."""
    with suppress(OSError):
        return _labels(paths.recipe, paths.card, paths.recipe.stat().st_mtime_ns, _changed(paths.card))
    return RunLabels()


def _changed(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_mtime_ns
    return 0


@functools.lru_cache(maxsize=1024)
def _labels(recipe: Path, card: Path, _recipe_ns: int, _card_ns: int) -> RunLabels:
    """Read the labels, cached: windows ask every second, and files that did not change say the same."""
    with suppress(ValueError, OSError, AttributeError, RecursionError):  # damaged: the run is still listed
        document = tomllib.loads(read_plain(recipe))
        model, data = document.get("model", {}), document.get("data", {})
        names = [Path(name).name for name in data.get("files", [])]
        return RunLabels(
            model=str(model.get("path", "embedded")),
            data=", ".join(names),
            held_out=_held_out(document, card),
            objective=str(document.get("preference", {}).get("objective", "sft")),
        )
    return RunLabels()


def _held_out(recipe: dict[str, Any], card: Path) -> str:
    """Make the text of what a held-out loss was measured on: model, rows, their rendering, and sizes of the files."""
    data = recipe.get("data", {})
    own_files = bool(data.get("validation_files"))
    left_out = _TRAINING_ONLY if own_files else _NOT_READ
    parts = [
        recipe.get("model", {}).get("path", "embedded"),
        {key: value for key, value in data.items() if key not in left_out},
        recipe.get("evaluation", {}).get("max_rows"),
        None if own_files else recipe.get("train", {}).get("seed"),
        _sizes(card, "held out" if own_files else ""),
        *([recipe["preference"]] if "preference" in recipe else []),  # what a loss means depends on the objective
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _sizes(card: Path, role: str) -> list[tuple[str, int]]:
    with suppress(ValueError, OSError, KeyError, TypeError, RecursionError):
        files = json.loads(read_plain(card))["data"]["files"]
        return [(file["name"], file["bytes"]) for file in files if role in ("", file["role"])]
    return []
