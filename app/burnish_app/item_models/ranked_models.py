"""The table model of the ranked model catalog."""

from __future__ import annotations

from typing import Any, Literal

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt

from burnish_app.look.language import tr
from burnish_app.wording.numbers import count_text
from burnish_engine.contract.facts.advice import RankedModel
from burnish_engine.contract.units import file_size

Index = QModelIndex | QPersistentModelIndex
RankVerdict = Literal["good", "tight", "too_big_to_train", "too_big_for_target", "small"]

RANK_VERDICT_TEXT: dict[RankVerdict, str] = {
    "good": tr("Good fit"),
    "tight": tr("Tight"),
    "small": tr("Small"),
    "too_big_to_train": tr("Too big to train"),
    "too_big_for_target": tr("Too big for it"),
}
_LOOKS: dict[RankVerdict, str] = {
    "good": "success",
    "tight": "warning",
    "small": "muted",
    "too_big_to_train": "muted",
    "too_big_for_target": "muted",
}
_HEADINGS = (tr("Model"), tr("Size"), tr("Verdict"), tr("File"), tr("License"), tr("Where"))
_HINTS = (
    "",
    tr("Weights: B is a billion, M a million"),
    tr("For training here and running on the target"),
    tr("Size of the finished file on the target"),
    tr("What the license asks is shown below when you choose a model"),
    tr("here: its files are on this machine. sign-in: its page asks to accept terms before the download"),
)
_NUMBERS = (1, 3)
VERDICT_COLUMN = 2


class RankedModelsTableModel(QAbstractTableModel):
    """A table with one row per model, best first. The columns are those of `_HEADINGS`."""

    def __init__(self) -> None:
        super().__init__()
        self._models: list[RankedModel] = []

    def show(self, models: list[RankedModel]) -> None:
        """Replace the models shown."""
        self.beginResetModel()
        self._models = list(models)
        self.endResetModel()

    def at(self, row: int) -> RankedModel | None:
        """Return the model of a row; None if there is no such row."""
        return self._models[row] if 0 <= row < len(self._models) else None

    def row_of(self, name: str) -> int:
        """Return the row of a model by its catalog name; -1 if it is not listed."""
        return next((row for row, ranked in enumerate(self._models) if ranked.model.name == name), -1)

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 Qt's name and default
        """Return the number of models shown."""
        return 0 if parent.isValid() else len(self._models)

    def columnCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008 Qt's name and default
        """Return the number of columns."""
        return 0 if parent.isValid() else len(_HEADINGS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a heading, its hint (tooltip) or its alignment."""
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.TextAlignmentRole:
            side = Qt.AlignmentFlag.AlignRight if section in _NUMBERS else Qt.AlignmentFlag.AlignLeft
            return side | Qt.AlignmentFlag.AlignVCenter
        return {Qt.ItemDataRole.DisplayRole: _HEADINGS, Qt.ItemDataRole.ToolTipRole: _HINTS}.get(
            Qt.ItemDataRole(role), ("",) * len(_HEADINGS)
        )[section] or None

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return a cell's text, alignment or hint, or the name of the verdict's color (UserRole)."""
        ranked = self.at(index.row())
        if ranked is None:
            return None
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            return _texts(ranked)[index.column()]
        if role == Qt.ItemDataRole.ToolTipRole:
            return ranked.reason
        if role == Qt.ItemDataRole.UserRole and index.column() == VERDICT_COLUMN:
            return _LOOKS[ranked.verdict]
        if role == Qt.ItemDataRole.TextAlignmentRole and index.column() in _NUMBERS:
            return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        return None


def _texts(ranked: RankedModel) -> tuple[str, ...]:
    model = ranked.model
    return (
        model.title,
        count_text(model.parameters),
        RANK_VERDICT_TEXT[ranked.verdict],
        file_size(ranked.file_bytes),
        model.license,
        "here" if ranked.here else "sign-in" if model.gated else "",
    )
