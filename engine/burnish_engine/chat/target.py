"""What somebody wants to talk to: a run's base, tuned or exported model, a model folder, or a GGUF file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.paths import RunPaths, is_model_name
from burnish_engine.contract.recipe import DevicesSection
from burnish_engine.models.source import ModelSource, fetched_names, open_model, open_trained
from burnish_engine.runs.store import adapter_of, open_run, read_recipe, trained_of, trains_whole_model

Variant = Literal["tuned", "base", "exported"]


@dataclass(frozen=True)
class FileTarget:
    """A GGUF file."""

    path: Path


@dataclass(frozen=True)
class ModelTarget:
    """A model folder, with or without an adapter.

    Attributes:
        model: As a recipe names it, or the folder of a model that a run trained whole.
        adapter: The adapter's folder; None where there is none yet, or none is meant.
        tuned: Whether the adapter shall be used.
        devices: Where it may compute.
        base: What a run that trained this model whole started from, as its recipe names it; else empty.
    """

    model: str
    adapter: Path | None
    tuned: bool
    devices: DevicesSection
    base: str = ""

    def open(self) -> ModelSource:
        """The model, checked.

        Raises:
            UsageError: It is not there.
            SetupError: Its folder is damaged.
        """
        return open_trained(Path(self.model), self.base) if self.base else open_model(self.model)


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
    if trains_whole_model(paths):
        if not tuned:
            return ModelTarget(recipe.model.path, None, tuned=False, devices=recipe.devices)
        model = str(trained_of(paths))
        return ModelTarget(model, None, tuned=False, devices=recipe.devices, base=recipe.model.path)
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
