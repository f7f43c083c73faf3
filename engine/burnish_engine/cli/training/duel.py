"""`burnish duel`: compares recipes under the same conditions."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from burnish_engine.cli.terminal import duration, err, out, print_json, styled
from burnish_engine.cli.training.duel_tables import show_differences, show_duel_forecast, show_result
from burnish_engine.contract.errors import BurnishError, ExitCode, UsageError
from burnish_engine.contract.files import write_atomic
from burnish_engine.contract.plain_text import typed
from burnish_engine.contract.recipe.sweep import SweepSetting, parse_setting
from burnish_engine.contract.run.state import ObservedStatus, RunStateFile
from burnish_engine.duel.measures.outcome import RunOutcome
from burnish_engine.duel.planner import run_counts
from burnish_engine.duel.report.figures import preferred_percent
from burnish_engine.duel.sides.spec import DuelOptions, RunSpec, duel_options
from burnish_engine.duel.state import DuelFolder, DuelState, create, open_duel

_SAY_EVERY_S = 30.0
_DEFAULTS = DuelOptions()


def duel(
    recipes: Annotated[
        list[Path] | None,
        typer.Argument(help="Two or more recipes (TOML); with --try one.", show_default=False),
    ] = None,
    tried: Annotated[
        list[str] | None,
        typer.Option("--try", help="A factor: a setting and two values, such as masking.kind=off,magma."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each side at its best learning rate; 3 or more.")] = 3,
    factors: Annotated[
        str,
        typer.Option(help="Learning rates to try, as multiples of each recipe's own. 1: that one alone, no grid."),
    ] = "0.3,1,3",
    extend: Annotated[
        int, typer.Option(help="Most further rates per side, where the best is at the edge of those.")
    ] = _DEFAULTS.extensions,
    evaluations: Annotated[int, typer.Option(help="Evaluations in the course of a run.")] = _DEFAULTS.evaluations,
    folder: Annotated[Path | None, typer.Option("--out", help="New folder for the duel.", show_default=False)] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the duel in this folder.", show_default=False)] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Compare although it is unfair; the report says so.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and how long it takes.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document: duel.json.")] = False,
) -> int:
    """Find out which of several recipes is better.

    All have the same data in the same order, seeds, precision and schedule. Each side finds its learning rate on a
    small grid, then runs with several seeds. Ends with a verdict per measure and its confidence interval, or "not
    distinguishable". With --try, up to three times, sides are all combinations of one recipe's settings, and verdicts
    are on effects and interactions. Ctrl-C saves and stops; --resume continues.
    """
    if resume is None:
        options = _options(seeds=seeds, factors=factors, extensions=extend, evaluations=evaluations, anyway=anyway)
        settings = [parse_setting(text) for text in tried or []]
        found = _begin(recipes or [], settings, options, folder, dry_run=dry_run, json=json)
        if found is None:
            return ExitCode.DONE
    else:
        if recipes or tried or folder or dry_run:
            raise UsageError(
                "--resume continues with a duel as it was begun, and takes no recipes, --try, --out or --dry-run.",
                f"burnish duel --resume {typed(resume)}",
            )
        found, _ = open_duel(resume)
    return _run(found, json=json)


def _begin(
    recipes: list[Path],
    tried: list[SweepSetting],
    options: DuelOptions,
    folder: Path | None,
    *,
    dry_run: bool,
    json: bool,
) -> DuelFolder | None:
    """Create the folder of a new duel; None for a dry run."""
    from burnish_engine.duel.prepare import forecast_duel, forecast_factors

    if tried and len(recipes) != 1:
        raise UsageError(
            f"With --try a duel takes one recipe, not {len(recipes)}.", "Its sides are that one with the values."
        )
    command = " ".join(["burnish", *(typed(argument) for argument in sys.argv[1:])])
    with err.status("looking at recipes and data"):
        found = (
            forecast_factors(recipes[0], tried, options, command) if tried else forecast_duel(recipes, options, command)
        )
    if not json:
        show_differences(found.state)
    if dry_run:
        if json:
            print_json(found.state.model_dump_json(indent=1))
        else:
            show_duel_forecast(found)
        return None
    if not json:
        show_duel_forecast(found)
    return create(found.state, found.recipes, folder)


def _run(folder: DuelFolder, *, json: bool) -> int:
    from burnish_engine.duel.report.report import render
    from burnish_engine.duel.run_duel import run_duel

    again = f"Continue with: burnish duel --resume {typed(folder.root)}"
    try:
        state = run_duel(folder, _DuelPrinter(quiet=json))
    except KeyboardInterrupt:
        err.print(f"Stopped; what was trained is saved. {again}")
        return ExitCode.STOPPED
    except BurnishError:
        err.print(f"The duel is not finished. {again}")
        raise
    finally:
        _, latest = open_duel(folder.root)
        write_atomic(folder.report, render(latest))
    if json:
        print_json(state.model_dump_json(indent=1))
    else:
        show_result(state)
        out.print(f"Report: {folder.report}")
    return ExitCode.DONE


def _options(*, factors: str, **rest: object) -> DuelOptions:
    try:
        numbers = [float(part) for part in factors.split(",")]
    except ValueError:
        raise UsageError(
            f"--factors is {factors!r}, which is no list of numbers.", "Give some such as 0.3,1,3"
        ) from None
    return duel_options(factors=numbers, **rest)


class _DuelPrinter:
    """Print the progress of a duel: a `DuelListener`."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._said = 0.0
        self._began = time.monotonic()

    def run_begins(self, state: DuelState, spec: RunSpec) -> None:
        """Print which run begins."""
        least, most = run_counts(state.sides, state.options)
        number = len(state.outcomes) + 1
        of = f"{least}" if number <= least else f"at most {most}"
        purpose = {"grid": "learning rate", "seeds": "compared", "second look": "second look at this rate"}[spec.phase]
        how = f", learning rate {spec.rate:.4g}, seed {spec.seed} ({purpose})"
        self._say(styled("run {} of {}: [bold]{}[/]{}", number, of, state.sides[spec.side].name, how))
        self._said, self._began = time.monotonic(), time.monotonic()

    def run_progress(self, run: RunStateFile, status: ObservedStatus) -> None:
        """Print the run's step, at most every `_SAY_EVERY_S`."""
        if time.monotonic() - self._said < _SAY_EVERY_S:
            return
        self._said = time.monotonic()
        where = f"step {run.step} of {run.total_steps}" if run.total_steps else run.phase or "starting"
        how = "" if status in ("running", "created") else f" ({status})"
        self._say(styled("  [dim]{}{}, {}[/]", where, how, duration(time.monotonic() - self._began)))

    def run_ended(self, state: DuelState, outcome: RunOutcome) -> None:
        """Print the run's result."""
        del state
        if outcome.ended == "diverged":
            self._say(styled("  [yellow]diverged[/] after step {}: {}", outcome.steps, outcome.message))
        else:
            speed = f", {outcome.tokens_per_s:,.0f} tokens/s" if outcome.tokens_per_s else ""
            preferred = preferred_percent(outcome)
            pairs = "" if preferred is None else f", {preferred:.1f} % of held-out pairs preferred"
            self._say(f"  held-out loss {outcome.held_out_loss:.4f}{pairs}{speed}, {duration(outcome.training_s)}")

    def _say(self, line: str | Text) -> None:
        if not self._quiet:
            out.print(line)
