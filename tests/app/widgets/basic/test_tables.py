"""Tables that fit their columns into their width."""

import pytest
from PySide6.QtGui import QStandardItem, QStandardItemModel

from burnish_app.widgets.basic.tables import FittingTable

NAME = "A model with rather a long name"


def shown(qtbot, width_px, **options):
    model = QStandardItemModel(0, 3)
    table = FittingTable(model, "rows", (240, 160, 160), first_min_px=40, drop_columns=((2,),), **options)
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
