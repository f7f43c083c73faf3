"""`burnish sweep`: queues a run for each combination of some settings' values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from burnish_engine.cli.plan import inspect_data
from burnish_engine.cli.terminal import duration, err, out, print_json
from burnish_engine.contract.errors import DoesNotFitError, ExitCode, UsageError
from burnish_engine.contract.facts.advice import RunPlan
from burnish_engine.contract.recipe.recipe_file import load_recipe
from burnish_engine.contract.recipe.sweep import SweepCell, SweepSetting, expand, parse_values, value_text
from burnish_engine.contract.units import memory_size


def sweep(
    recipe: Annotated[Path, typer.Argument(help="The recipe (TOML) that the settings change.")],
    tried: Annotated[
        list[str], typer.Option("--try", help="A setting and its values, such as train.learning_rate=1e-4,2e-4.")
    ],
    name: Annotated[str, typer.Option(help="Name of the sweep. Default: the recipe's.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be queued, and its time.")] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Queue runs even if they do not fit.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document: the sweep.")] = False,
) -> int:
    """Queue a run for each combination of up to three settings' values.

    They are ordinary runs, made one after the other; `burnish runs compare` puts them beside each other.
    """
    from burnish_engine.runs.jobs.sweeps import queue_sweep
    from burnish_engine.service.machine import MachineCache
    from burnish_engine.service.plans import lease_of

    base = load_recipe(recipe)
    settings = [_setting(text) for text in tried]
    cells = expand(base, settings)
    plans = _plans(cells)
    if not json:
        _show(settings, cells, plans)
    if dry_run:
        return ExitCode.DONE
    unfit = next((number for number, plan in enumerate(plans) if not plan.fits), None)
    if unfit is not None and not anyway:
        raise DoesNotFitError(
            f"{cells[unfit].recipe.name} does not fit: {' '.join(plans[unfit].problems)}",
            "Take these values out, or add --anyway.",
        )
    facts = MachineCache().facts()
    devices = [lease_of(cell.recipe, facts) for cell in cells]
    made = queue_sweep(name or base.name or recipe.stem, settings, cells, devices, anyway=anyway)
    if json:
        print_json(made.model_dump_json(indent=1))
    else:
        out.print(f"Queued: {len(made.runs)}. `burnish runs list` shows how far they are.")
    return ExitCode.DONE


def _setting(text: str) -> SweepSetting:
    key, equals, values = text.partition("=")
    if not equals:
        raise UsageError(f"--try {text} names no values.", "Give them, such as --try train.learning_rate=1e-4,2e-4")
    return SweepSetting(key=key.strip(), values=parse_values(key.strip(), values))


def _plans(cells: list[SweepCell]) -> list[RunPlan]:
    """Predict every run; the data is read once."""
    from burnish_engine.advise.plan.plan_recipe import plan_recipe
    from burnish_engine.advise.plan.recipe_fit import facts_for_recipe

    facts = inspect_data(cells[0].recipe)
    with err.status("predicting runs"):
        return [plan_recipe(cell.recipe, dataset=facts_for_recipe(cell.recipe, facts)) for cell in cells]


def _show(settings: list[SweepSetting], cells: list[SweepCell], plans: list[RunPlan]) -> None:
    table = Table(box=None, pad_edge=False)
    for title in (*(setting.key for setting in settings), "memory", "time", ""):
        table.add_column(title)
    for cell, plan in zip(cells, plans, strict=True):
        time = "unknown" if plan.seconds is None else duration(plan.seconds)
        fits = "" if plan.fits else "does not fit"
        table.add_row(*map(value_text, cell.values), memory_size(plan.memory_bytes), time, fits)
    out.print(table)
    known = [plan.seconds for plan in plans if plan.seconds is not None]
    whole = duration(sum(known)) if len(known) == len(plans) else "unknown"
    runs = "1 run" if len(cells) == 1 else f"{len(cells)} runs"
    out.print(f"{runs}, predicted training time {whole}.")
