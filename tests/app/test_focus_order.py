"""Tab visits all that can be used on a page, once, and continues to the right or downward."""

from itertools import pairwise

import pytest
from app.page_scenes import screenshots
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtWidgets import QAbstractButton, QAbstractSpinBox, QComboBox, QLineEdit

from burnish_app.window import Window

screenshots.load_scenes()
pytestmark = pytest.mark.gui

SCENES = ("recipe-done", "recipe-advanced", "data-done", "data-mixed", "try_out-done", "try_out-three", "export-ready")
WIDTHS = [screenshots.SIZES[0], screenshots.SIZES[-1]]


def usable(page):
    """The controls of a page that are seen and can be used; of exclusive choices the chosen one, as Tab does."""
    found = []
    for kind in (QAbstractButton, QComboBox, QLineEdit, QAbstractSpinBox):
        for control in page.findChildren(kind):
            group = control.group() if isinstance(control, QAbstractButton) else None
            chosen = group.checkedButton() if group is not None and group.exclusive() else None
            part = isinstance(control.parentWidget(), QComboBox | QAbstractSpinBox | QLineEdit)
            can_focus = bool(control.focusPolicy() & Qt.FocusPolicy.TabFocus)
            if control.isVisible() and control.isEnabled() and can_focus and not part and chosen in {None, control}:
                found.append(control)
    return found


def place(page, widget):
    return QRect(widget.mapTo(page, QPoint(0, 0)), widget.size())


def is_back(page, before, after):
    """Whether a control lies above or left of the one before; a table has its heads' buttons in it."""
    a, b = place(page, before), place(page, after)
    return b.top() < a.bottom() and b.left() < a.right() and not after.isAncestorOf(before)


def name(widget):
    return widget.accessibleName() or type(widget).__name__


def walk(qtbot, window, page):
    """Press Tab from the sidebar until it comes around; return what had the focus on the page."""
    start = window.sidebar.button(window.shown_key)
    start.setFocus()
    visited = []
    for _ in range(400):
        qtbot.keyClick(window.focusWidget(), Qt.Key.Key_Tab)
        at = window.focusWidget()
        if at is start:
            return [widget for widget in visited if page.isAncestorOf(widget)]
        visited.append(at)
    raise AssertionError("Tab does not come around")


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("size", WIDTHS, ids=["narrow", "wide"])
@pytest.mark.parametrize("scene", SCENES)
def test_tab_visits_each_control_once_as_it_is_seen(scene, size, qtbot, theme, tmp_path, monkeypatch):
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    seen = {}
    grab = Window.grab

    def and_walk(window):
        page = window.page(window.shown_key)
        visited = walk(qtbot, window, page)
        seen["twice"] = [name(one) for one in visited if visited.count(one) > 1]
        seen["left out"] = [name(one) for one in usable(page) if one not in visited]
        seen["back"] = [(name(a), name(b)) for a, b in pairwise(visited) if is_back(page, a, b)]
        seen["count"] = len(visited)
        return grab(window)

    monkeypatch.setattr(Window, "grab", and_walk)
    screenshots.draw(scene, size, theme, tmp_path / "scene.png")
    assert seen["count"] > 5
    assert (seen["twice"], seen["left out"], seen["back"]) == ([], [], [])


def test_a_chip_that_is_reached_comes_into_view(qtbot, theme, tmp_path, monkeypatch):
    """Columns may reach beyond the table's edge; Tab goes from chip to chip, and the table scrolls along."""
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    seen = {}
    grab = Window.grab

    def and_go(window):
        table = window.page("data").rows.table
        chips = list(table.horizontalHeader().chips.values())
        window.sidebar.button("data").setFocus()
        for _ in range(60):
            qtbot.keyClick(window.focusWidget(), Qt.Key.Key_Tab)
            chip = window.focusWidget()
            if chip in chips:
                seen[chip.column] = chip.x() >= 0 and chip.geometry().right() <= table.viewport().width()
        return grab(window)

    monkeypatch.setattr(Window, "grab", and_go)
    screenshots.draw("data-question", screenshots.SIZES[0], theme, tmp_path / "scene.png")
    assert len(seen) > 3
    assert all(seen.values())
