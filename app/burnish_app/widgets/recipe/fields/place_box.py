"""A box for the place where a recipe trains: typed, or chosen from the places that are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, QSignalBlocker, Qt, Signal
from PySide6.QtWidgets import QComboBox, QLineEdit, QWidget

from burnish_app.look.language import tr
from burnish_app.widgets.basic.text import ShorteningBox
from burnish_app.wording.machine_text import place_text
from burnish_engine.contract.recipe.place import HERE


class PlaceBox(ShorteningBox):
    """Edits a place such as "ssh:office". Any text may be typed; the schema judges it.

    Attributes:
        edited: signal without arguments, emitted when the person typed or chose.
    """

    edited = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._edit = QLineEdit()
        self.setEditable(True)
        self.setLineEdit(self._edit)
        self.setCompleter(None)  # type: ignore[arg-type]  # one would replace what is typed by a place that is known
        self.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
        self._places = _PlaceList(self)
        self.setModel(self._places)
        self._edit.textEdited.connect(lambda _text: self.edited.emit())
        self.activated.connect(lambda _index: self.edited.emit())

    def show_places(self, places: Sequence[str]) -> None:
        """Offer places; the text stays as it is.

        Args:
            places: places as a recipe names them.
        """
        if list(places) != self._places.names and not self.view().isVisible():
            typed, blocker = self.text(), QSignalBlocker(self)
            self._places.replace(places)
            self.setText(typed)
            blocker.unblock()

    def text(self) -> str:
        """Return the place as it is typed."""
        return self.currentText()

    def setText(self, text: str) -> None:
        """Show a place without emitting `edited`."""
        self.setCurrentIndex(self._places.names.index(text) if text in self._places.names else -1)
        self.setEditText(text)

    def setCursorPosition(self, position: int) -> None:
        """Move the cursor, and with it the part of a long text that is seen.

        Args:
            position: number of letters before the cursor.
        """
        self._edit.setCursorPosition(position)


class _PlaceList(QAbstractListModel):
    """Places: what to call them in the list, and how a recipe names them in the box."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.names: list[str] = []

    def replace(self, names: Sequence[str]) -> None:
        """Hold other places."""
        self.beginResetModel()
        self.names = list(names)
        self.endResetModel()

    def rowCount(self, parent: QModelIndex | QPersistentModelIndex = QModelIndex()) -> int:  # noqa: B008
        """Return the number of places."""
        return 0 if parent.isValid() else len(self.names)

    def data(self, index: QModelIndex | QPersistentModelIndex, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        """Return what to call a place in the list, or how a recipe names it."""
        name = self.names[index.row()]
        if role == Qt.ItemDataRole.EditRole:
            return name
        if role == Qt.ItemDataRole.DisplayRole:
            return tr("This machine") if name == HERE else place_text(name)
        return None
