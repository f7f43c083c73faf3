"""Reads what the pages need from a run's folder: which files exist, its export choices, and its frozen recipe."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish_engine.contract.facts.exports import ExportChoice
from burnish_engine.contract.facts.remote_job import RemoteJob
from burnish_engine.contract.files import is_file, is_folder, read_with_retry
from burnish_engine.contract.paths import ADAPTER_GGUF, RunPaths
from burnish_engine.contract.run.card import RunCard
from burnish_engine.contract.run.state import RunStateFile


@dataclass(frozen=True)
class RunFolder:
    """The contents of a run's folder.

    Attributes:
        name: name of the folder; empty: no run.
        title: name that the person gave the run, or that of the folder.
        trained: whether there is a trained adapter or model to chat with or to export.
        starts_from_adapter: whether the run keeps an adapter that it continued from.
        full_fine_tuning: whether the run trained every weight of the model, so that there is no adapter.
        exported: names of finished GGUF files that hold a whole model.
        adapters: names of finished GGUF files that hold an adapter alone.
        ollama: names of the folders for Ollama.
        lm_studio: whether there is a folder laid out for LM Studio.
        exports: kinds of export, each with whether it works or why not, from the run's card; empty: unknown.
        where: other machine that ssh reaches and that holds the run too, as its recipe names it; empty: none.
        there: path of the run's folder on it.
    """

    name: str = ""
    title: str = ""
    trained: bool = False
    starts_from_adapter: bool = False
    full_fine_tuning: bool = False
    exported: tuple[str, ...] = ()
    adapters: tuple[str, ...] = ()
    ollama: tuple[str, ...] = ()
    lm_studio: bool = False
    exports: tuple[ExportChoice, ...] = ()
    where: str = ""
    there: str = ""


def read_run_folder(folder: str) -> RunFolder:
    """Read what a run's folder holds now.

    Args:
        folder: path of the run; empty: no run.
    """
    if not folder:
        return RunFolder()
    paths = RunPaths(Path(folder))
    files = _names(paths.export, "*.gguf")
    where, there = _held_elsewhere(paths)
    return RunFolder(
        name=paths.root.name,
        title=run_name(folder),
        trained=any(
            is_file(file) for file in (paths.adapter / "adapter_model.safetensors", paths.model / "model.safetensors")
        ),
        starts_from_adapter=is_file(paths.start / "adapter_model.safetensors"),
        full_fine_tuning=is_folder(paths.model),
        exported=tuple(name for name in files if not name.endswith(ADAPTER_GGUF)),
        adapters=tuple(name for name in files if name.endswith(ADAPTER_GGUF)),
        ollama=tuple(name for name in _names(paths.export, "ollama-*") if is_file(paths.export / name / "Modelfile")),
        lm_studio=is_folder(paths.export / "lmstudio"),
        exports=_exports(paths),
        where=where,
        there=there,
    )


def _names(folder: Path, pattern: str) -> list[str]:
    """Return the names of a folder that match, sorted; none where it cannot be read."""
    try:
        return sorted(path.name for path in folder.glob(pattern))
    except (OSError, ValueError):
        return []


def _held_elsewhere(paths: RunPaths) -> tuple[str, str]:
    """Return another machine and the run's folder on it; a run that finished leaves nothing there."""
    try:
        job = RemoteJob.model_validate_json(read_with_retry(paths.remote))
        state = RunStateFile.model_validate_json(read_with_retry(paths.state))
    except (OSError, ValueError):  # it never was elsewhere
        return "", ""
    if not job.where.startswith("ssh:") or not job.folder or state.status == "finished":
        return "", ""
    return job.where, f"{job.folder}/run"


def _exports(paths: RunPaths) -> tuple[ExportChoice, ...]:
    try:
        return tuple(RunCard.model_validate_json(read_with_retry(paths.card)).exports)
    except (OSError, ValueError):  # none yet, damaged, or of another version
        return ()


def run_name(folder: str) -> str:
    """Return the name of a run: its own, which no other run has, else its recipe's, or that of its folder.

    Args:
        folder: path of the run.
    """
    try:
        own = json.loads(read_with_retry(RunPaths(Path(folder)).state)).get("name", "")
    except (OSError, ValueError, AttributeError, RecursionError):
        own = ""
    return str(own or _recipe(folder).get("name") or Path(folder).name)


def frozen_section(folder: str, name: str) -> dict[str, Any]:
    """Read a section of a run's frozen recipe; empty if the recipe cannot be read or has no such section.

    Args:
        folder: path of the run.
        name: name of the section.
    """
    section = _recipe(folder).get(name, {})
    return section if isinstance(section, dict) else {}


def _recipe(folder: str) -> dict[str, Any]:
    try:
        return tomllib.loads(read_with_retry(RunPaths(Path(folder)).recipe))
    except (OSError, ValueError):
        return {}


def opened_run(paths: Sequence[str]) -> str:
    """Return the run's folder if the paths are a run, or the events of one, and nothing else; empty: they are not."""
    if len(paths) != 1 or not paths[0]:
        return ""
    path = Path(paths[0])
    run = RunPaths(path.parent if path == RunPaths(path.parent).events else path)
    return str(run.root) if is_file(run.events) and is_file(run.recipe) else ""
