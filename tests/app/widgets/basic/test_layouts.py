"""Layouts that are filled in one call."""

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.basic.wrapping import FlowLayout


def test_parts_keep_their_order_stretch_and_alignment(qapp):
    first, second, inner = QLabel("first"), QLabel("second"), QVBoxLayout()
    layout = fill(QHBoxLayout(), first, (inner, 2), 7, (second, 0, Qt.AlignmentFlag.AlignTop), None)
    items = [layout.itemAt(place) for place in range(layout.count())]
    assert (items[0].widget(), items[1].layout(), items[3].widget()) == (first, inner, second)
    assert [layout.stretch(place) for place in range(layout.count())] == [0, 2, 0, 0, 1]
    assert items[2].sizeHint().width() == 7
    assert items[3].alignment() == Qt.AlignmentFlag.AlignTop


@pytest.mark.parametrize(("margins_px", "sides"), [(3, (3, 3, 3, 3)), ((1, 2, 3, 4), (1, 2, 3, 4))])
def test_margins_are_one_number_or_one_for_each_side(qapp, margins_px, sides):
    around = fill(QVBoxLayout(), spacing_px=5, margins_px=margins_px).contentsMargins()
    assert (around.left(), around.top(), around.right(), around.bottom()) == sides


def test_a_wrapping_layout_takes_widgets_and_layouts_and_keeps_its_spacing(qapp):
    word, inner = QLabel("word"), FlowLayout()
    holder = QWidget()  # as in the window: a layout of Python's that nobody owns cannot be destroyed safely
    layout = FlowLayout(9)
    holder.setLayout(layout)
    assert fill(layout, word, inner) is layout
    assert (layout.itemAt(0).widget(), layout.itemAt(1)) == (word, inner)
    assert layout.spacing() == FlowLayout(9).spacing()
