"""Suggests a model and a recipe for this machine, dataset and target, with one sentence of reason a choice."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from burnish_engine.advise.facts.catalog import EMBEDDED, find_model, unconfirmed
from burnish_engine.advise.facts.engine_choice import Config
from burnish_engine.advise.facts.workload import hold_out
from burnish_engine.advise.plan.plan import plan_run
from burnish_engine.advise.plan.plan_recipe import spec_of
from burnish_engine.advise.plan.recipe_fit import best_gpu, facts_for_recipe
from burnish_engine.advise.predict.on_target import SLOWEST_TOKENS_PER_S, OnTarget, on_target
from burnish_engine.advise.suggest.objective import choose_objective, objective_choices
from burnish_engine.advise.suggest.rank import USUAL_TOKENS, JudgedModel, is_quantized, judge_all, judge_best
from burnish_engine.advise.suggest.settings import FitInputs, propose, smallest
from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.advice import CatalogModel, RunPlan, SettingChoice, Suggestion
from burnish_engine.contract.facts.exports import export_text
from burnish_engine.contract.facts.facts import DatasetFacts, DecoderSpec
from burnish_engine.contract.facts.machine import MachineFacts
from burnish_engine.contract.paths import is_address, is_model_name
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_export import ExportSection, TargetSection
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.contract.recipe.recipe_preference import Objective, PreferenceSection
from burnish_engine.contract.units import file_size, memory_size
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer_file import check_token_ids

_FEW_ROWS = 50
_LONG_RUN_S = 86400.0


@dataclass(frozen=True)
class ChosenModel:
    """A model to make a recipe for."""

    path: str  # name of the model in the recipe: "embedded", a folder or a name of the catalog
    title: str  # name of the model for people
    spec: DecoderSpec  # shape of the model
    here: bool  # whether the model's files are on this machine
    entry: CatalogModel | None = None  # entry in the catalog; None where it has none
    config: Config | None = None  # config.json of the model; None for a model of the catalog


@dataclass(frozen=True)
class TrainingGoal:
    """The training that a person wants a suggestion for."""

    target: TargetSection  # target section of the recipe, the device that the result runs on
    data: list[str] = field(default_factory=list)  # training files, as the recipe shall name them
    validation: list[str] = field(default_factory=list)  # held-out files
    dataset: DatasetFacts | None = None  # facts that `inspect` found in the files; None where not inspected
    model: ChosenModel | None = None  # model to use; None: suggest one
    objective: Objective | None = None
    """Objective of preferences with which the facts were found; None: the rows' usual one."""
    preference: PreferenceSection | None = None  # the person's own settings of the objective; None: the usual ones
    held_out: float | None = None
    """Share of the rows that the person's recipe holds out, which reasons and plan count with; None: as suggested."""


def suggest(
    machine: MachineFacts, models: Sequence[CatalogModel], goal: TrainingGoal, *, here: Collection[str] = ()
) -> Suggestion:
    """Suggest a model and a recipe, with reasons and a run plan.

    Where nothing fits, the suggestion's plan says so (`plan.fits` is False) and the first warning says what would.

    Args:
        machine: facts of the machine that trains, as it is now.
        models: models of the catalog.
        goal: training that is wanted.
        here: names of the models whose files are on this machine.
    """
    if goal.dataset is not None and not goal.validation:
        goal = replace(goal, dataset=hold_out(goal.dataset, goal.held_out))
    if goal.model is not None:
        chosen, why = goal.model, "You chose it."
    else:
        chosen, why = _choose(machine, models, goal, here)
    aim = choose_objective(goal.objective, goal.dataset, section=goal.preference)
    wanted = FitInputs(
        chosen.path, chosen.spec, machine, goal.target, goal.dataset, aim.preference, config=chosen.config
    )
    settings = propose(wanted, separate_validation=bool(goal.validation))
    warnings = [] if settings else [_nothing_fits(chosen, machine, models, goal, here)]
    settings = settings or smallest(wanted)
    runs = on_target(chosen.spec, goal.target)
    recipe = _whole_recipe(settings.recipe, goal, runs, aim.shape)
    download = chosen.entry.download_bytes if chosen.entry and not chosen.here else 0
    facts = facts_for_recipe(recipe, goal.dataset)
    plan = plan_run(recipe, chosen.spec, machine, dataset=facts, config=chosen.config, download_bytes=download)
    if chosen.entry and not chosen.here:  # as `plan_recipe` does
        plan = plan.model_copy(update={"notes": [*unconfirmed(chosen.entry), *plan.notes]})
    if too_long := _all_too_long(recipe, goal.dataset):
        plan = plan.model_copy(update={"fits": False, "problems": [*plan.problems, too_long]})
    becomes_gguf = any(one.kind == "gguf" and one.works for one in plan.exports)
    choices = [
        SettingChoice(key="model.path", value=chosen.path, reason=why),
        *(SettingChoice(key=key, value=value, reason=reason) for key, value, reason in objective_choices(aim)),
        *settings.choices,
        *(_target_choices(runs, goal.target) if becomes_gguf else []),
        *_device_choice(machine, recipe),
    ]
    warnings += [
        *settings.warnings,
        *_model_warnings(chosen, models),
        *(_target_warnings(chosen, runs, goal.target) if becomes_gguf else []),
        *filter(None, [export_text(plan.exports)]),
        *_machine_warnings(machine),
        *_work_warnings(plan, goal),
    ]
    return Suggestion(recipe=dump_recipe(recipe), model=chosen.path, choices=choices, plan=plan, warnings=warnings)


def chosen_model(path: str, models: Sequence[CatalogModel], here: Collection[str]) -> ChosenModel:
    """Find the model that a person named.

    Args:
        path: name of the model: "embedded", a folder, or a name of the catalog, which need not be on this machine.
        models: models of the catalog.
        here: names of the models whose files are on this machine.

    Raises:
        UsageError: There is no such model or folder.
        SetupError: The folder is unusable, its tokenizer is another model's, or its config does not say the shape.
    """
    entry = find_model(EMBEDDED if path == "embedded" else path, models)
    if path == "embedded" and entry is not None:
        return ChosenModel("embedded", entry.title, entry.spec, here=True, entry=entry)
    if entry is not None and not Path(path).is_dir():
        return ChosenModel(entry.name, entry.title, entry.spec, here=entry.name in here, entry=entry)
    if not (Path(path).exists() or is_model_name(path) or is_address(path)):
        raise _no_such_model(path, models)
    source = open_model(path)
    check_token_ids(source)
    return ChosenModel(path, source.name, spec_of(source), here=True, config=source.config)


def _no_such_model(name: str, models: Sequence[CatalogModel]) -> UsageError:
    """Say that a name is neither a folder nor in the catalog, and which names of the catalog are close to it."""
    shorter = {model.name.rpartition("/")[2].casefold(): model.name for model in models}
    close = [shorter[one] for one in difflib.get_close_matches(name.casefold(), shorter, n=3)]
    hint = f"Did you mean {' or '.join(close)}? " if close else ""
    return UsageError(
        f"There is no model {name}: the catalog has none of that name, and there is no such folder.",
        f'{hint}`burnish models search --all` lists the catalog; a folder and "embedded" do as well.',
    )


def catalog_model(entry: CatalogModel, here: Collection[str]) -> ChosenModel:
    """Choose a model of the catalog; the one that comes with Burnish is always here."""
    if entry.name == EMBEDDED and entry.name not in here:
        return ChosenModel("embedded", entry.title, entry.spec, here=True, entry=entry)
    return ChosenModel(entry.name, entry.title, entry.spec, here=entry.name in here, entry=entry)


def _choose(
    machine: MachineFacts, models: Sequence[CatalogModel], goal: TrainingGoal, here: Collection[str]
) -> tuple[ChosenModel, str]:
    """Choose the best model that trains here, runs on the target and exports to GGUF; else the smallest."""
    able = [model for model in models if model.exports and model.kind == "chat"]
    best = judge_best(machine, able, goal.target, here=here, dataset=goal.dataset)
    if best.ranked.verdict in {"good", "tight", "slow"}:
        return catalog_model(best.ranked.model, here), _why(best, machine, goal.target)
    smallest_one = min(able, key=lambda model: model.parameters)
    return catalog_model(smallest_one, here), "The smallest model there is, as none trains here and runs there."


def _why(one: JudgedModel, machine: MachineFacts, target: TargetSection) -> str:
    gpu = best_gpu(machine)
    where = f"the {gpu.name.removeprefix('NVIDIA ')}" if gpu else "this processor"
    where += " in 4 bits (QLoRA)" if is_quantized(one.fit) else ""
    runs = f"runs at about {one.on_target.tokens_per_s:.0f} tokens/s on a {target.kind} of {target.ram_gib:g} GiB"
    if one.ranked.verdict in {"tight", "slow"}:
        catch = one.ranked.reason.removesuffix(".")
        return f"The best that can be trained on {where} and {runs}, with a catch: {catch[0].lower()}{catch[1:]}."
    return f"The best all-round model that trains comfortably on {where} and {runs}."


def _nothing_fits(
    chosen: ChosenModel,
    machine: MachineFacts,
    models: Sequence[CatalogModel],
    goal: TrainingGoal,
    here: Collection[str],
) -> str:
    """Explain that the model cannot be trained, and name one that can."""
    gpu = best_gpu(machine)
    where = gpu.name.removeprefix("NVIDIA ") if gpu else "the system's memory"
    text = f"{chosen.title} cannot be trained here: not even its smallest pass fits into what is free on {where}."
    ranked = judge_all(machine, models, goal.target, here=here, dataset=goal.dataset)
    other = next(
        (one for one in ranked if one.fit and one.ranked.model.exports and one.on_target.verdict != "too_big"), None
    )
    if other is not None:
        return f"{text} {other.ranked.model.title} can: burnish suggest --model {other.ranked.model.name}"
    return f"{text} No model of the catalog fits either; close programs that use the memory, or use a larger machine."


def _all_too_long(recipe: Recipe, dataset: DatasetFacts | None) -> str:
    """Explain that every pair would be left out for its length; empty where some are learned from."""
    lengths = dataset.sequence_lengths if dataset is not None else None
    if lengths is None or not lengths.sample or lengths.sample[0] <= recipe.data.max_length:
        return ""
    return (
        f"No pair can be learned from: with the longer reply even the shortest has {lengths.sample[0]:,} tokens, and "
        f"{recipe.data.max_length:,} are all that this model and machine take. Use shorter replies, or another model."
    )


def _whole_recipe(recipe: Recipe, goal: TrainingGoal, runs: OnTarget, shape: str) -> Recipe:
    files = {"files": list(goal.data), "validation_files": list(goal.validation), "shape": shape}
    data = recipe.data.model_copy(update=files)
    return recipe.model_copy(update={"data": data, "target": goal.target, "export": ExportSection(quants=[runs.quant])})


def _target_choices(runs: OnTarget, target: TargetSection) -> list[SettingChoice]:
    size = (
        f"{file_size(runs.file_bytes)}, {memory_size(runs.run_bytes)} of {memory_size(runs.usable_bytes)} usable there"
    )
    speed = f"about {runs.tokens_per_s:.0f} tokens/s"
    if target.quant != "auto":
        reason = f"You chose it: {size}, {speed}."
    elif runs.verdict == "good":
        reason = f"The finest that runs well on a {target.kind} of {target.ram_gib:g} GiB: {size}, {speed}."
    else:
        reason = f"The smallest that keeps its quality: {size}, {speed}."
    return [SettingChoice(key="export.quants", value=runs.quant, reason=reason)]


def _device_choice(machine: MachineFacts, recipe: Recipe) -> list[SettingChoice]:
    if len(machine.gpus) < 2:
        return []
    gpu = recipe.devices.gpus[0]
    return [
        SettingChoice(
            key="devices.gpus",
            value=str([gpu]),
            reason=f"GPU {gpu} has the most free memory.",
        )
    ]


def _model_warnings(chosen: ChosenModel, models: Sequence[CatalogModel]) -> list[str]:
    warnings = []
    entry = chosen.entry
    if not chosen.here and entry:
        size = file_size(entry.download_bytes)
        text = f"{entry.title} is not on this machine: burnish models fetch {entry.name} ({size})."
        embedded = find_model(EMBEDDED, models)
        if embedded is not None:
            text += f" {embedded.title} comes with Burnish and can start now: burnish suggest --model embedded"
        warnings.append(text)
    if entry and entry.gated and not chosen.here:
        warnings.append(f"{entry.title} is gated: accept its terms on its page and set HF_TOKEN before fetching it.")
    if entry and not chosen.here:
        warnings += unconfirmed(entry)
    if entry and entry.license_note:
        warnings.append(f"License {entry.license}: {entry.license_note}")
    return warnings


def _target_warnings(chosen: ChosenModel, runs: OnTarget, target: TargetSection) -> list[str]:
    if runs.run_bytes > runs.usable_bytes:
        return [
            f"{chosen.title} as {runs.quant} takes {memory_size(runs.run_bytes)} to run, more than the "
            f"{memory_size(runs.usable_bytes)} that a {target.kind} of {target.ram_gib:g} GiB has to give."
        ]
    if runs.tokens_per_s < SLOWEST_TOKENS_PER_S:
        return [f"{chosen.title} would write about {runs.tokens_per_s:.1f} tokens/s on a {target.kind}."]
    return []


def _machine_warnings(machine: MachineFacts) -> list[str]:
    if machine.gpu_problem:
        return [
            f"There seems to be an NVIDIA GPU, but it does not answer ({machine.gpu_problem}); this is for the "
            "processor. `burnish doctor` says more."
        ]
    if not machine.gpus:
        return ["There is no NVIDIA GPU: training on the processor is slow, so only small models make sense."]
    return []


def _work_warnings(plan: RunPlan, goal: TrainingGoal) -> list[str]:
    warnings = [] if goal.dataset else ["No data was given: lengths, epochs and steps are usual values."]
    if goal.dataset and goal.dataset.train_rows < _FEW_ROWS:
        warnings.append(
            f"So few rows ({goal.dataset.train_rows} to learn from) teach a form, hardly a subject; some hundreds are "
            "better."
        )
    seconds = plan.total_seconds or USUAL_TOKENS / plan.tokens_per_s
    if seconds > _LONG_RUN_S:
        what = "Training" if plan.total_seconds else f"Training on {USUAL_TOKENS:,} tokens"
        warnings.append(
            f"{what} would take about {seconds / 3600:.0f} hours; a smaller model or train.max_tokens shortens it."
        )
    return warnings
