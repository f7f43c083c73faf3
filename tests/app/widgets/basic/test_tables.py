"""Tables that fit their columns into their width."""

import pytest
from app.measures.headings import cut_headings
from PySide6.QtGui import QStandardItem, QStandardItemModel

from burnish_app.widgets.basic.tables import FittingTable
from burnish_app.widgets.basic.wrapping_head import wrapped

NAME = "A model with rather a long name"


def shown(qtbot, width_px, headings=("1", "2", "3"), drop_columns=((2,),), **options):
    model = QStandardItemModel(0, 3)
    model.setHorizontalHeaderLabels(headings)
    table = FittingTable(
        model, "rows", (240, 160, 160), first_min_px=40, drop_columns=drop_columns, row_px=28, head_px=28, **options
    )
    qtbot.addWidget(table)
    model.appendRow([QStandardItem(text) for text in (NAME, "12", "34")])
    table.resize(width_px, 120)
    table.show()
    return table


@pytest.mark.gui
def test_columns_narrow_to_their_texts_before_a_name_is_cut(qtbot):
    cut, whole = shown(qtbot, 380), shown(qtbot, 380, narrow=(1, 2))
    needed = whole.sizeHintForColumn(0)
    assert cut.columnWidth(0) < needed
    assert whole.columnWidth(0) >= needed
    assert whole.columnWidth(1) >= whole.sizeHintForColumn(1)


@pytest.mark.gui
def test_with_room_columns_have_their_preferred_widths(qtbot):
    table = shown(qtbot, 600, narrow=(1, 2))
    assert [table.columnWidth(column) for column in (1, 2)] == [160, 160]


@pytest.mark.gui
def test_rows_that_come_later_are_fitted_too(qtbot):
    table = shown(qtbot, 380, narrow=(1, 2))
    model = table.model()
    model.beginResetModel()
    model.item(0, 1).setText("1,234,567,890")
    model.endResetModel()
    assert table.columnWidth(1) >= table.sizeHintForColumn(1)


LONG = ("Gradient accumulation", "Micro-batch tokens", "Learning rate")


@pytest.mark.gui
def test_headings_wrap_before_a_word_is_cut(qtbot):
    wide, narrow = (shown(qtbot, width_px, LONG, drop_columns=()) for width_px in (900, 280))
    assert cut_headings(wide) == cut_headings(narrow) == []
    assert narrow.horizontalHeader().height() > wide.horizontalHeader().height() >= 28
    assert narrow.horizontalHeader().length() <= narrow.viewport().width()


@pytest.mark.gui
def test_a_table_scrolls_sideways_before_a_word_is_cut(qtbot):
    table = shown(qtbot, 160, LONG, drop_columns=())
    table.hold_rows(1, 1)
    table.resize(160, table.minimumHeight())
    assert cut_headings(table) == []
    assert table.horizontalScrollBar().maximum() > 0
    assert table.verticalScrollBar().maximum() == 0, "the bar lies below the rows"


@pytest.mark.gui
def test_a_table_is_as_high_as_the_rows_it_holds(qtbot):
    table = shown(qtbot, 900, LONG)
    table.hold_rows(1, 1)
    one = table.minimumHeight()
    assert table.maximumHeight() == one
    table.hold_rows(3)
    assert table.minimumHeight() == one + 2 * 28
    assert table.maximumHeight() > 10_000


@pytest.mark.gui
def test_a_heading_has_three_lines_at_most_and_keeps_its_ends(qtbot):
    metrics = shown(qtbot, 900).fontMetrics()
    room_px = metrics.horizontalAdvance("second-attempt")
    name = "second-attempt-with-the-shorter-prompt-and-without-the-duplicates-of-last-week"
    lines = wrapped(name, metrics, room_px)
    assert len(lines) == 3
    assert lines[0].startswith("second-")
    assert lines[-1].endswith("week")
    assert all(metrics.horizontalAdvance(line) <= room_px for line in lines)
    assert wrapped("Longest row\ntokens", metrics, 1000) == ["Longest row", "tokens"]
