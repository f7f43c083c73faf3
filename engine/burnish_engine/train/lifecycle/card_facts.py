"""Collect the facts for a run's card: machine, versions, settings, data and base model of this process."""

from __future__ import annotations

import platform
import time
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from burnish_engine.advise.facts.engine_choice import keeps_packed
from burnish_engine.advise.plan.exports import exports_of
from burnish_engine.contract.facts.exports import ExportChoice
from burnish_engine.contract.recipe.memory_plan import MemoryPlan
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.card import CardData, CardModel, DataFile, HashedFile, RunCard, RunEnvironment
from burnish_engine.contract.version import burnish_version
from burnish_engine.data.files.discover import files_under
from burnish_engine.data.tokens.documents import lengths_of, supervised_tokens_of
from burnish_engine.hardware.probe import probe
from burnish_engine.models.checkpoint.gguf_file.folder import gguf_of
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.decoder.frozen.format_choice import eight_bit_use
from burnish_engine.models.device.device import describe
from burnish_engine.models.families import stores_blocks
from burnish_engine.models.transformers_path.model_shape import measured_spec
from burnish_engine.runs.file_hashes import sha256_file
from burnish_engine.train.base.engine import Engine
from burnish_engine.train.lifecycle.run_setup import RunSetup
from burnish_engine.train.lifecycle.start import hashed_files

_PACKAGES = {
    "torch": ("torch",),
    "triton": ("triton", "triton-windows"),
    "transformers": ("transformers",),
    "tokenizers": ("tokenizers",),
    "peft": ("peft",),
    "datasets": ("datasets",),
    "bitsandbytes": ("bitsandbytes",),
    "safetensors": ("safetensors",),
    "numpy": ("numpy",),
}
"""Package that results can depend on -> names under which it is installed."""
_WEIGHTS = ("*.safetensors", "*.gguf", "*.safetensors.index.json")
_BESIDE_WEIGHTS = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model",
    "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "spiece.model",
    "sentencepiece.bpe.model", "tekken.json", "chat_template.jinja", "chat_template.json",
)  # fmt: skip


def _reward_files(recipe: Recipe) -> list[Path]:
    judges = [one.model for one in recipe.reward if one.kind == "judge" and one.model.lower().endswith(".gguf")]
    return [Path(file) for file in [*(one.file for one in recipe.reward if one.kind == "python"), *judges]]


def export_choices(source: ModelSource, recipe: Recipe, trained: Path | None = None) -> list[ExportChoice]:
    """Decide which exports of the run's result work.

    Args:
        source: base model of the run.
        recipe: recipe of the run.
        trained: folder of the finished adapter; None where there is none yet, or every weight is trained.
    """
    spec = source.spec or measured_spec(source.config)
    return exports_of(source.config, spec, recipe.adapter, trained=trained, name=source.name)


def new_card(setup: RunSetup, engine: Engine) -> RunCard:
    """Build the card of a run that begins now.

    Data and base are listed in the order of `data_files` and `base_files`, without hashes, because these take time.

    """
    recipe, source, data = setup.recipe, setup.inputs.source, setup.inputs.data
    nf4 = keeps_packed(recipe, source.config)
    eight_bits = eight_bit_use(recipe, setup.products.products, nf4=nf4)
    circumstances = RunEnvironment(
        **_machine(setup.device),
        threads=setup.threads,
        engine=engine.facts.name,
        precision=setup.precision,
        weights=_stored_as(source, engine, nf4=nf4, coded=eight_bits.stored) or setup.precision,
        products=setup.products.products,
        layout=engine.facts.layout,
        memory_plan=plan_text(engine.facts.memory_plan),
        rewards=", ".join(f"{file.name} {sha256_file(file)}" for file in _reward_files(recipe)),
    )
    first_held_out = len(files_under(recipe.data.files))
    return RunCard(
        t=time.time(),
        recipe_sha256=sha256_file(setup.paths.recipe),
        seed=recipe.train.seed,
        steps=setup.inputs.budget.steps,
        circumstances=circumstances,
        exports=export_choices(source, recipe),
        data=CardData(
            files=[
                DataFile(role="train" if number < first_held_out else "held out", name=path.name, bytes=_size(path))
                for number, path in enumerate(data_files(recipe))
            ],
            tokens_sha256=data.dataset_hash,
            train_rows=len(data.train),
            held_out_rows=len(data.validation),
            tokens=int(lengths_of(data.train).sum()),
            learned_tokens=int(supervised_tokens_of(data.train).sum()),
        ),
        coverage=engine.facts.coverage,
        start=hashed_files(setup.inputs.start) if setup.inputs.start else [],
        base=CardModel(
            name=source.name,
            files=[HashedFile(name=path.name, bytes=_size(path)) for path in base_files(source.folder)],
        ),
    )


def data_files(recipe: Recipe) -> list[Path]:
    """List the recipe's files of rows: the ones to train on, then the held-out ones."""
    return [*files_under(recipe.data.files), *files_under(recipe.data.validation_files)]


def _stored_as(source: ModelSource, engine: Engine, *, nf4: bool, coded: str) -> str:
    """Return the number format of the frozen weights; empty where they are kept in the run's precision."""
    if nf4:
        return "gguf" if stores_blocks(source.config) else "nf4"
    return coded if engine.facts.name == "fast" else ""


def base_files(folder: Path) -> list[Path]:
    """List the files of a model folder that its outputs depend on, weights first."""
    gguf = gguf_of(folder)
    weights = [gguf] if gguf else sorted({path for pattern in _WEIGHTS for path in folder.glob(pattern)})
    return [*weights, *(folder / name for name in _BESIDE_WEIGHTS if (folder / name).is_file())]


def plan_text(plan: str) -> str:
    """Format `EngineFacts.memory_plan` with the keys of the recipe's `[memory]`."""
    try:
        known = MemoryPlan.model_validate_json(plan)
    except ValidationError:
        return plan
    rest = known.model_dump(mode="json", exclude={"layers", "weights"})
    found = [f"layers = {known.text}", *(f"{name} = {str(value).lower()}" for name, value in rest.items())]
    return ", ".join([*found, *([f"weights = {known.weights_text}"] if known.weights else [])])


def versions() -> dict[str, str]:
    """Return the versions of the packages that results can depend on; missing packages are left out."""
    found = {"burnish": burnish_version(), "python": platform.python_version()}
    for name, installed_as in _PACKAGES.items():
        for package in installed_as:
            with suppress(PackageNotFoundError):
                found[name] = version(package)
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    return found


def _machine(device: torch.device) -> dict[str, Any]:
    """Return the fields of `RunEnvironment` that the machine decides."""
    machine = probe()
    shared = {"os": machine.os, "architecture": machine.architecture}
    if device.type != "cuda":
        return {**shared, "versions": versions(), "device": machine.cpu, "memory_bytes": machine.ram_total_bytes}
    found = versions()
    if machine.driver:
        found["driver"] = machine.driver
    gpu = torch.cuda.get_device_properties(device)
    return {
        **shared,
        "versions": found,
        "device": describe(device),
        "compute_capability": f"{gpu.major}.{gpu.minor}",
        "memory_bytes": gpu.total_memory,
    }


def _size(path: Path) -> int:
    """Return the size of a file in bytes; 0 where it no longer exists."""
    try:
        return path.stat().st_size
    except OSError:
        return 0
