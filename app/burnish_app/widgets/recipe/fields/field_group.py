"""A group of rows of the recipe form, in the order of its fields, with a title that may fold it."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from burnish_app.look.language import tr
from burnish_app.look.motion import unfold
from burnish_app.look.tokens import UNIT
from burnish_app.recipe.recipe_fields import RecipeField
from burnish_app.widgets.basic.buttons import link
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.text import heading
from burnish_app.widgets.basic.wrapping import ColumnsLayout
from burnish_app.widgets.recipe.fields.field_row import FieldRow

_COLUMN_PX, _BETWEEN_PX = 480, 40  # least width of each of several columns of rows, and the space between them


class FieldGroup(QWidget):
    """Holds the rows of some fields. The form makes them, once the group is open or a search found them.

    Args:
        title: title; empty: none.
        fields: fields of the group.
        folds: whether the title folds the rows; folded at first.

    Attributes:
        opened: signal without arguments, emitted when the person unfolded the group.
        fields: fields of the group; the form may replace them.
        is_open: whether the person wants to see the rows.
    """

    opened = Signal()

    def __init__(self, title: str, fields: Sequence[RecipeField], *, folds: bool = False) -> None:
        super().__init__()
        self.fields = list(fields)
        self.is_open = self._is_shown = not folds
        self._title, self._changed = title, 0
        self._rows: list[str] = []
        self.button = link("", self._toggle) if folds else None
        column = fill(QVBoxLayout(self), spacing_px=UNIT)
        if self.button is not None:
            self.button.allow_shortening()
            column.addWidget(self.button, alignment=Qt.AlignmentFlag.AlignLeft)
        elif title:
            column.addWidget(heading(title))
        self._body = QWidget()
        self._lines = fill(
            ColumnsLayout(_BETWEEN_PX, UNIT + 4, even=True, least_px=_COLUMN_PX),
            margins_px=(0, 0, 0, UNIT if folds else 0),
        )
        self._body.setLayout(self._lines)
        column.addWidget(self._body)
        self._body.setVisible(self.is_open)
        self._name_button()

    def add_row(self, row: FieldRow) -> None:
        """Put a row where its field's place is among the others."""
        order = [field.key for field in self.fields]
        place = sum(1 for key in self._rows if order.index(key) < order.index(row.field.key))
        self._rows.insert(place, row.field.key)
        self._lines.insertWidget(place, row)

    def inner_widgets(self) -> list[QWidget]:
        """Return the widgets around the rows, from the innermost to the group itself."""
        return [self._body, self]

    def forget_row(self, key: str) -> None:
        """Forget a row that another group took."""
        if key in self._rows:
            self._rows.remove(key)

    def open(self) -> None:
        """Unfold the group."""
        if not self.is_open:
            self.is_open = self._is_shown = True
            unfold(self._body, show=True)
            self._name_button()
            self.opened.emit()

    def show_found(self, count: int | None) -> None:
        """Show the rows that a search found, folded or not; nothing of a group without any.

        Args:
            count: number of fields that were found; None: nothing is searched.
        """
        self.setVisible(bool(self.fields) and count != 0)
        self._is_shown = self.is_open if count is None else True
        self._body.setVisible(self._is_shown)
        self._name_button()

    def show_changed(self, count: int) -> None:
        """Say in the title how many values are not the suggested ones."""
        if count != self._changed:
            self._changed = count
            self._name_button()

    def _toggle(self) -> None:
        if self._is_shown:
            self.is_open = self._is_shown = False
            unfold(self._body, show=False)
            self._name_button()
        else:
            self.open()

    def _name_button(self) -> None:
        if self.button is None:
            return
        title = not_as_suggested(self._title, self._changed)
        self.button.setText(f"{'▾' if self._is_shown else '▸'}  {title}")
        self.button.setAccessibleName(f"{title}, {tr('open') if self._is_shown else tr('folded')}")


def not_as_suggested(title: str, count: int) -> str:
    """Return a title with how many of the settings below it are not as suggested; the title alone if all are."""
    return tr("{title}  ·  {count} not as suggested").format(title=title, count=count) if count else title
