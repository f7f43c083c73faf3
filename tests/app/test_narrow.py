"""A narrow window: rows of figures wrap, texts wrap, and nothing needs more width than there is."""

import pytest
from app import page_facts as facts
from app.scenes import TRAIN_SCENES, fold_all
from PySide6.QtCore import QPoint, QRect
from PySide6.QtWidgets import QScrollArea, QSizePolicy, QWidget

from burnish_app.run_state import RunState
from burnish_app.run_words import describe
from burnish_app.widgets.fit_card import FitCard
from burnish_app.widgets.gpu_card import GpuCard
from burnish_app.widgets.recipe_form import RecipeForm
from burnish_app.widgets.run_charts import RunCharts
from burnish_app.widgets.run_figures import RunFigures
from burnish_app.widgets.text import Value
from burnish_app.widgets.what_fits_card import WhatFitsCard
from burnish_app.widgets.wrapping import Columns, Flow

pytestmark = pytest.mark.gui

CARD_PX = 470  # of a window 744 wide, less sidebar, margins and scroll bar
LONG = "It needs 46.4 GiB, and 21.9 GiB are free on the NVIDIA GeForce RTX 4090. " * 4


@pytest.fixture
def show(qtbot, theme):
    def do(widget, width=CARD_PX):
        qtbot.addWidget(widget)
        widget.resize(width, max(widget.heightForWidth(width), 100))
        widget.show()
        qtbot.wait(20)
        return widget

    return do


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
    layout = filled(Columns(10, 5), boxes(5, 50))
    assert places(layout, 290) == [(0, 0), (60, 0), (120, 0), (180, 0), (240, 0)]
    assert layout.heightForWidth(290) == 20


def test_columns_wrap_into_lines_that_are_about_equally_long(filled):
    layout = filled(Columns(10, 5), boxes(5, 50))
    assert places(layout, 289) == [(0, 0), (60, 0), (120, 0), (0, 25), (60, 25)]  # three and two, not four and one
    assert layout.heightForWidth(289) == 45
    assert layout.minimumSize().width() == 50


def test_what_is_hidden_takes_no_place(filled):
    widgets = boxes(3, 50)
    layout = filled(Columns(10, 5), widgets)
    widgets[0].hide()
    assert layout.heightForWidth(110) == 20


def test_a_flow_gives_the_rest_of_a_line_to_what_expands(filled):
    first, second = QWidget(), boxes(1, 50)[0]
    first.setMinimumSize(60, 20)
    first.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
    layout = filled(Flow(10, 5), [first, second])
    assert places(layout, 200) == [(0, 0), (150, 0)]
    assert places(layout, 100) == [(0, 0), (0, 25)]


def test_a_plan_that_does_not_fit_is_read_without_scrolling_sideways(show):
    card = FitCard()
    card.show_plan(facts.plan(fits=False, problems=[LONG]))
    show(card)
    assert card.minimumSizeHint().width() <= CARD_PX
    for value in card.findChildren(Value):
        assert value.geometry().right() < CARD_PX
        assert value.width() >= value.minimumSizeHint().width()


def test_the_figures_of_a_run_wrap(show):
    run, lines = TRAIN_SCENES["training"]
    figures, state = RunFigures(), fold_all(RunState(), lines)
    figures.tell(describe(run, state))
    figures.draw(state, run)
    show(figures)
    assert figures.minimumSizeHint().width() <= CARD_PX
    assert len({value.y() for value in figures.findChildren(Value)}) > 1
    figures.resize(1000, figures.heightForWidth(1000))
    assert len({value.y() for value in figures.findChildren(Value)}) == 1


def test_charts_gpus_and_what_fits_find_room(show):
    machine = facts.machine(facts.gpu())
    card = WhatFitsCard()
    card.show_answer(facts.what_fits())
    for widget in (RunCharts(), GpuCard(machine.gpus[0], machine), card):
        show(widget)
        assert widget.minimumSizeHint().width() <= CARD_PX, widget
    assert [card.table.isColumnHidden(column) for column in (0, 2, 4, 5, 7)] == [False, False, True, False, True]
    card.resize(1100, 600)
    assert not any(card.table.isColumnHidden(column) for column in range(8))


def test_the_form_s_labels_go_above_where_there_is_no_room_beside(show):
    form = RecipeForm()
    form.row("memory.layers")
    recipe = facts.suggestion()
    form.show_suggestion(form.recipe(), {choice.key: choice.reason for choice in recipe.choices})
    show(form)
    assert form.minimumSizeHint().width() <= CARD_PX
    row = form.row("train.epochs")
    assert row._editor.mapTo(row, QPoint(0, 0)).y() > 0  # its label stands above it
    assert row._beside.geometry().right() < CARD_PX
    form.resize(1000, 800)
    assert row._editor.mapTo(row, QPoint(0, 0)).y() == 0


@pytest.mark.parametrize("key", ["hardware", "recipe", "train"])
def test_no_page_of_a_narrow_window_scrolls_sideways(qtbot, answers, window, key):
    answers.result("machine", machine=facts.machine(facts.gpu()))
    answers.result("doctor", checkup=facts.checkup(facts.machine(facts.gpu())))
    answers.result("what_fits", what_fits=facts.what_fits())
    answers.result("estimate", plan=facts.plan(fits=False, problems=[LONG]))
    window.resize(744, 900)
    window.go_to(key)
    page = window.page(key)
    if key == "recipe":
        qtbot.waitUntil(lambda: page.fit.verdict.text() == "It does not fit.")
    if key == "hardware":
        qtbot.waitUntil(lambda: page._fits.models.rowCount() > 0)
    qtbot.wait(50)
    assert window.width() == 744
    assert page.findChild(QScrollArea).horizontalScrollBar().maximum() == 0
