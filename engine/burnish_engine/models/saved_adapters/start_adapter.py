"""The adapter that a recipe continues from (`adapter.start`): where it lies, what it is, and which base it belongs to.

Loads no torch: plans and `burnish recipe check` read it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.files import is_file, read_limited
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_train import ALL_LINEAR, AUTO, AdapterSection
from burnish_engine.contract.run.card import HashedFile, RunCard
from burnish_engine.contract.units import file_size
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.families.adapter_targets import StartedSection
from burnish_engine.models.families.experts import EXPERT_MATRICES, parameter_name
from burnish_engine.models.saved_adapters.adapter_files import (
    AdapterFiles,
    beyond_layers,
    reached_modules,
    read_files,
    refuse_broken_values,
    refuse_other_parts,
)
from burnish_engine.models.saved_adapters.base_checks import (
    refuse_missing_biases,
    refuse_missing_pairs,
    refuse_other_shapes,
    refuse_other_tokens,
)
from burnish_engine.models.saved_adapters.saved_adapter import (
    ADAPTER_FILES,
    CONFIG_FILE,
    refuse_other_ranks,
    setting_of,
)

_LARGEST_CARD_BYTES = 50_000_000


@dataclass(frozen=True)
class StartAdapter:
    """An adapter to continue from.

    Attributes:
        files: what PEFT's two files hold.
        section: method, rank, alpha, dropout and targets, as a recipe names them, and what is trained.
        base: name of the model that it was trained on, as far as known; else empty.
        base_weights: weight files of that model with size and hash, of a run's adapter; else empty.
    """

    files: AdapterFiles
    section: StartedSection
    base: str = ""
    base_weights: tuple[HashedFile, ...] = ()

    @property
    def folder(self) -> Path:
        """Folder with PEFT's two files."""
        return self.files.folder


def open_start(section: AdapterSection) -> StartAdapter | None:
    """Open the adapter that a recipe continues from; None where it starts a new one.

    Raises:
        UsageError: The folder holds no adapter.
        SetupError: The adapter is damaged, or no low-rank adapter.
    """
    if not section.start:
        return None
    given = Path(section.start)
    folder = given if is_file(given / CONFIG_FILE) else given / "adapter"
    missing = [name for name in ADAPTER_FILES if not is_file(folder / name)]
    if missing:
        raise UsageError(
            f"adapter.start names {given}, which holds no adapter ({' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing, there and in its folder adapter).",
            "Give the folder of a run that has ended, or of an adapter in PEFT's format.",
        )
    files = read_files(folder)
    kind = str(files.config.get("peft_type", "LORA")).upper()
    if kind != "LORA":
        raise SetupError(f"The adapter in {folder} is of the type {kind}, not LoRA.", "Start from a LoRA adapter.")
    if files.ties_matrices:  # PEFT's two matrices share memory, and optimizers update copies
        raise SetupError(
            f"The adapter in {folder} gives embedding and head the same low-rank matrices (ensure_weight_tying), "
            "which Burnish merges but does not train.",
            "Start from an adapter without ensure_weight_tying, of the embedding, the head or both apart.",
        )
    refuse_other_ranks(folder, files.config, files.shapes)
    refuse_other_parts(files)
    refuse_broken_values(files)
    run = RunPaths(folder.parent)
    card = _card(run) if folder == run.adapter else None
    weights = tuple(file for file in card.base.files if file.is_weights) if card else ()
    base = card.base.name if card else str(files.config.get("base_model_name_or_path") or "")
    return StartAdapter(files, _section(files, section), base, weights)


def as_started(recipe: Recipe) -> Recipe:
    """Return the recipe with the adapter's method, rank, alpha, dropout and targets where it continues from one.

    Raises:
        UsageError: The folder holds no adapter.
        SetupError: The adapter is damaged, or no low-rank adapter.
    """
    start = open_start(recipe.adapter)
    return recipe if start is None else recipe.model_copy(update={"adapter": start.section})


def refuse_other_base(start: StartAdapter, source: ModelSource) -> None:
    """Refuse an adapter whose run trained on other weights than the recipe's model, judged by their names and sizes.

    Raises:
        SetupError: The weights are others, or the adapter was trained with another vocabulary, or it has biases or
            matrices for which they have no place, or lacks some that its config names.
    """
    if start.base_weights:
        found = {file.name: file.stat().st_size for file in source.weight_files}
        wanted = {file.name: file.bytes for file in start.base_weights}
        if found != wanted:
            raise other_base(start, source, f"{_listed(wanted)}; here are {_listed(found)}")
    refuse_other_tokens(start.files, source)
    refuse_missing_biases(start.files, source)
    refuse_other_shapes(start.files, source)
    refuse_missing_pairs(start.files, source)


def other_base(start: StartAdapter, source: ModelSource, evidence: str) -> SetupError:
    """Make the error that an adapter belongs to another model."""
    return SetupError(
        f"The adapter in {start.folder} was trained on {start.base}, and model.path is {source.name}: its weights were "
        f"{evidence}.",
        "Set model.path to the model that the adapter was trained on, or adapter.start to an adapter of this one.",
    )


def _listed(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} ({file_size(size)}, {size:,} bytes)" for name, size in sizes.items()) or "no files"


def _card(paths: RunPaths) -> RunCard | None:
    """Read the card beside a run's adapter; None where there is none that can be read."""
    try:
        return RunCard.model_validate_json(read_limited(paths.card, _LARGEST_CARD_BYTES))
    except (OSError, ValueError):
        return None


def _experts(config: dict[str, Any]) -> list[str]:
    """Return the stacks of experts that a PEFT config adapts, without other parameters, such as routers."""
    parameters = config.get("target_parameters")
    names = map(str, parameters) if isinstance(parameters, list) else ()
    return [name for name in names if name.rpartition(".")[2] in EXPERT_MATRICES]


def _expert_rank(folder: Path, config: dict[str, Any], experts: list[str]) -> Any:
    """Return the largest rank that a PEFT config gives the experts; 0 where it adapts none."""
    usual = config.get("r", 8)
    ranks = [setting_of(folder, config, "rank_pattern", name, usual) for name in experts]
    return max((rank for rank in ranks if isinstance(rank, int)), default=usual if experts else 0)


def _targets(config: dict[str, Any], experts: list[str]) -> list[str]:
    """Return the targets that a recipe would name. Of a stack's path that is the end, the same in every layer."""
    modules = config.get("target_modules")
    if isinstance(modules, str):  # "all-linear", or a regular expression, which may reach everything
        return [ALL_LINEAR if modules == ALL_LINEAR and not experts else AUTO]
    names = {str(name).rpartition(".")[2] for name in modules or ()}
    names |= set(map(parameter_name, experts))
    return sorted(names) or [AUTO]


def _section(files: AdapterFiles, asked: AdapterSection) -> StartedSection:
    folder, config = files.folder, files.config
    experts = _experts(config)
    try:
        return StartedSection(
            method="dora" if config.get("use_dora") else "rslora" if config.get("use_rslora") else "lora",
            rank=config.get("r", 8),
            alpha=config.get("lora_alpha", 8),
            dropout=config.get("lora_dropout") or 0.0,
            targets=_targets(config, experts),
            expert_rank=_expert_rank(folder, config, experts),
            start=asked.start,
            folder=str(folder),
            shapes=tuple(files.trained.values()),
            modules=reached_modules(files.trained),
            beyond=beyond_layers(files.trained),
            whole_matrix=files.whole_matrix,
            obstacle=files.obstacle,
        )
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"]))
        raise SetupError(
            f"The adapter in {folder} has {key} = {problem['input']!r}: {problem['msg']}.",
            f"Correct its {CONFIG_FILE}.",
        ) from error
