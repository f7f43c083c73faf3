"""Print the report on a dataset: the reading, the template, the cut lines."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from burnish_engine.contract.facts.data_report import ColumnReading, DatasetReport, TemplateFacts
from burnish_engine.contract.units import plural


def report_blocks(report: DatasetReport) -> Iterator[RenderableType]:
    """Yield the parts of a report, each under its heading.

    Args:
        report: report to print. Its findings are among the dataset's warnings.
    """
    if report.readings:
        yield Text("\nHow the columns are read", style="bold")
        yield Padding(_readings(report.readings), (0, 2))
    if report.cut_lines:
        yield Text("\nWhat a longest length would cut", style="bold")
        yield Padding(_cuts(report), (0, 2))
    if report.template:
        yield Text("\nChat template", style="bold")
        yield Padding(Text(_template(report.template)), (0, 2))


def _readings(readings: list[ColumnReading]) -> Table:
    from burnish_engine.data.report.columns import FROM_RECIPE

    table = Table.grid(padding=(0, 2))
    for number, reading in enumerate(readings):
        columns = ", ".join(f"{meaning} = {name}" for meaning, name in reading.columns.items())
        style = "" if number == 0 else "dim"
        state = "in use" if number == 0 else "or"
        sure = FROM_RECIPE if reading.says == FROM_RECIPE else f"{reading.confidence:.0%} sure"
        row = (state, sure, reading.shape, columns)
        table.add_row(*(Text(cell, style=style) for cell in row))
    return table


def _cuts(report: DatasetReport) -> Table:
    table = Table.grid(padding=(0, 2))
    for line in report.cut_lines:
        table.add_row(
            Text(f"max_length {line.max_length:,}"),
            Text(f"{plural(line.rows_cut, 'row')} cut"),
            Text(f"{line.tokens_lost:,} tokens lost, {line.learned_lost:,} of them learned", style="dim"),
        )
    return table


def _template(template: TemplateFacts) -> str:
    takes = [
        ("a system message", template.takes_system),
        ("two questions in a row", template.takes_two_users),
        ("tools", template.writes_tools),
        ("calls of tools", template.writes_calls),
        ("thoughts", template.writes_thoughts),
    ]
    good = ", ".join(name for name, does in takes if does) or "nothing beyond plain turns"
    bad = ", ".join(name for name, does in takes if not does)
    end = f"replies end with {template.turn_end}" if template.turn_end else "replies have no end token of their own"
    prompt = "has a generation prompt" if template.has_prompt else "has no generation prompt"
    return f"{template.name}: takes {good}{f'; not {bad}' if bad else ''}; {end}; {prompt}."
