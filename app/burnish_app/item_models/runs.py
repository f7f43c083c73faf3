"""The table model of the runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from burnish_app.look.language import tr
from burnish_app.wording.numbers import duration_text
from burnish_app.wording.run_text import RUN_STATUS_TEXT, RUN_TONES, Tone
from burnish_engine.contract.serve.protocol import RunSummary

Index = QModelIndex | QPersistentModelIndex
_ROOT = QModelIndex()
_INKS: dict[Tone, str] = {
    "plain": "",
    "live": "accent_ink",
    "success": "success",
    "warning": "warning",
    "error": "error",
}


class _ColumnSpec(NamedTuple):
    title: str
    number: bool
    text: Callable[[RunSummary], str]


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
        return tr("Waits for {name}").format(name=Path(run.waits_for).name)
    return run.state.message or run.folder


def took_text(run: RunSummary) -> str:
    """Return the time from the run's creation to its last heartbeat, waiting and pauses included."""
    seconds = run.state.heartbeat - run.state.created
    return duration_text(seconds) if run.state.heartbeat and seconds > 0 else ""


def steps_text(run: RunSummary) -> str:
    """Format the steps made and planned; empty while they are unknown."""
    return f"{run.state.step:,} / {run.state.total_steps:,}" if run.state.total_steps else ""


_STATUS = _ColumnSpec(tr("Status"), False, lambda run: RUN_STATUS_TEXT[run.standing])
COLUMNS = (
    _ColumnSpec(tr("Run"), False, lambda run: run.state.name or run.state.run),
    _STATUS,
    _ColumnSpec(tr("Model"), False, lambda run: run.model),
    _ColumnSpec(tr("Step"), True, steps_text),
    _ColumnSpec(tr("Curve"), False, lambda _run: ""),
    _ColumnSpec(tr("Loss"), True, lambda run: loss_cell_text(run.state.loss)),
    _ColumnSpec(tr("Held out"), True, lambda run: loss_cell_text(run.state.evaluation_loss)),
    _ColumnSpec(tr("Took"), True, took_text),
    _ColumnSpec(tr("Started"), True, lambda run: moment_text(run.state.created, time.time())),
)


class RunsTableModel(QAbstractTableModel):
    """A table with one row per run, newest first. While only values change, rows stay, so that a selection stays."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._runs: list[RunSummary] = []

    def set_runs(self, runs: list[RunSummary]) -> None:
        """Replace the runs shown."""
        if [run.folder for run in runs] != [run.folder for run in self._runs]:
            self.beginResetModel()
            self._runs = list(runs)
            self.endResetModel()
            return
        for row, run in enumerate(runs):
            if run != self._runs[row]:
                self._runs[row] = run
                self.dataChanged.emit(self.index(row, 0), self.index(row, len(COLUMNS) - 1))

    def run(self, row: int) -> RunSummary | None:
        """Return the run of a row; None if there is no such row."""
        return self._runs[row] if 0 <= row < len(self._runs) else None

    def row_of(self, folder: str) -> int:
        """Return the row of a run by its folder; -1 if it is not listed."""
        return next((row for row, run in enumerate(self._runs) if run.folder == folder), -1)

    def rowCount(self, parent: Index = _ROOT) -> int:
        """Return the number of runs."""
        return 0 if parent.isValid() else len(self._runs)

    def columnCount(self, parent: Index = _ROOT) -> int:
        """Return the number of columns."""
        return 0 if parent.isValid() else len(COLUMNS)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a cell's text, hint or alignment, or the name of its color (UserRole)."""
        run = self.run(index.row())
        if run is None:
            return None
        column = COLUMNS[index.column()]
        answers: dict[int, Callable[[], Any]] = {
            Qt.ItemDataRole.DisplayRole: lambda: column.text(run),
            Qt.ItemDataRole.ToolTipRole: lambda: _hint(run),
            Qt.ItemDataRole.UserRole: lambda: _INKS[RUN_TONES.get(run.standing, "plain")] if column is _STATUS else "",
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


def _alignment(column: _ColumnSpec) -> Qt.AlignmentFlag:
    side = Qt.AlignmentFlag.AlignRight if column.number else Qt.AlignmentFlag.AlignLeft
    return side | Qt.AlignmentFlag.AlignVCenter
