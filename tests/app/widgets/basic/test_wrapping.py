"""Layouts that wrap: where things go, and that nothing is held which Qt has destroyed."""

import gc
import random

import pytest
import shiboken6
from PySide6.QtCore import QRect
from PySide6.QtWidgets import QHBoxLayout, QLabel, QLayout, QSizePolicy, QVBoxLayout, QWidget

from burnish_app.widgets.basic.layouts import clear
from burnish_app.widgets.basic.wrapping import ColumnsLayout, FlowLayout

pytestmark = pytest.mark.gui
ROUNDS = 400


def boxes(count, width, height=20):
    made = []
    for _ in range(count):
        box = QWidget()
        box.setFixedSize(width, height)
        made.append(box)
    return made


def places(layout, width):
    layout.setGeometry(QRect(0, 0, width, layout.heightForWidth(width)))
    return [(layout.itemAt(at).geometry().x(), layout.itemAt(at).geometry().y()) for at in range(layout.count())]


@pytest.fixture
def filled(qapp):
    holders = []

    def fill(layout, widgets):
        holder = QWidget()
        holders.append(holder)
        holder.setLayout(layout)
        for widget in widgets:
            layout.addWidget(widget)
        holder.show()
        return layout

    yield fill
    for holder in holders:
        holder.close()


def test_columns_stay_in_one_line_while_there_is_room(filled):
    layout = filled(ColumnsLayout(10, 5), boxes(5, 50))
    assert places(layout, 290) == [(0, 0), (60, 0), (120, 0), (180, 0), (240, 0)]
    assert layout.heightForWidth(290) == 20


def test_columns_wrap_into_lines_that_are_about_equally_long(filled):
    layout = filled(ColumnsLayout(10, 5), boxes(5, 50))
    assert places(layout, 289) == [(0, 0), (60, 0), (120, 0), (0, 25), (60, 25)]  # three and two, not four and one
    assert layout.heightForWidth(289) == 45
    assert layout.minimumSize().width() == 50


def test_what_is_hidden_takes_no_place(filled):
    widgets = boxes(3, 50)
    layout = filled(ColumnsLayout(10, 5), widgets)
    widgets[0].hide()
    assert layout.heightForWidth(110) == 20


def test_a_flow_gives_the_rest_of_a_line_to_what_expands(filled):
    first, second = QWidget(), boxes(1, 50)[0]
    first.setMinimumSize(60, 20)
    first.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
    layout = filled(FlowLayout(10, 5), [first, second])
    assert places(layout, 200) == [(0, 0), (150, 0)]
    assert places(layout, 100) == [(0, 0), (0, 25)]


def test_a_flow_to_the_right_ends_there(filled):
    layout = filled(FlowLayout(10, 5, to_right=True), boxes(3, 50))
    assert places(layout, 130) == [(20, 0), (80, 0), (80, 25)]


def test_a_widget_that_is_destroyed_takes_its_place_along(filled):
    widgets = boxes(3, 50)
    layout = filled(ColumnsLayout(10, 5), widgets)
    shiboken6.delete(widgets[1])
    assert places(layout, 170) == [(0, 0), (60, 0)]


@pytest.mark.parametrize("kind", [FlowLayout, ColumnsLayout, QHBoxLayout])
def test_a_nested_layout_that_is_destroyed_takes_its_place_along(qapp, filled, kind):
    layout = filled(FlowLayout(10, 5), boxes(1, 50))
    inner = kind()
    inner.addWidget(boxes(1, 50)[0])
    layout.addLayout(inner)
    layout.addWidget(boxes(1, 70)[0])
    qapp.processEvents()  # what is added to something shown is shown by the event loop
    assert places(layout, 200) == [(0, 0), (60, 0), (120, 0)]
    shiboken6.delete(inner)
    assert places(layout, 200) == [(0, 0), (60, 0)]


def test_a_nested_layout_that_is_taken_out_belongs_to_who_took_it(filled):
    layout, inner = filled(FlowLayout(10, 5), []), FlowLayout()
    layout.addLayout(inner)
    assert layout.takeAt(0) is inner
    assert (inner.parent(), layout.count()) == (None, 0)


@pytest.mark.full
def test_many_changes_leave_layouts_whole(qtbot, qapp):
    """Adds, moves and destroys widgets and nested layouts in any order; Qt asks in between, and garbage goes."""
    chance = random.Random(7)
    holder = QWidget()
    qtbot.addWidget(holder)
    holder.setLayout(FlowLayout())
    holder.show()
    for number in range(ROUNDS):
        change(chance, holder, number)
        holder.resize(chance.randrange(20, 600), 400)
        qapp.processEvents()
        if number % 5 == 0:
            gc.collect()
    for layout in (holder.layout(), *holder.findChildren(QLayout)):
        assert all(shiboken6.isValid(layout.itemAt(at)) for at in range(layout.count()))
    clear(holder.layout())
    qapp.processEvents()
    assert holder.layout().count() == 0


def change(chance, holder, number):
    layout = chance.choice([holder.layout(), *holder.findChildren(QLayout)])
    labels = holder.findChildren(QLabel)
    what = chance.randrange(8)
    if what < 3 or not labels:
        layout.addWidget(QLabel("word " * chance.randrange(1, 12), wordWrap=bool(chance.randrange(2))))
    elif what == 3:
        add_nested(layout, chance.choice([FlowLayout, ColumnsLayout, QHBoxLayout, QVBoxLayout])(), number)
    elif what == 4:
        shiboken6.delete(chance.choice(labels))
    elif what == 5:
        chance.choice(labels).deleteLater()
    elif what == 6:
        layout.addWidget(chance.choice(labels))  # out of the layout where it was
    elif layout is not holder.layout():
        destroy(layout, at_once=bool(chance.randrange(2)))


def add_nested(layout, inner, number):
    inner.addWidget(QLabel(f"inner {number}"))
    layout.addLayout(inner)


def destroy(layout, *, at_once):
    clear(layout)
    if at_once:
        shiboken6.delete(layout)
    else:
        layout.deleteLater()


def test_text_that_would_hang_out_of_its_line_goes_below(filled):
    beside, words = boxes(1, 100)[0], QLabel("some words " * 12)
    words.setWordWrap(True)
    words.setMinimumWidth(60)
    words.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
    layout = filled(FlowLayout(8, 8), [beside, words])
    wide = places(layout, 2000)
    assert wide[1][1] == wide[0][1], "in one line there is room"
    narrow = places(layout, 400)
    assert narrow[1][0] == 0
    assert narrow[1][1] >= 20
