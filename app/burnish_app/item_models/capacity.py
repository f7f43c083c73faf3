"""The table model of the capacity card: one row for each model and training method that fits this device."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt

from burnish_app.look.language import tr
from burnish_app.wording.numbers import plural, speed_figure
from burnish_engine.contract.facts.capacity import LIMIT_TEXT, METHOD_TEXT, LargestPass, ModelCapacity
from burnish_engine.contract.units import memory_size

Index = QModelIndex | QPersistentModelIndex

_HEADINGS = (
    tr("Model"),
    tr("Method"),
    tr("Longest row\ntokens"),
    tr("Micro-batch\ntokens"),
    "\ntokens/s",
)
_LONGEST, _BIGGEST = range(2, 3), range(3, 5)
_NUMBERS = (2, 3, 4)
_MUTED = (1,)
_NONE = "–"


class CapacityTableModel(QAbstractTableModel):
    """A table with one row per model and training method that fits here, smallest model first."""

    def __init__(self) -> None:
        super().__init__()
        self._reached: list[ModelCapacity] = []
        self._row_tokens = 0

    def show(self, reached: list[ModelCapacity], row_tokens: int) -> None:
        """Replace the rows shown.

        Args:
            reached: models that can be trained at all, each with one method.
            row_tokens: length of the rows in the largest micro-batches, tokens.
        """
        self.beginResetModel()
        self._reached, self._row_tokens = list(reached), row_tokens
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 Qt's name and default
        """Return the number of rows."""
        return 0 if parent.isValid() else len(self._reached)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 Qt's name and default
        """Return the number of columns."""
        return 0 if parent.isValid() else len(_HEADINGS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a heading, its hint (tooltip) or its alignment."""
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
        """Return a cell's text, alignment or hint (what limits it), or the name of its color (UserRole)."""
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
            return tr("LoRA: the model's weights stay in 16 bits. QLoRA: in 4 bits, which cost some accuracy.")
        if section in _LONGEST:
            return tr("The longest row that can be trained, alone in its micro-batch")
        if section in _BIGGEST:
            return tr("The largest micro-batch (pass) of rows of {row_tokens:,} tokens").format(
                row_tokens=self._row_tokens
            )
        return ""

    def _in_full(self, one: ModelCapacity, column: int) -> str:
        """Return what a cell means, in sentences."""
        if column in _LONGEST and one.longest:
            return _sentences(one, one.longest)
        if column in _BIGGEST and one.biggest:
            rows = tr("{rows} of {row_tokens:,} tokens. ").format(
                rows=plural(one.biggest.rows, "row"), row_tokens=self._row_tokens
            )
            return rows + _sentences(one, one.biggest)
        if column in _BIGGEST:
            return tr("Not even one row of {row_tokens:,} tokens fits.").format(row_tokens=self._row_tokens)
        return ""


def _texts(one: ModelCapacity) -> tuple[str, ...]:
    speed = speed_number(one.biggest) if one.biggest else _NONE
    return one.title, METHOD_TEXT[one.method], _tokens(one.longest), _tokens(one.biggest), speed


def _tokens(largest_pass: LargestPass | None) -> str:
    return f"{largest_pass.tokens:,}" if largest_pass else _NONE


def speed_number(largest_pass: LargestPass) -> str:
    """Format the speed of a pass, tokens per second."""
    return speed_figure(largest_pass.tokens_per_s)


def _sentences(one: ModelCapacity, largest_pass: LargestPass) -> str:
    peak = tr("Predicted peak {memory_bytes}").format(memory_bytes=memory_size(largest_pass.memory_bytes))
    host = (
        tr(", beside {host_bytes} of system memory. ").format(host_bytes=memory_size(largest_pass.host_bytes))
        if largest_pass.host_bytes
        else ". "
    )
    limit = tr("Limited by {limit_text}.").format(limit_text=LIMIT_TEXT[largest_pass.limited_by])
    if largest_pass.limited_by == "context":
        limit = tr("Limited by the model's context: it was made for {max_context:,} tokens.").format(
            max_context=one.max_context
        )
    elif largest_pass.limited_by == "search":
        limit = tr("Larger micro-batches were not tried: they bring no speed.")
    return f"{peak}{host}{limit}"
