"""`burnish plan`: what a run will take, and whether it fits, before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from burnish_engine.cli.terminal import duration, out, print_json, size
from burnish_engine.contract.advice import Plan
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.facts import DatasetFacts
from burnish_engine.contract.paths import fetched_model_dir, is_model_name
from burnish_engine.contract.recipe import Recipe
from burnish_engine.contract.recipe_file import load_recipe


def plan(
    recipe: Annotated[Path, typer.Argument(help="The recipe (TOML).")],
    skip_data: Annotated[
        bool, typer.Option("--skip-data", help="Do not read the dataset; steps and time stay unknown.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Predict memory by component, disk, speed and time against what is free now."""
    from burnish_engine.advise.gather import plan_recipe

    parsed = load_recipe(recipe)
    result = plan_recipe(parsed, dataset=None if skip_data else _look_at_data(parsed))
    if json:
        print_json(result.model_dump_json(indent=2))
    else:
        show_plan(result)
    return ExitCode.DONE if result.fits else ExitCode.DOES_NOT_FIT


def _look_at_data(recipe: Recipe) -> DatasetFacts | None:
    """The dataset's facts; None where there are no files, or the model and so its tokenizer is not here yet."""
    from burnish_engine.data.prepare import prepare
    from burnish_engine.models.source import open_model
    from burnish_engine.models.tokenizer import load_tokenizer

    name = recipe.model.path
    if not recipe.data.files or (is_model_name(name) and not fetched_model_dir(name).is_dir()):
        return None
    return prepare(recipe, load_tokenizer(open_model(name))).facts


def show_plan(result: Plan) -> None:
    """Print a plan."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    for part in result.memory:
        table.add_row(part.name, size(part.bytes), part.note)
    table.add_row("[bold]memory, predicted peak[/]", f"[bold]{size(result.memory_bytes)}[/]", f"on {result.device}")
    table.add_row("free now", size(result.memory_free_bytes), f"of {size(result.memory_total_bytes)}")
    if result.host_bytes:
        table.add_row("system memory, loading", size(result.host_bytes), f"{size(result.host_free_bytes)} free")
    table.add_row("disk", size(result.disk_bytes), f"{size(result.disk_free_bytes)} free")
    table.add_row("trained weights", f"{result.trainable_parameters:,}")
    table.add_row("speed", f"{result.tokens_per_s:,.0f} tokens/s", result.speed_source)
    if result.seconds is not None and result.tokens is not None:
        work = f"{result.tokens:,} tokens" + (f" in {result.steps:,} steps" if result.steps else "")
        table.add_row("time", duration(result.seconds), work)
    out.print(table)
    for note in result.notes:
        out.print(f"[dim]note: {note}[/]")
    for problem in result.problems:
        out.print(f"[red]problem:[/] {problem}")
    out.print("[bold]Fits.[/]" if result.fits else "[bold]Does not fit.[/]")
