"""The table behind a chart, and its text for a spreadsheet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from burnish_app.curves.curve import Curve, Numbers
from burnish_app.curves.run_axis import RunAxis


@dataclass(frozen=True)
class CurveTable:
    """The values of a chart as a table: a row for each step at which a curve has a value.

    Attributes:
        names: name of each column.
        columns: values of each column, [rows].
        present: whether each column has a value in each row, [rows]; a value need not be finite.
    """

    names: tuple[str, ...]
    columns: tuple[Numbers, ...]
    present: tuple[NDArray[np.bool_], ...]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.columns[0])

    def value(self, row: int, column: int) -> float | None:
        """Return the value of a cell; None: there is none."""
        return float(self.columns[column][row]) if self.present[column][row] else None


def curve_table(axis: RunAxis, curves: Mapping[str, Curve]) -> CurveTable:
    """Make the table of some curves.

    Its first columns are the step, the tokens and the seconds up to it. On an axis that runs share, it is the unit of
    the axis alone.

    Args:
        axis: horizontal axis of the curves.
        curves: name of the column to curve.
    """
    steps: Numbers = np.unique(np.concatenate([np.empty(0), *(curve.steps for curve in curves.values())]))
    everywhere = np.ones(len(steps), dtype=np.bool_)
    positions = {"step": steps, "tokens": axis.x("tokens", steps), "time_s": axis.x("time", steps)}
    if axis.shared:
        positions = {"time_s" if axis.unit == "time" else axis.unit: steps}
    columns, present = list(positions.values()), [everywhere] * len(positions)
    for curve in curves.values():
        values, known = np.full(len(steps), np.nan), np.zeros(len(steps), dtype=np.bool_)
        rows = np.searchsorted(steps, curve.steps)
        values[rows], known[rows] = curve.values, True
        columns.append(values)
        present.append(known)
    return CurveTable((*positions, *curves), tuple(columns), tuple(present))


def csv_text(table: CurveTable) -> str:
    """Return a table as comma-separated values with a line of names; a cell without a value is empty."""
    cells = [
        [_number(value) if here else "" for value, here in zip(column, present, strict=True)]
        for column, present in zip(table.columns, table.present, strict=True)
    ]
    lines = [",".join(_quoted(name) for name in table.names), *(",".join(row) for row in zip(*cells, strict=True))]
    return "\n".join(lines) + "\n"


def tab_text(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows separated by tabs, as spreadsheets take them from the clipboard."""
    return "\n".join("\t".join(cells) for cells in (head, *rows)) + "\n"


def _number(value: float) -> str:
    return f"{value:.0f}" if value == np.rint(value) and abs(value) < 1e15 else f"{value:.9g}"


def _quoted(name: str) -> str:
    return f'"{name.replace(chr(34), chr(34) * 2)}"' if any(letter in name for letter in ',"\n') else name
