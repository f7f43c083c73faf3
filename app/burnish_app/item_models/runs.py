"""The table model of the runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from PySide6.QtCore import QObject, QSortFilterProxyModel, Qt

from burnish_app.comparison.best_run import delta_text, deltas_to_best
from burnish_app.comparison.run_filter import matches
from burnish_app.item_models.run_rows import ROOT, Index, RunRowsModel
from burnish_app.look.language import tr
from burnish_app.wording.activity import awaited_name, run_title
from burnish_app.wording.numbers import duration_text
from burnish_app.wording.plain_words import model_text
from burnish_app.wording.run_text import RUN_STATUS_TEXT, RUN_TONES, Tone
from burnish_engine.contract.serve.replies import RunSummary

_INKS: dict[Tone, str] = {
    "plain": "",
    "live": "accent_ink",
    "success": "success",
    "warning": "warning",
    "error": "error",
}


SORT_ROLE = Qt.ItemDataRole.UserRole + 1
"""Role of the value that a cell is sorted by; None: it has none, and stands last."""


class RunRow(NamedTuple):
    """A run, and how far its held-out loss is from the best one; None: there is nothing to compare with."""

    run: RunSummary
    delta: float | None


class _ColumnSpec(NamedTuple):
    title: str
    number: bool
    text: Callable[[RunRow], str]
    sort: Callable[[RunRow], Any]


def moment_text(t: float, now: float) -> str:
    """Format a moment as "14:05", "Tue 14:05" or "2026-03-02".

    Args:
        t: moment, seconds since the epoch; 0: unknown.
        now: current time, seconds since the epoch.
    """
    if t <= 0:
        return ""
    moment = datetime.fromtimestamp(t)
    days = (datetime.fromtimestamp(now).date() - moment.date()).days
    if days == 0:
        return f"{moment:%H:%M}"
    return f"{moment:%a %H:%M}" if 0 < days < 7 else f"{moment:%Y-%m-%d}"


def loss_cell_text(value: float | None) -> str:
    """Format a loss for a cell; empty if there is none yet."""
    return "" if value is None else f"{value:.3f}"


def _hint(run: RunSummary) -> str:
    if run.standing == "queued" and run.waits_for:
        return tr("Waits for {name}").format(name=awaited_name(run))
    return run.state.message or run.folder


def took_text(run: RunSummary) -> str:
    """Return the time from the run's creation to its last heartbeat, waiting and pauses included; empty if queued."""
    seconds = took_s(run)
    return "" if seconds is None else duration_text(seconds)


def steps_text(run: RunSummary) -> str:
    """Format the steps made and planned; empty while they are unknown."""
    return f"{run.state.step:,} / {run.state.total_steps:,}" if run.state.total_steps else ""


def took_s(run: RunSummary) -> float | None:
    """Return the time from the run's creation to its last heartbeat, seconds; None while it waits for its turn."""
    seconds = run.state.heartbeat - run.state.created
    return seconds if run.state.heartbeat and seconds > 0 and run.standing != "queued" else None


def _known(loss: float | None) -> float | None:
    """Return a loss by which runs can be ordered; None: there is none."""
    return loss if loss is not None and math.isfinite(loss) else None


def _lower(text: str) -> str | None:
    return text.casefold() or None


_STATUS = _ColumnSpec(
    tr("Status"), False, lambda row: RUN_STATUS_TEXT[row.run.standing], lambda row: RUN_STATUS_TEXT[row.run.standing]
)
_DELTA = _ColumnSpec(tr("To best"), True, lambda row: delta_text(row.delta), lambda row: row.delta)
COLUMNS = (
    _ColumnSpec(tr("Run"), False, lambda row: run_title(row.run), lambda row: _lower(run_title(row.run))),
    _STATUS,
    _ColumnSpec(tr("Model"), False, lambda row: model_text(row.run.model), lambda row: _lower(row.run.model)),
    _ColumnSpec(tr("Step"), True, lambda row: steps_text(row.run), lambda row: row.run.state.step or None),
    _ColumnSpec(tr("Curve"), False, lambda _row: "", lambda row: _known(row.run.state.loss)),
    _ColumnSpec(
        tr("Loss"), True, lambda row: loss_cell_text(row.run.state.loss), lambda row: _known(row.run.state.loss)
    ),
    _ColumnSpec(
        tr("Held out"),
        True,
        lambda row: loss_cell_text(row.run.state.evaluation_loss),
        lambda row: _known(row.run.state.evaluation_loss),
    ),
    _DELTA,
    _ColumnSpec(
        tr("Tags"), False, lambda row: ", ".join(row.run.notes.tags), lambda row: _lower(" ".join(row.run.notes.tags))
    ),
    _ColumnSpec(tr("Took"), True, lambda row: took_text(row.run), lambda row: took_s(row.run)),
    _ColumnSpec(
        tr("Started"),
        True,
        lambda row: moment_text(row.run.state.created, time.time()),
        lambda row: row.run.state.created or None,
    ),
)


class RunsTableModel(RunRowsModel[RunRow]):
    """A table of all runs, newest first.

    Attributes:
        deltas: difference of each run's held-out loss to the best one, by folder.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.deltas: dict[str, float] = {}

    def set_runs(self, runs: Sequence[RunSummary]) -> None:
        """Replace the runs shown."""
        self.deltas = deltas_to_best(runs)
        self.set_rows([RunRow(run, self.deltas.get(run.folder)) for run in runs])

    def row_of(self, folder: str) -> int:
        """Return the row of a run by its folder; -1 if it is not listed."""
        return next((place for place, row in enumerate(self._rows) if row.run.folder == folder), -1)

    def columnCount(self, parent: Index = ROOT) -> int:
        """Return the number of columns."""
        return 0 if parent.isValid() else len(COLUMNS)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a cell's text, hint or alignment, or the name of its color (UserRole)."""
        row, column = self.row(index.row()), COLUMNS[index.column()]
        if row is None:
            return None
        answers: dict[int, Callable[[], Any]] = {
            Qt.ItemDataRole.DisplayRole: lambda: column.text(row),
            SORT_ROLE: lambda: column.sort(row),
            Qt.ItemDataRole.ToolTipRole: lambda: _hint(row.run),
            Qt.ItemDataRole.UserRole: lambda: _ink(column, row),
            Qt.ItemDataRole.TextAlignmentRole: lambda: _alignment(column),
        }
        return answers[role]() if role in answers else None

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a column's heading or its alignment."""
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return COLUMNS[section].title
        return _alignment(COLUMNS[section]) if role == Qt.ItemDataRole.TextAlignmentRole else None


class RunsOrder(QSortFilterProxyModel):
    """The runs that match a text, in the order of a column; runs without a value there stand last."""

    def __init__(self, runs: RunsTableModel, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._model, self._text = runs, ""
        self.setSourceModel(runs)
        self.setSortRole(SORT_ROLE)

    def set_text(self, text: str) -> None:
        """Show only runs that have every word of a text."""
        if text != self._text:
            self._text = text
            self.invalidateRowsFilter()

    def run(self, row: int) -> RunSummary | None:
        """Return the run of a row; None if there is no such row."""
        found = self._model.row(self.mapToSource(self.index(row, 0)).row())
        return found.run if found is not None else None

    def row_of(self, folder: str) -> int:
        """Return the row of a run by its folder; -1 if it is not shown."""
        row = self._model.row_of(folder)
        return self.mapFromSource(self._model.index(row, 0)).row() if row >= 0 else -1

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a column's heading, with an arrow if the runs are sorted by it."""
        found = super().headerData(section, orientation, role)
        if role != Qt.ItemDataRole.DisplayRole or section != self.sortColumn():
            return found
        return f"{found}\u00a0{'↑' if self.sortOrder() == Qt.SortOrder.AscendingOrder else '↓'}"

    def filterAcceptsRow(self, source_row: int, source_parent: Index) -> bool:
        """Return whether a run matches."""
        found = self._model.row(source_row)
        return found is not None and matches(found.run, self._text)

    def lessThan(self, source_left: Index, source_right: Index) -> bool:
        """Return whether one run comes before another."""
        left, right = source_left.data(SORT_ROLE), source_right.data(SORT_ROLE)
        if left is None or right is None:  # last in either order
            return (left is not None) == (self.sortOrder() == Qt.SortOrder.AscendingOrder) and left != right
        return bool(left < right)


def _ink(column: _ColumnSpec, row: RunRow) -> str:
    """Name the color of a cell's text."""
    if column is _STATUS:
        return _INKS[RUN_TONES.get(row.run.standing, "plain")]
    return "success" if column is _DELTA and row.delta == 0 else ""


def _alignment(column: _ColumnSpec) -> Qt.AlignmentFlag:
    side = Qt.AlignmentFlag.AlignRight if column.number else Qt.AlignmentFlag.AlignLeft
    return side | Qt.AlignmentFlag.AlignVCenter
