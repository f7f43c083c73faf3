"""The order in which Tab visits what can have the focus: as it is seen, whenever it was made.

Qt's own order is that in which widgets were made. Pages make rows, banners and sections late, so their places in that
order say nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractScrollArea,
    QAbstractSpinBox,
    QComboBox,
    QLayout,
    QLayoutItem,
    QLineEdit,
    QScrollArea,
    QStackedWidget,
    QTableView,
    QWidget,
)

_WHOLE = (QAbstractButton, QAbstractSpinBox, QComboBox, QLineEdit)
"""Widgets whose parts are no stops of their own."""


def focus_order(root: QWidget) -> list[QWidget]:
    """List what Tab visits below a widget, in the order of the layouts.

    Args:
        root: window or page.
    """
    return list(_stops(root))


def move_focus(root: QWidget, now: QWidget | None, *, forward: bool) -> bool:
    """Give the focus to what is seen next, around the ends, and scroll to it; return whether there is anything.

    Args:
        root: window.
        now: widget that has the focus; None: no widget has.
        forward: whether Tab was pressed, not Shift-Tab.
    """
    order = focus_order(root)
    if not order:
        return False
    inside = [] if now is None or now in order else [widget for widget in order if now.isAncestorOf(widget)]
    if inside:  # the page or a panel has it as a whole
        order, now = inside, None
    while now is not None and now not in order:
        now = now.parentWidget()
    place = (0 if forward else -1) if now is None else order.index(now) + (1 if forward else -1)
    widget = order[place % len(order)]
    widget.setFocus(Qt.FocusReason.TabFocusReason if forward else Qt.FocusReason.BacktabFocusReason)
    around = widget.parentWidget()
    while around is not None and not isinstance(around, QScrollArea):
        around = around.parentWidget()
    if around is not None:
        around.ensureWidgetVisible(widget)
    return True


def _stops(widget: QWidget) -> Iterator[QWidget]:
    if not widget.isVisible() or not widget.isEnabled():
        return
    if isinstance(widget, QTableView):
        yield from _on_heads(widget)
    if widget.focusPolicy() & Qt.FocusPolicy.TabFocus and not _is_left_out(widget):
        yield widget
        if isinstance(widget, (*_WHOLE, QAbstractScrollArea)):
            return
    if isinstance(widget, QScrollArea | QStackedWidget):
        inner = widget.widget() if isinstance(widget, QScrollArea) else widget.currentWidget()
        if inner is not None:
            yield from _stops(inner)
    elif not isinstance(widget, (*_WHOLE, QAbstractScrollArea)):
        layout = widget.layout()
        if layout is not None:
            yield from _in_layout(layout)


def _on_heads(table: QTableView) -> Iterator[QWidget]:
    """Yield the buttons that stand on the heads of a table's columns, which no layout holds."""
    buttons = table.horizontalHeader().viewport().findChildren(QAbstractButton)
    for button in sorted(buttons, key=lambda button: button.x()):
        yield from _stops(button)


def _in_layout(layout: QLayout) -> Iterator[QWidget]:
    for number in range(layout.count()):
        item: QLayoutItem | None = layout.itemAt(number)
        if item is None:
            continue
        widget, inner = item.widget(), item.layout()
        if widget is not None:
            yield from _stops(widget)
        elif inner is not None:
            yield from _in_layout(inner)


def _is_left_out(widget: QWidget) -> bool:
    """Whether a button is one of a group of which another is chosen: the arrow keys reach it."""
    group = widget.group() if isinstance(widget, QAbstractButton) else None
    return bool(
        group is not None
        and group.exclusive()
        and group.checkedButton() is not None
        and group.checkedButton() is not widget
    )
