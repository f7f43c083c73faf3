"""What somebody wants to talk to: a run's base, tuned or exported model, a model folder, or a GGUF file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.paths import RunPaths, is_model_name
from burnish_engine.contract.recipe import DevicesSection
from burnish_engine.models.source import fetched_names
from burnish_engine.runs.store import adapter_of, open_run, read_recipe

Variant = Literal["tuned", "base", "exported"]


@dataclass(frozen=True)
class FileTarget:
    """A GGUF file."""

    path: Path


@dataclass(frozen=True)
class ModelTarget:
    """A model folder, with or without an adapter.

    Attributes:
        model: As a recipe names it.
        adapter: The adapter's folder; None where there is none yet, or none is meant.
        tuned: Whether the adapter shall be used.
        devices: Where it may compute.
    """

    model: str
    adapter: Path | None
    tuned: bool
    devices: DevicesSection


def find_target(target: str, variant: Variant) -> FileTarget | ModelTarget:
    """What `target` names.

    Args:
        target: A run, a model folder or name, "embedded", or a .gguf file.
        variant: Of a run: which of its models.

    Raises:
        UsageError: It names nothing that can be talked to.
    """
    if target.lower().endswith(".gguf"):
        return FileTarget(Path(target))
    if target == "embedded" or (Path(target) / "config.json").is_file() or is_model_name(target):
        return ModelTarget(target, None, tuned=False, devices=DevicesSection())
    paths = open_run(target, others=("embedded", *fetched_names()))
    if variant == "exported":
        return FileTarget(_newest_export(paths))
    recipe = read_recipe(paths)
    tuned = variant == "tuned"
    has_adapter = (paths.adapter / "adapter_model.safetensors").is_file()
    adapter = adapter_of(paths) if tuned or has_adapter else None
    return ModelTarget(recipe.model.path, adapter, tuned=tuned, devices=recipe.devices)


def _newest_export(paths: RunPaths) -> Path:
    files = sorted(paths.export.glob("*.gguf"), key=lambda file: file.stat().st_mtime)
    if not files:
        raise UsageError(
            f"The run {paths.root.name} has no exported GGUF.", f"Make one: burnish export {paths.root.name}"
        )
    return files[-1]
