"""`burnish submit`: trains a recipe on another machine and brings the result back."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.table import Table

from burnish_engine.advise.plan.shared_steps import shared_note
from burnish_engine.cli.terminal import duration, out, print_json
from burnish_engine.cli.training.elsewhere import known_data
from burnish_engine.cli.training.train import start_run
from burnish_engine.contract.errors import ExitCode, UsageError
from burnish_engine.contract.facts.advice import PlaceOffers, PlannedOffer
from burnish_engine.contract.recipe.recipe import MOST_GPUS, DevicesSection, Recipe
from burnish_engine.contract.recipe.recipe_file import load_recipe
from burnish_engine.contract.units import file_size, memory_size, short_time

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
    json: Annotated[bool, typer.Option("--json", help="With --dry-run: print one JSON document.")] = False,
    run_dir: Annotated[
        Path | None, typer.Option(help="New folder for the run. Default: one beside your other runs.")
    ] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Start even if the plan says that it does not fit.")] = False,
) -> int:
    """Train on another machine and bring the result back.

    The run is followed here as one of this machine. Ctrl-C stops following; the job continues.
    """
    parsed = _at(load_recipe(recipe), to, timeout)
    if dry_run:
        return _plan(parsed, gpus, json=json)
    if json:
        raise UsageError("--json prints a plan, and this starts a run.", "Add --dry-run, or leave --json out.")
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


def _plan(recipe: Recipe, gpus: int, *, json: bool) -> int:
    """Show what each machine there would take, and let the place judge the job."""
    from burnish_engine.contract.errors import SetupError
    from burnish_engine.remote.backends.backend import DroppedError
    from burnish_engine.remote.bundle.bundle import make_bundle
    from burnish_engine.remote.places import open_backend
    from burnish_engine.remote.plan_there import choose, place_offers, plan_there

    try:
        backend = open_backend(recipe.devices.place)
        plans = plan_there(recipe, backend.offers(), gpus=gpus, dataset=known_data(recipe))
        found = place_offers(recipe.devices.where, plans, recipe.devices.timeout_hours)
        bundle = make_bundle(recipe, recipe.name or "run", gpus=gpus, timeout_s=found.longest_s)
        if found.best.plan.fits:
            found = found.model_copy(update={"said": backend.check(bundle, choose(plans, anyway=True).offer)})
    except DroppedError as dropped:
        raise SetupError(f"{recipe.devices.where} cannot be reached: {dropped}.", "Try again.") from None
    if json:
        print_json(found.model_dump_json(indent=2))
    else:
        _show(found, bundle.size_bytes, recipe.train.accumulation)
    return ExitCode.DONE if found.best.plan.fits else ExitCode.DOES_NOT_FIT


def _show(found: PlaceOffers, size_bytes: int, passes: int) -> None:
    """Print what the place has to offer."""
    best, shared = found.best, any(one.plan.shared for one in found.offers)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    of_each = " of each GPU" if shared else ""
    for title in ("machine", f"memory{of_each}", "free", "fits", *(_SHARED if shared else ()), "time", "price"):
        table.add_column(title)
    for one in found.offers:
        seconds = one.plan.total_seconds
        table.add_row(
            one.name,
            memory_size(one.plan.memory_bytes),
            memory_size(one.plan.memory_free_bytes),
            "yes" if one.plan.fits else "no",
            *(_shared_cells(one) if shared else ()),
            "unknown" if seconds is None else duration(seconds),
            "" if one.usd_per_hour is None else _price(one.usd, one.usd_per_hour),
        )
    out.print(table)
    if (text := shared_note(best.plan.shared)) and best.plan.fits:
        out.dim(f"note: {text}")
    if best.plan.fits and 0 < best.used_gpus < best.gpus:
        more = min(best.gpus, passes)  # others would have nothing to do
        hint = f" --gpus {more} uses {more} of them." if more > best.used_gpus else ""
        out.dim(f"note: Of {best.name}'s {best.gpus} GPUs, {best.used_gpus} would train.{hint}")
    for problem in best.plan.problems:
        out.problem(problem)
    if found.said:
        out.print(found.said)
    out.print(f"To send: {file_size(size_bytes)}. Longest time there: {duration(found.longest_s)}.")
    out.print(f"It would run on {best.name}." if best.plan.fits else "It fits nowhere there.", style="bold")


_SHARED = ("GPUs", "passes", "exchange")


def _shared_cells(one: PlannedOffer) -> tuple[str, str, str]:
    """Return the cells on GPUs that share steps: how many of how many, the passes of each, and what it costs."""
    shared = one.plan.shared
    gpus = f"{one.used_gpus} of {one.gpus}"
    if shared is None:
        return gpus, "", ""
    sent = "" if shared.exchange_ms is None else short_time(shared.exchange_ms / 1000)
    return gpus, f"{shared.passes} each", f"{sent} of {short_time(shared.step_ms / 1000)}" if sent else ""


def _price(usd: float | None, hourly: float) -> str:
    return f"{hourly:.2f} USD an hour" if usd is None else f"{usd:.2f} USD, {hourly:.2f} an hour"
