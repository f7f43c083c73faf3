"""`burnish runs compare`: compares two runs."""

from __future__ import annotations

import json as json_module
import math
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.table import Table

from burnish_engine.cli.terminal import duration, out, print_json
from burnish_engine.contract.errors import ExitCode, UsageError
from burnish_engine.contract.units import memory_size
from burnish_engine.runs.compare.compare import ComparedRun, RunComparison
from burnish_engine.runs.compare.compare import compare as compare_runs
from burnish_engine.runs.store import open_run

_LONGEST = 60
_RunArgument = typer.Argument(help='Name or folder of a run; "last" is the newest.', show_default=False)


def compare(
    first: Annotated[str, _RunArgument],
    second: Annotated[str, _RunArgument],
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Show two runs beside each other.

    What their recipes do differently, what came of it, and from their cards: whether base model, data and trained
    weights are the same, and which versions and devices differ.
    """
    paths = open_run(first), open_run(second)
    if paths[0].root == paths[1].root:
        raise UsageError(f"{first} and {second} are the same run.", "`burnish runs list` shows the others.")
    result = compare_runs(*paths)
    if json:
        print_json(result.model_dump_json(indent=2))
    else:
        show(result)
    return ExitCode.DONE


def show(result: RunComparison) -> None:
    """Print a comparison."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("")
    for outcome in result.outcomes:
        table.add_column(outcome.run, overflow="fold")
    for difference in result.recipe:
        table.add_row(difference.key, *(_short(value) for value in difference.values), style="bold")
    if not result.recipe:
        out.print("Their recipes are the same.")
    rows = zip(*(list(_rows(outcome)) for outcome in result.outcomes), strict=True)
    for (title, ours), (_, theirs) in rows:
        table.add_row(title, ours, theirs)
    out.print(table, soft_wrap=False)
    for line in result.cards:
        (out.note if line.verdict == "unknown" else out.print)(line.words)
    for note in result.notes:
        out.note(note)


def _rows(outcome: ComparedRun) -> Iterator[tuple[str, str]]:
    yield "standing", f"{outcome.standing}, step {outcome.step} of {outcome.total_steps}"
    yield "training loss", _number(outcome.loss)
    after = f" (step {outcome.held_out_step})" if outcome.held_out_step not in (None, outcome.step) else ""
    yield "held-out loss", _number(outcome.held_out_loss) + after
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
