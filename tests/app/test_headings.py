"""No heading of a table is cut: in the narrowest window with the largest text, nor in a usual one."""

import pytest
from app.measures.headings import cut_headings
from app.page_scenes import screenshots
from PySide6.QtGui import QStandardItemModel
from PySide6.QtWidgets import QTableView

from burnish_app.widgets.charts.table_view import TableWindow
from burnish_app.window import Window

screenshots.load_scenes()
pytestmark = pytest.mark.gui

TABLES = {
    "What fits, model by model": "hardware-fits",
    "Models, best first": "model-done",
    "Rows of the data": "data-preferences",
    "Runs": "runs-preferred",
    "What differs between the runs": "compare-five",
    "Runs of the sweep": "sweep-done",
    "Pinned values": "train-pinned",
}
"""Name of a table to a scene that shows it."""


@pytest.fixture(params=[(0, 150), (2, 100)], ids=["narrowest, largest text", "usual"])
def shown(theme, request):
    """A window's size, and the theme with a size of text."""
    size, percent = request.param
    before = theme.text_percent
    theme.set_text_percent(percent)
    yield screenshots.SIZES[size], theme
    theme.set_text_percent(before)


def table_named(window, name):
    return next(
        table
        for table in window.page(window.shown_key).findChildren(QTableView)
        if table.isVisible() and table.accessibleName() == name
    )


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", TABLES)
def test_no_heading_is_cut(name, qtbot, shown, tmp_path, monkeypatch):
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    seen, grab = [], Window.grab

    def measured(window):
        seen.append(cut_headings(table_named(window, name)))
        return grab(window)

    monkeypatch.setattr(Window, "grab", measured)
    screenshots.draw(TABLES[name], *shown, tmp_path / "scene.bmp")
    assert seen == [[]]


@pytest.mark.quick_cases(1)
def test_no_heading_of_a_chart_s_values_is_cut(qtbot, shown, tmp_path, monkeypatch):
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    seen, grab = [], Window.grab

    def measured(window):
        charts = window.page("train").charts
        table = TableWindow("Loss", charts.loss.table(), charts)
        table.resize(shown[0][0], 400)
        table.show()
        screenshots.settle()
        seen.append(cut_headings(table.view))
        return grab(window)

    monkeypatch.setattr(Window, "grab", measured)
    screenshots.draw("train-preferring", *shown, tmp_path / "scene.bmp")
    assert seen == [[]]


@pytest.mark.full
def test_a_heading_without_room_is_found(qtbot):
    table, model = QTableView(), QStandardItemModel(1, 2)
    model.setHorizontalHeaderLabels(["Rank", "Gradient accumulation"])
    table.setModel(model)
    qtbot.addWidget(table)
    table.setColumnWidth(0, 100)
    table.setColumnWidth(1, 60)
    assert cut_headings(table) == ["Gradient accumulation"]
    table.setColumnWidth(1, 400)
    assert cut_headings(table) == []
    table.horizontalHeader().setFixedHeight(12)
    assert cut_headings(table) == ["Rank", "Gradient accumulation"]
