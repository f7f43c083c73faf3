"""What fits on this card as a table: a line for each model and way of training it."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt

from burnish_app.words import plural
from burnish_engine.contract.units import memory_size
from burnish_engine.contract.what_fits import LIMIT_WORDS, METHOD_WORDS, ModelReach, Reach

Index = QModelIndex | QPersistentModelIndex

_SHORT_LIMITS = {"context": "context", "system memory": "RAM", "search": "no limit"}
_HEADINGS = (
    "Model",
    "Trained as",
    "Longest row\ntokens",
    "\ntokens/s",
    "\npeak and limit",
    "Biggest pass\ntokens",
    "\ntokens/s",
    "\npeak and limit",
)
_LONGEST, _BIGGEST = range(2, 5), range(5, 8)
_NUMBERS = (2, 3, 5, 6)
_MUTED = (1, 4, 7)
_NONE = "–"


class WhatFitsTable(QAbstractTableModel):
    """One row a model and method that trains here, smallest model first."""

    def __init__(self) -> None:
        super().__init__()
        self._reached: list[ModelReach] = []
        self._row_tokens = 0

    def show(self, reached: list[ModelReach], row_tokens: int) -> None:
        """Show other answers.

        Args:
            reached: Those that train at all.
            row_tokens: Length of the rows in the biggest passes.
        """
        self.beginResetModel()
        self._reached, self._row_tokens = list(reached), row_tokens
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 Qt's name and default
        """Answers shown."""
        return 0 if parent.isValid() else len(self._reached)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 Qt's name and default
        """Columns shown."""
        return 0 if parent.isValid() else len(_HEADINGS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Headings and their hints."""
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            side = Qt.AlignmentFlag.AlignRight if section in _NUMBERS else Qt.AlignmentFlag.AlignLeft
            return side | Qt.AlignmentFlag.AlignBottom
        if role == Qt.ItemDataRole.DisplayRole:
            return _HEADINGS[section]
        if role == Qt.ItemDataRole.ToolTipRole:
            return self._hint(section) or None
        return None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Texts, alignment, what limits it (hint), and the name of the cell's color (UserRole)."""
        column = index.column()
        one = self._reached[index.row()]
        if role == Qt.ItemDataRole.DisplayRole:
            repeated = column == 0 and index.row() > 0 and self._reached[index.row() - 1].name == one.name
            return "" if repeated else _texts(one)[column]
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return _texts(one)[column]
        if role == Qt.ItemDataRole.ToolTipRole:
            return self._in_full(one, column) or None
        if role == Qt.ItemDataRole.UserRole and column in _MUTED:
            return "muted"
        if role == Qt.ItemDataRole.TextAlignmentRole and column in _NUMBERS:
            return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        return None

    def _hint(self, section: int) -> str:
        if section == 1:
            return "LoRA: the model's weights stay in 16 bits. QLoRA: in 4 bits, which cost some accuracy."
        if section in _LONGEST:
            return "The longest row that can be trained, alone in its pass"
        if section in _BIGGEST:
            return f"The biggest pass of rows of {self._row_tokens:,} tokens"
        return ""

    def _in_full(self, one: ModelReach, column: int) -> str:
        """What a cell means, in sentences."""
        if column in _LONGEST and one.longest:
            return _sentences(one, one.longest)
        if column in _BIGGEST and one.biggest:
            rows = f"{plural(one.biggest.rows, 'row')} of {self._row_tokens:,} tokens. "
            return rows + _sentences(one, one.biggest)
        if column in _BIGGEST:
            return f"Not even one row of {self._row_tokens:,} tokens fits."
        return ""


def _texts(one: ModelReach) -> tuple[str, ...]:
    return (one.title, METHOD_WORDS[one.method], *_cells(one.longest), *_cells(one.biggest))


def _cells(reach: Reach | None) -> tuple[str, str, str]:
    if reach is None:
        return _NONE, _NONE, "memory"
    limit = _SHORT_LIMITS.get(reach.limited_by, LIMIT_WORDS[reach.limited_by])
    return f"{reach.tokens:,}", speed(reach), f"{memory_size(reach.memory_bytes)}, {limit}"


def speed(reach: Reach) -> str:
    """Tokens a second, with a digit behind the point where there are few."""
    return f"{reach.tokens_per_s:,.0f}" if reach.tokens_per_s >= 10 else f"{reach.tokens_per_s:.1f}"


def _sentences(one: ModelReach, reach: Reach) -> str:
    peak = f"Predicted peak {memory_size(reach.memory_bytes)}"
    host = f", beside {memory_size(reach.host_bytes)} of system memory. " if reach.host_bytes else ". "
    limit = f"Limited by {LIMIT_WORDS[reach.limited_by]}."
    if reach.limited_by == "context":
        limit = f"Limited by the model's context: it was made for {one.max_context:,} tokens."
    elif reach.limited_by == "search":
        limit = "Larger passes were not looked at: they bring no speed."
    return f"{peak}{host}{limit}"
