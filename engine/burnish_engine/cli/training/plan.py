"""`burnish plan`: predicts what a run takes and whether it fits, before anything is loaded; or what would fit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from burnish_engine.cli.terminal import duration, err, out, print_json, styled
from burnish_engine.cli.training.fitting import answer_what_fits
from burnish_engine.contract.errors import ExitCode, UsageError
from burnish_engine.contract.facts.advice import RunPlan
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.model_places import model_dir
from burnish_engine.contract.paths import is_model_name
from burnish_engine.contract.plain_text import typed
from burnish_engine.contract.recipe.place import HERE
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import load_recipe
from burnish_engine.contract.units import file_size, memory_size, plural
from burnish_engine.contract.wording.sentences import fit_sentence, time_sentence
from burnish_engine.contract.wording.tables import LOADING

_ROUGH = "steps and training time are unknown or rough"


def plan(
    recipe: Annotated[
        Path | None, typer.Argument(help="The recipe (TOML). Without one: what fits on this card.", show_default=False)
    ] = None,
    skip_data: Annotated[
        bool,
        typer.Option("--skip-data", help="Do not read the dataset; steps and training time stay unknown or rough."),
    ] = False,
    model: Annotated[
        str,
        typer.Option(help="Without a recipe: what fits with this model, by its name in `burnish models` or a folder."),
    ] = "",
    gpu_gib: Annotated[
        float | None,
        typer.Option(
            "--gpu-gib", help="Without a recipe: for a card of that memory, all of it free.", show_default=False
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Predict what a run takes and whether it fits, or what fits here.

    With a recipe: memory by component, disk, speed and training time, against what is free now. Without one: the
    largest model, the longest row and the biggest pass, each with its speed. No model is loaded.
    """
    if recipe is None:
        return answer_what_fits(model, gpu_gib, skip_data=skip_data, json=json)
    from burnish_engine.advise.plan.plan_recipe import plan_recipe

    if model or gpu_gib is not None:
        option = "--model" if model else "--gpu-gib"
        raise UsageError(
            f"{option} asks what would fit, and the recipe {recipe} is a run that stands.",
            f"Leave out {option} or the recipe.",
        )
    parsed = load_recipe(recipe)
    unread = _why_unread(parsed, skip=skip_data)
    result = plan_recipe(parsed, dataset=None if unread else inspect_data(parsed))
    if json:
        print_json(result.model_dump_json(indent=2))
    else:
        show_plan(result, unread)
        if parsed.devices.where != HERE:
            there = f"burnish submit {typed(recipe)} --dry-run"
            out.note(f"The recipe trains at {parsed.devices.where}. This plan is for this machine. There: {there}")
    return ExitCode.DONE if result.fits else ExitCode.DOES_NOT_FIT


def _why_unread(recipe: Recipe, *, skip: bool) -> str:
    """Explain why the dataset cannot be read, and what would allow it; empty where it can."""
    name = recipe.model.path
    if skip:
        return f"The data was not read (--skip-data), so {_ROUGH}."
    if not recipe.data.files:
        return f"The recipe names no data (data.files is empty), so {_ROUGH}."
    if is_model_name(name) and not model_dir(name).is_dir():
        return (
            f"The data was not read, because the model with its tokenizer is not here yet, so {_ROUGH}. "
            f"Get it: burnish models fetch {name}"
        )
    return ""


def inspect_data(recipe: Recipe) -> DatasetFacts:
    """Inspect the dataset.

    Raises:
        DataError: The dataset cannot be read, or the recipe does not say what to learn of its preferences.
    """
    from burnish_engine.data.prepare import inspect_dataset
    from burnish_engine.data.rows.shapes import preferences_among, undecided_preferences
    from burnish_engine.models.checkpoint.source import open_model
    from burnish_engine.models.checkpoint.tokenizer import load_tokenizer

    with err.status("reading the data"):
        facts = inspect_dataset(recipe, load_tokenizer(open_model(recipe.model.path))).facts
    undecided = preferences_among(facts.shape)
    if undecided and recipe.preference.objective == "sft" and recipe.data.shape == "auto":
        raise undecided_preferences("The dataset", undecided[0])
    return facts


def show_plan(result: RunPlan, unread: str = "") -> None:
    """Print a plan.

    Args:
        result: plan to print.
        unread: reason why the dataset is not part of it; empty where it is.
    """
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    for part in result.memory:
        table.add_row(part.name, memory_size(part.bytes), part.note)
    peak = styled("[bold]{}[/]", memory_size(result.memory_bytes))
    table.add_row(styled("[bold]memory, predicted peak[/]"), peak, f"on {result.device}")
    table.add_row("free now", memory_size(result.memory_free_bytes), f"of {memory_size(result.memory_total_bytes)}")
    if result.host_bytes:
        locked = f"; {memory_size(result.locked_bytes)} of it stays locked" if result.locked_bytes else ""
        free = f"{memory_size(result.host_free_bytes)} free{locked}"
        table.add_row("system memory, loading", memory_size(result.host_bytes), free)
    table.add_row("disk", file_size(result.disk_bytes), f"{file_size(result.disk_free_bytes)} free")
    if result.export_disk_bytes:
        table.add_row("disk, export", file_size(result.export_disk_bytes), "after training")
    table.add_row("trained weights", f"{result.trainable_parameters:,}")
    if result.coverage:
        table.add_row("reached of the layers", result.coverage.share_text, result.coverage.kinds_text)
        if result.coverage.beyond:
            table.add_row("trained beside them", "", result.coverage.beyond_text)
    table.add_row("speed", f"{result.tokens_per_s:,.0f} tokens/s", result.speed_source)
    if (seconds := result.total_seconds) is not None and result.tokens is not None:
        work = f"{result.tokens:,} tokens" + (f" in {plural(result.steps, 'step')}" if result.steps else "")
        table.add_row("training time", duration(seconds), work)
        for spent in result.times:
            table.add_row("", "", str(time_sentence(spent, duration)))
        table.add_row("", "", LOADING if result.times else "Loading and evaluation come on top.")
    elif unread:
        table.add_row("training time", "unknown", "the data was not read")
    out.print(table)
    if unread:
        out.note(unread)
    for note in result.notes:
        out.dim(f"note: {note}")
    for problem in result.problems:
        out.problem(problem)
    out.print(str(fit_sentence(result)), style="bold")
