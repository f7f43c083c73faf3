"""Find the chat target that a text names: one of a run's models, a model folder, or a GGUF file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from burnish_engine.chat.run_model import with_template
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.paths import ADAPTER_GGUF, RunPaths, is_address, is_model_name
from burnish_engine.contract.plain_text import typed
from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.models.checkpoint.source import ModelSource, fetched_names, open_model, open_trained
from burnish_engine.runs.store import (
    adapter_of,
    open_run,
    read_recipe,
    trained_of,
    trains_whole_model,
    with_own_template,
)

Variant = Literal["tuned", "base", "start", "exported"]
"""Names of a run's models; start: the base with the adapter that the run continued from."""


@dataclass(frozen=True)
class FileTarget:
    """A GGUF file as a chat target."""

    path: Path


@dataclass(frozen=True)
class ModelTarget:
    """A model folder, with or without an adapter, as a chat target.

    Attributes:
        model: name as in a recipe, or folder of a model that a run trained whole.
        adapter: folder of the adapter; None where there is none yet, or none is meant.
        tuned: whether to use the adapter.
        devices: devices that it may use.
        base: name, as in a recipe, of the model that a whole-model run started from; else empty.
        template: value of the run's data.template; "auto" for other models.
        label: word behind the model's name while the adapter is used.
    """

    model: str
    adapter: Path | None
    tuned: bool
    devices: DevicesSection
    base: str = ""
    template: str = "auto"
    label: str = "tuned"

    def open(self) -> ModelSource:
        """Open and check the model.

        Raises:
            UsageError: The model does not exist.
            SetupError: The model's folder is damaged.
            DataError: The template does not exist.
        """
        source = open_trained(Path(self.model), self.base) if self.base else open_model(self.model)
        return with_template(source, self.template)


def names_run(target: str) -> bool:
    """Whether a chat target can only be a run: it names neither a GGUF file nor a model."""
    is_model = target == "embedded" or (Path(target) / "config.json").is_file() or is_model_name(target)
    return not is_model and not _names_file(target)


def _names_file(target: str) -> bool:
    return target.lower().endswith(".gguf")


def find_target(target: str, variant: Variant) -> FileTarget | ModelTarget:
    """Find what `target` names.

    Args:
        target: name of a run or model, a model folder, "embedded", or a .gguf file.
        variant: choice among a run's models.

    Raises:
        UsageError: The target names nothing to chat with, or the run has no such model.
    """
    if is_address(target):
        raise UsageError(f"{target} is an address.", "Download the model, and give its name, its folder or its file.")
    if _names_file(target):
        return FileTarget(Path(target))
    if not names_run(target):
        return ModelTarget(target, None, tuned=False, devices=DevicesSection())
    paths = open_run(target, others=("embedded", *fetched_names()))
    if variant == "exported":
        return FileTarget(exported_files(paths)[-1])
    recipe = with_own_template(paths, read_recipe(paths))
    tuned = variant == "tuned"
    found = ModelTarget(recipe.model.path, None, tuned=False, devices=recipe.devices, template=recipe.data.template)
    if variant == "start":
        return replace(found, adapter=_start_of(paths), tuned=True, label="start")
    if trains_whole_model(paths):
        return replace(found, model=str(trained_of(paths)), base=recipe.model.path) if tuned else found
    has_adapter = (paths.adapter / "adapter_model.safetensors").is_file()
    adapter = adapter_of(paths) if tuned or has_adapter else None
    return replace(found, adapter=adapter, tuned=tuned)


def _start_of(paths: RunPaths) -> Path:
    if not (paths.start / "adapter_model.safetensors").is_file():
        raise UsageError(
            f"The run {paths.root.name} keeps no adapter that it continued from.",
            "Talk to its base or to the tuned model; a run has one where its recipe sets adapter.start.",
        )
    return paths.start


def exported_files(paths: RunPaths) -> list[Path]:
    """List the run's exported GGUF files that hold a whole model, oldest first.

    Raises:
        UsageError: There are none.
    """
    whole = (file for file in paths.export.glob("*.gguf") if not file.name.endswith(ADAPTER_GGUF))
    files = sorted(whole, key=lambda file: file.stat().st_mtime)
    if not files:
        raise UsageError(
            f"The run {paths.root.name} has no exported GGUF.", f"Make one: burnish export {typed(paths.root.name)}"
        )
    return files
