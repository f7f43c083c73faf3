"""Tables of `burnish duel`."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from burnish_engine.cli.terminal import duration, out, styled
from burnish_engine.contract.units import memory_size, plural
from burnish_engine.duel.planner import run_counts, run_seconds
from burnish_engine.duel.prepare import DuelForecast
from burnish_engine.duel.report.figures import figures
from burnish_engine.duel.sides.differences import shown
from burnish_engine.duel.state import DuelState
from burnish_engine.duel.verdict.rates import SECOND_LOOKS
from burnish_engine.duel.verdict.verdict import few_seeds_note, headline

_MARKS = {"compared": "", "unfair": "[yellow]unfair:[/] ", "decided": "[dim]not compared:[/] "}


def show_differences(state: DuelState) -> None:
    """Print the differences between the recipes."""
    table = _table("recipes differ in", *(side.name for side in state.sides), "")
    for one in state.differences:
        style = "bold" if one.kind == "compared" else ""
        values = [shown(value) for value in one.values]
        table.add_row(one.key, *values, styled(_MARKS[one.kind] + "{}", one.why), style=style)
    out.print(table if state.differences else "The recipes are the same.", soft_wrap=False)


def show_duel_forecast(forecast_duel: DuelForecast) -> None:
    """Print how many runs a duel makes, and their predicted time."""
    sides, options = forecast_duel.state.sides, forecast_duel.state.options
    least, most = run_counts(sides, options)
    grid = len(options.factors)
    first = f"{grid} learning rates on one seed, then " if grid > 1 else ""
    rate = "the best of them" if grid > 1 else "its own learning rate"
    out.print(f"{least} runs: for each of {len(sides)} sides {first}{options.seeds} seeds at {rate}.")
    if most > least:
        out.print(
            f"At most {most}: up to {options.extensions} more rates for a side whose best is at the edge, and "
            f"{options.seeds} seeds at up to {SECOND_LOOKS} of its next best rates before a side is called worse."
        )
    times = run_seconds(sides, options)
    if times is None:
        out.print("How long they take is not known.")
    else:
        longest = f" (at most {duration(times[1])})" if most > least else ""
        out.print(f"Predicted training time: {duration(times[0])}{longest}; loading comes on top.")
    for side, plan in zip(sides, forecast_duel.plans, strict=True):
        steps = f"{plural(plan.steps, 'step')}, " if plan.steps else ""
        fits = "" if plan.fits else " [red]does not fit[/]"
        out.print(styled("  {}: {}{} predicted" + fits, side.name, steps, memory_size(plan.memory_bytes)))
    energy = forecast_duel.state.energy
    out.print(f"Energy: {energy}." if energy else "Energy is not measured here: it needs an NVIDIA GPU.")


def show_result(state: DuelState) -> None:
    """Print the verdicts and figures of a duel."""
    out.print()
    show_differences(state)
    out.print()
    _show_figures(state)
    for one in state.checks:
        if one.verdict != "same":
            color = "red" if one.verdict == "differs" else "yellow"
            out.print(Text.assemble((f"{one.verdict}:", color), f" {one.what} ({one.detail})"))
    if state.options.anyway and any(one.kind == "unfair" for one in state.differences):
        out.note("The conditions differ, and were compared anyway, as asked.")
    out.print()
    for verdict in state.verdicts:
        out.print(styled("[bold]{}[/]: {}", verdict.title, verdict.text))
    out.print()
    out.print(styled("[bold]{}[/]", headline(state.verdicts)))
    out.dim(few_seeds_note(state.options.seeds, state.level))


def _show_figures(state: DuelState) -> None:
    """Print figures of every side, mean and range over the seeds."""
    table = _table("over the seeds: mean (least to most)", *(side.name for side in state.sides))
    for row in figures(state):
        table.add_row(row.title, *row.cells)
    out.print(table, soft_wrap=False)


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for title in titles:
        table.add_column(title, overflow="fold")
    return table
