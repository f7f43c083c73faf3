"""The head of the table of rows: the columns' names, each with a chip that shows and changes its role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from PySide6.QtCore import QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import QAction, QActionGroup, QColor, QFocusEvent, QGuiApplication, QPainter, QResizeEvent
from PySide6.QtWidgets import QHeaderView, QMenu, QPushButton, QTableView, QWidget

from burnish_app.look.fonts import scaled
from burnish_app.look.language import tr
from burnish_app.look.theme import colors_of, font
from burnish_app.look.tokens import BODY_PX, PILL_PX, SMALL_PX, UNIT
from burnish_app.state.column_roles import ROLES
from burnish_app.widgets.basic.text import set_tone
from burnish_app.wording.data_text import role_hint, role_text

_LEARNED = {"reply", "conversation", "chosen", "text", "segments"}
"""Roles of columns that are learned from, as a whole or in part."""


class RoleChip(QPushButton):
    """A chip with the role of a column; pressed, it offers all roles.

    Args:
        column: name of the column.
        parent: widget that the chip lies on.

    Attributes:
        chosen: signal with (name of the column, role); an empty role: the column is ignored.
        reached: signal with the column's name, emitted when the chip gets the focus.
    """

    chosen = Signal(str, str)
    reached = Signal(str)

    def __init__(self, column: str, parent: QWidget) -> None:
        super().__init__(parent)
        self.column, self.role = column, ""
        self.setFont(font(SMALL_PX, medium=True))
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setAutoDefault(False)
        self.clicked.connect(self._offer)
        self.set_role("", is_sure=True)

    def set_role(self, role: str, *, is_sure: bool) -> None:
        """Show a role.

        Args:
            role: role of the column; empty: it is ignored.
            is_sure: whether the rows are read so; else it is still to be chosen.
        """
        self.role = role
        name = role_text(role) if role or is_sure else tr("Choose ...")
        self.setText(f"{name}  ▾")
        kind = "learned" if role in _LEARNED else "read" if role else "off" if is_sure else "open"
        set_tone(self, f"chip-{kind}")
        self.setAccessibleName(tr("Role of the column {column}: {role}").format(column=self.column, role=name))
        self.setToolTip(role_hint(role))

    def menu_of_roles(self) -> QMenu:
        """Return a new menu of all roles, the present one checked."""
        menu = QMenu(self)
        group = QActionGroup(menu)
        for role in (*ROLES, ""):
            if not role:
                menu.addSeparator()
            action = QAction(f"{role_text(role)}: {role_hint(role)}", menu, checkable=True, checked=role == self.role)
            action.triggered.connect(partial(self._choose, role))
            group.addAction(action)
            menu.addAction(action)
        return menu

    def focusInEvent(self, event: QFocusEvent) -> None:
        """Tell that the keyboard came to it: its column may be out of view."""
        super().focusInEvent(event)
        self.reached.emit(self.column)

    def _choose(self, role: str, _checked: bool = False) -> None:
        if role != self.role or not role:
            self.chosen.emit(self.column, role)

    def _offer(self) -> None:
        menu = self.menu_of_roles()
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(self.mapToGlobal(QPoint(0, self.height())))


class RoleHeader(QHeaderView):
    """A horizontal header with the columns' names above their chips. The chips are buttons: Tab reaches them.

    Attributes:
        role_chosen: signal with (name of a column, role); an empty role: the column is ignored.
        chips: column to its chip.
        was_resized: whether a person changed the width of a column.
    """

    role_chosen = Signal(str, str)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        self.chips: dict[str, RoleChip] = {}
        self.was_resized = False
        self._columns: list[str] = []
        self.setHighlightSections(False)
        self.setSectionsClickable(False)
        self.setMinimumSectionSize(scaled(96))
        self.sectionResized.connect(self._resized)

    def show_columns(self, columns: Sequence[str]) -> None:
        """Make a chip for each column."""
        if list(columns) == self._columns:
            return
        for chip in self.chips.values():
            chip.hide()
            chip.deleteLater()
        self._columns, self.was_resized = list(columns), False
        self.chips = {name: RoleChip(name, self.viewport()) for name in columns}
        for chip in self.chips.values():
            chip.chosen.connect(self.role_chosen)
            chip.reached.connect(self._scroll_to)
            chip.show()
        self._place()

    def show_roles(self, roles: Mapping[str, str], *, is_sure: bool) -> None:
        """Show the roles of the columns.

        Args:
            roles: column to role; columns that are not there are ignored.
            is_sure: whether the rows are read so; else the roles are still to be chosen.
        """
        for name, chip in self.chips.items():
            chip.set_role(roles.get(name, ""), is_sure=is_sure)
        self._place()

    def _scroll_to(self, column: str) -> None:
        """Bring a column into view, at the rows that are shown."""
        table = self.parentWidget()
        if isinstance(table, QTableView):
            table.scrollTo(table.model().index(max(table.rowAt(0), 0), self._columns.index(column)))

    def sizeHint(self) -> QSize:
        """Return a size with room for a name above a chip."""
        return QSize(super().sizeHint().width(), scaled(BODY_PX + PILL_PX) + 3 * UNIT)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Place the chips anew."""
        super().resizeEvent(event)
        self._place()

    def paintSection(self, painter: QPainter, rect: QRect, index: int) -> None:
        """Draw a column's name, and a line below."""
        if not 0 <= index < len(self._columns):
            return
        colors = colors_of(self.window())  # the style sheet writes the header's fill into its own palette
        painter.save()
        painter.setFont(font(bold=True))
        painter.setPen(QColor(colors.text))
        name = rect.adjusted(UNIT, UNIT, -UNIT // 2, 0)
        name.setHeight(scaled(BODY_PX) + UNIT // 2)
        shown = painter.fontMetrics().elidedText(self._columns[index], Qt.TextElideMode.ElideRight, name.width())
        painter.drawText(name, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, shown)
        painter.setPen(QColor(colors.line))
        painter.drawLine(rect.bottomLeft(), rect.bottomRight())
        painter.restore()

    def _resized(self, *_: int) -> None:
        if self.underMouse() and QGuiApplication.mouseButtons() & Qt.MouseButton.LeftButton:
            self.was_resized = True
        self._place()

    def _place(self) -> None:
        """Place each chip in its column; scrolled sideways, they move with the viewport that they lie on."""
        top = scaled(BODY_PX) + 2 * UNIT - 2
        for place, chip in enumerate(self.chips.values()):
            if place < self.count():
                width = min(chip.sizeHint().width(), self.sectionSize(place) - UNIT)
                chip.setGeometry(self.sectionViewportPosition(place) + UNIT // 2, top, width, scaled(PILL_PX) + 4)
