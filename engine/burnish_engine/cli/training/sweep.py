"""`burnish sweep`: queues a run for each combination of some settings' values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from burnish_engine.cli.terminal import duration, err, out, print_json, typed_run
from burnish_engine.cli.training.plan import inspect_data
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.facts.advice import RunPlan
from burnish_engine.contract.facts.sweeps import SweepPlan, sweep_plan
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe_file import load_recipe
from burnish_engine.contract.recipe.sweep import SweepCell, expand, parse_setting, value_text
from burnish_engine.contract.units import memory_size, plural


def sweep(
    recipe: Annotated[Path, typer.Argument(help="The recipe (TOML) that the settings change.")],
    tried: Annotated[
        list[str], typer.Option("--try", help="A setting and its values, such as train.learning_rate=1e-4,2e-4.")
    ],
    name: Annotated[str, typer.Option(help="Name of the sweep. Default: the recipe's.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be queued, and its time.")] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Queue runs even if they do not fit.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document: the sweep, or its plan.")] = False,
) -> int:
    """Queue a run for each combination of settings' values.

    Up to three settings are varied. They are ordinary runs, made one after the other; `burnish runs compare` puts them
    beside each other.
    """
    from burnish_engine.runs.jobs.sweeps import queue_sweep, sweep_name
    from burnish_engine.service.machine import MachineCache
    from burnish_engine.service.plans import lease_of, refuse_unfit_sweep

    base = load_recipe(recipe)
    label = sweep_name(name, base.name or recipe.stem)
    settings = [parse_setting(text) for text in tried]
    cells = expand(base, settings)
    plans = _plans(cells)
    planned = sweep_plan(settings, cells, plans)
    if not json:
        _show(planned)
    if dry_run:
        if json:
            print_json(planned.model_dump_json(indent=1))
        return ExitCode.DONE
    facts = MachineCache().facts()
    if not anyway:
        refuse_unfit_sweep(cells, plans, facts)
    devices = [lease_of(cell.recipe, facts) for cell in cells]
    made = queue_sweep(label, settings, cells, devices, anyway=anyway)
    if json:
        print_json(made.model_dump_json(indent=1))
    else:
        out.print(f"Queued: {plural(len(made.runs), 'run')}. `burnish runs list` shows how far that is.")
        if len(made.runs) > 1:
            out.print("To compare them afterwards:")
            out.print(f"burnish runs compare {' '.join(typed_run(RunPaths(Path(run.folder))) for run in made.runs)}")
    return ExitCode.DONE


def _plans(cells: list[SweepCell]) -> list[RunPlan]:
    """Predict every run; the data is read once."""
    from burnish_engine.advise.plan.plan_recipe import plan_recipe
    from burnish_engine.advise.plan.recipe_fit import facts_for_recipe

    facts = inspect_data(cells[0].recipe)
    with err.status("predicting runs"):
        return [plan_recipe(cell.recipe, dataset=facts_for_recipe(cell.recipe, facts)) for cell in cells]


def _show(plan: SweepPlan) -> None:
    table = Table(box=None, pad_edge=False)
    for title in (*(setting.key for setting in plan.settings), "memory", "time", ""):
        table.add_column(title)
    for run in plan.runs:
        fits = "" if run.fits else "does not fit"
        table.add_row(*map(value_text, run.values), memory_size(run.memory_bytes), _time(run.seconds), fits)
    out.print(table)
    out.print(f"{plural(len(plan.runs), 'run')}, predicted training time {_time(plan.seconds)}.")


def _time(seconds: float | None) -> str:
    return "unknown" if seconds is None else duration(seconds)
