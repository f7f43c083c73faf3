"""The table model of a sweep: a row for each run, with its settings, status and held-out loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, Qt

from burnish_app.comparison.best_run import delta_text
from burnish_app.comparison.swept import SweepRow
from burnish_app.item_models.run_rows import ROOT, Index, RunRowsModel
from burnish_app.item_models.runs import loss_cell_text, steps_text, took_text
from burnish_app.look.language import tr
from burnish_app.wording.recipe_text import setting_term
from burnish_app.wording.run_text import RUN_STATUS_TEXT
from burnish_engine.contract.facts.sweeps import SweepFile

_STATUS = tr("Status")
_DELTA = tr("To best")
_AFTER: tuple[tuple[str, Callable[[SweepRow], str]], ...] = (
    (_STATUS, lambda row: RUN_STATUS_TEXT[row.run.standing]),
    (tr("Step"), lambda row: steps_text(row.run)),
    (tr("Curve"), lambda _row: ""),
    (tr("Held out"), lambda row: loss_cell_text(row.run.state.evaluation_loss)),
    (_DELTA, lambda row: delta_text(row.delta)),
    (tr("Took"), lambda row: took_text(row.run)),
)
_LEFT_AFTER = (0, 2)
"""Places of the status and of the curve behind the settings: they are no numbers."""


class SweepModel(RunRowsModel[SweepRow]):
    """A table of a sweep's runs."""

    def __init__(self, sweep: SweepFile, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._names = [setting_term(setting.key) for setting in sweep.settings]

    def columnCount(self, parent: Index = ROOT) -> int:
        """Return the number of columns."""
        return 0 if parent.isValid() else len(self._names) + len(_AFTER)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a cell's text, hint or alignment, or the name of its color (UserRole)."""
        row = self.row(index.row())
        if row is None:
            return None
        place = index.column() - len(self._names)
        if role == Qt.ItemDataRole.DisplayRole:
            return row.values[index.column()] if place < 0 else _AFTER[place][1](row)
        if role == Qt.ItemDataRole.ToolTipRole:
            return row.run.state.message or row.run.folder
        if role == Qt.ItemDataRole.UserRole:
            return "success" if place >= 0 and _AFTER[place][0] == _DELTA and row.delta == 0 else ""
        return self._alignment(index.column()) if role == Qt.ItemDataRole.TextAlignmentRole else None

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a column's heading or its alignment."""
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            place = section - len(self._names)
            return self._names[section] if place < 0 else _AFTER[place][0]
        return self._alignment(section) if role == Qt.ItemDataRole.TextAlignmentRole else None

    def _alignment(self, column: int) -> Qt.AlignmentFlag:
        place = column - len(self._names)
        left = place < 0 or place in _LEFT_AFTER
        return (Qt.AlignmentFlag.AlignLeft if left else Qt.AlignmentFlag.AlignRight) | Qt.AlignmentFlag.AlignVCenter
