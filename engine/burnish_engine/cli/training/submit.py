"""`burnish submit`: trains a recipe on another machine and brings the result back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.table import Table

from burnish_engine.cli.terminal import duration, out
from burnish_engine.cli.training.elsewhere import known_data
from burnish_engine.cli.training.train import start_run
from burnish_engine.contract.errors import ExitCode, UsageError
from burnish_engine.contract.recipe.recipe import MOST_GPUS, DevicesSection, Recipe
from burnish_engine.contract.recipe.recipe_file import load_recipe
from burnish_engine.contract.units import file_size, memory_size

_UNIT_H = {"m": 1 / 60, "h": 1.0, "d": 24.0}


def submit(
    recipe: Annotated[Path, typer.Argument(help="The recipe (TOML).")],
    to: Annotated[
        str,
        typer.Option(help="ssh:HOST, slurm, slurm:HOST, sky, sky:GPU, hf or hf:FLAVOR. Default: as the recipe says."),
    ] = "",
    gpus: Annotated[
        int, typer.Option(min=0, max=MOST_GPUS, help="Share each step among so many GPUs. 0: as the recipe says.")
    ] = 0,
    timeout: Annotated[
        str, typer.Option(help="Longest time there, such as 90m, 2h or 1d. Default: by the predicted time.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Plan and check, but start nothing.")] = False,
    run_dir: Annotated[
        Path | None, typer.Option(help="New folder for the run. Default: one beside your other runs.")
    ] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Start even if the plan says that it does not fit.")] = False,
) -> int:
    """Train on another machine and bring the result back.

    The run is followed here as one of this machine. Ctrl-C stops following; the job goes on.
    """
    parsed = _at(load_recipe(recipe), to, timeout)
    if dry_run:
        return _plan(parsed, gpus)
    return start_run(parsed, recipe, run_dir, gpus=gpus, anyway=anyway)


def _at(recipe: Recipe, to: str, timeout: str) -> Recipe:
    """Return the recipe with the place and the time that the command names."""
    changes = ({"where": to} if to else {}) | ({"timeout_hours": _hours(timeout)} if timeout else {})
    try:
        devices = DevicesSection.model_validate(recipe.devices.model_dump() | changes)
    except ValidationError as error:
        problem = str(error.errors(include_url=False)[0]["msg"]).removeprefix("Value error, ")
        raise UsageError(f"--to {problem}.", "`burnish submit --help` lists the places.") from None
    if devices.place.kind == "here":
        raise UsageError("Nothing says where to train.", "Add --to, such as --to ssh:HOST; or use `burnish train`.")
    return recipe.model_copy(update={"devices": devices})


def _hours(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([mhd])", text)
    if not found or not 0 < float(found[1]) * _UNIT_H[found[2]] <= 10_000:
        raise UsageError(f"--timeout {text!r:.40} is no time.", "Give minutes, hours or days, such as 90m, 2h or 1d.")
    return float(found[1]) * _UNIT_H[found[2]]


def _plan(recipe: Recipe, gpus: int) -> int:
    """Show what each machine there would take, and let the place judge the job."""
    from burnish_engine.contract.errors import SetupError
    from burnish_engine.remote.backends.backend import DroppedError
    from burnish_engine.remote.bundle.bundle import make_bundle
    from burnish_engine.remote.places import open_backend
    from burnish_engine.remote.plan_there import PlanThere, choose, plan_there

    try:
        backend = open_backend(recipe.devices.place)
        plans = plan_there(recipe, backend.offers(), gpus=gpus, dataset=known_data(recipe))
        chosen: PlanThere = choose(plans, anyway=True)
        timeout_s = chosen.timeout_s(recipe.devices.timeout_hours)
        bundle = make_bundle(recipe, recipe.name or "run", gpus=gpus, timeout_s=timeout_s)
        said = backend.check(bundle, chosen.offer) if chosen.plan.fits else ""
    except DroppedError as dropped:
        raise SetupError(f"{recipe.devices.where} cannot be reached: {dropped}.", "Try again.") from None
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("machine", "memory", "free", "fits", "time", "price"):
        table.add_column(title)
    for one in plans:
        table.add_row(
            one.offer.name,
            memory_size(one.plan.memory_bytes),
            memory_size(one.plan.memory_free_bytes),
            "yes" if one.plan.fits else "no",
            "unknown" if one.seconds is None else duration(one.seconds),
            "" if one.offer.usd_per_hour is None else _price(one.usd, one.offer.usd_per_hour),
        )
    out.print(table)
    for problem in chosen.plan.problems:
        out.problem(problem)
    if said:
        out.print(said)
    out.print(f"To send: {file_size(bundle.size_bytes)}. Longest time there: {duration(timeout_s)}.")
    out.print(f"It would run on {chosen.offer.name}." if chosen.plan.fits else "It fits nowhere there.", style="bold")
    return ExitCode.DONE if chosen.plan.fits else ExitCode.DOES_NOT_FIT


def _price(usd: float | None, hourly: float) -> str:
    return f"{hourly:.2f} USD an hour" if usd is None else f"{usd:.2f} USD, {hourly:.2f} an hour"
