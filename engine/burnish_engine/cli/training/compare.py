"""`burnish runs compare`: compares runs."""

from __future__ import annotations

import json as json_module
import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer
from rich.table import Table

from burnish_engine.cli.terminal import duration, out, print_json
from burnish_engine.contract.errors import ExitCode, UsageError
from burnish_engine.contract.run.comparison import ComparedRun, RunsComparison
from burnish_engine.contract.units import memory_size
from burnish_engine.runs.compare.card_text import fact_label
from burnish_engine.runs.compare.compare import RunComparison
from burnish_engine.runs.compare.compare import compare as compare_runs
from burnish_engine.runs.compare.side_by_side import side_by_side
from burnish_engine.runs.store import open_run

_LONGEST = 60
_NARROWEST = 20  # characters of a column
_RunArgument = typer.Argument(help='Names or folders of runs; "last" is the newest.', show_default=False)


def compare(
    runs: Annotated[list[str], _RunArgument],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Show two runs or more beside each other.

    What their recipes do differently, what came of it, and from their cards: whether base model, data and trained
    weights are the same, and which versions and devices differ.
    """
    paths = [open_run(run) for run in runs]
    roots = [one.root for one in paths]
    twice = next((run for run, root in zip(runs, roots, strict=True) if roots.count(root) > 1), None)
    if len(paths) < 2 or twice is not None:
        what = f"{twice} is the same run as another one." if twice is not None else "One run alone cannot be compared."
        raise UsageError(what, "Name two runs or more; `burnish runs list` shows them.")
    if len(paths) == 2:
        result = compare_runs(*paths)
        print_json(result.model_dump_json(indent=2)) if json else show(result)
    else:
        several = side_by_side(paths)
        print_json(several.model_dump_json(indent=2)) if json else show_several(several)
    return ExitCode.DONE


def show_several(result: RunsComparison) -> None:
    """Print a comparison of several runs, in as many tables as the terminal's width needs."""
    numbers = range(len(result.outcomes))
    columns = max(out.width // _NARROWEST - 1, 2)
    for start in numbers[::columns]:
        some = numbers[start : start + columns]
        table = _table([result.outcomes[number].run for number in some])
        for row in result.rows:
            values = [row.values[number] for number in some]
            table.add_row(fact_label(row.key), *("-" if value is None else _short(value) for value in values))
        _add_outcomes(table, [result.outcomes[number] for number in some])
        out.print(table, soft_wrap=False)
    for note in result.notes:
        out.note(note)


def _table(names: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("", no_wrap=True)
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def show(result: RunComparison) -> None:
    """Print a comparison."""
    table = _table([outcome.run for outcome in result.outcomes])
    for difference in result.recipe:
        table.add_row(difference.key, *(_short(value) for value in difference.values), style="bold")
    if not result.recipe:
        out.print("Their recipes are the same.")
    _add_outcomes(table, result.outcomes)
    out.print(table, soft_wrap=False)
    for line in result.cards:
        (out.note if line.verdict == "unknown" else out.print)(line.words)
    for note in result.notes:
        out.note(note)


def _add_outcomes(table: Table, outcomes: Sequence[ComparedRun]) -> None:
    """Add what came of runs: the rows in which one of them has a figure."""
    for cells in zip(*(list(_rows(outcome)) for outcome in outcomes), strict=True):
        if any(text != "-" for _, text in cells):
            table.add_row(cells[0][0], *(text for _, text in cells))


def _rows(outcome: ComparedRun) -> Iterator[tuple[str, str]]:
    yield "standing", f"{outcome.standing}, step {outcome.step} of {outcome.total_steps}"
    yield "training loss", _number(outcome.loss)
    after = f" (step {outcome.held_out_step})" if outcome.held_out_step not in (None, outcome.step) else ""
    yield "held-out loss", _number(outcome.held_out_loss) + after
    compared = "replies, as labeled" if outcome.objective == "kto" else "pairs"
    yield "preferred", f"{outcome.accuracy:.0%} of held-out {compared}" if outcome.accuracy is not None else "-"
    yield "margin", _number(outcome.margin)
    yield "loss on general text", outcome.forgetting.figures if outcome.forgetting else "-"
    yield "score of the task", outcome.task.figures if outcome.task else "-"
    yield "blind votes", outcome.votes or "-"
    yield "speed, median", f"{outcome.tokens_per_s:,.0f} tokens/s" if outcome.tokens_per_s is not None else "-"
    yield "memory, peak", memory_size(outcome.memory_bytes) if outcome.memory_bytes is not None else "-"
    yield "training time", duration(outcome.training_s) if outcome.training_s is not None else "-"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" if math.isfinite(value) else str(value)


def _short(value: Any) -> str:
    """Shorten a recipe's long value to its end, which distinguishes paths."""
    text = value if isinstance(value, str) else json_module.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"...{text[3 - _LONGEST :]}"
