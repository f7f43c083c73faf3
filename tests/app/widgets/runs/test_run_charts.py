"""The charts of a run: what they show, their options, tables and files."""

import math
import re
from array import array

import pytest
from app.facts.run_events import events, preferring
from app.facts.train_scenes import TRAIN_SCENES
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QPushButton, QScrollArea

from burnish_app.widgets.charts.options import ChartOptions
from burnish_app.widgets.charts.saving import svg_bytes
from burnish_app.widgets.charts.table_view import TableWindow
from burnish_app.widgets.runs.run_charts import RunCharts, learning_rate_text
from burnish_engine.contract.facts.hardware import GpuSample, HardwareSample, HardwareStart, SampledGpu
from burnish_engine.contract.run.fold import RunState, fold_all
from burnish_engine.contract.run.hardware_log import HardwareHistory, fold_line
from burnish_engine.contract.smoothing import newest_mean

GIB = 2**30


def recording(state):
    """Return a recording of the hardware while a run trained."""
    history = fold_line(HardwareHistory(), HardwareStart(t=0, gpus=[SampledGpu(index=0), SampledGpu(index=1)]))
    for at, t in enumerate(state.steps.t.values()):
        ours = GpuSample(
            index=1, used_bytes=6 * GIB, ours_bytes=5 * GIB, temperature_c=50 + at / 10, power_w=300.0, clock_mhz=2500.0
        )
        history = fold_line(history, HardwareSample(t=t, seconds=1, gpus=[GpuSample(index=0, used_bytes=GIB), ours]))
    return history


def drawn(charts):
    """Whether all charts in sight are drawn."""
    shown = [chart for chart in (charts.loss, *charts.small) if not chart.visibleRegion().isEmpty()]
    return all(chart.drawing is not None and not chart.stale for chart in shown)


@pytest.fixture
def charts(qtbot, theme):
    made = RunCharts()
    qtbot.addWidget(made)
    made.resize(1000, 1200)
    made.fit_height(900)
    made.draw(fold_all(RunState(), events(240)))
    made.show()
    qtbot.waitUntil(lambda: drawn(made) and made.memory.drawing is not None)
    return made


def press(options, text):
    button = next(one for one in options.findChildren(QPushButton) if one.text().startswith(text))
    QTest.mouseClick(button, Qt.MouseButton.LeftButton)
    QApplication.processEvents()


def opened(charts, chart):
    QTest.mouseClick(chart.head.more, Qt.MouseButton.LeftButton)
    return chart.findChild(ChartOptions)


@pytest.mark.full
def test_every_curve_of_the_run_is_shown(charts):
    lengths = {chart.name: len(chart.content.curve(key)) for chart, key in (
        (charts.loss, "loss"), (charts.rate, "rate"), (charts.grad_norm, "grad_norm"), (charts.speed, "speed"),
        (charts.memory, "peak"),
    )}  # fmt: skip
    assert set(lengths.values()) == {240}
    assert len(charts.loss.content.curve("held_out")) == 3
    assert charts.memory.drawing.plot.limit.isVisible()
    assert charts.memory.drawing.plot.limit.value() == pytest.approx(6_300_000_000 / 2**30)


@pytest.mark.full
def test_charts_of_preferences_are_shown_in_runs_that_learn_from_them(qtbot, charts):
    preferences = (charts.margin, charts.accuracy, charts.log_prob, charts.kl)
    assert not any(chart.isVisible() for chart in preferences)
    token, pair = charts.loss.head._labels[1].text(), fold_all(RunState(), preferring(240))
    charts.draw(pair)
    qtbot.waitUntil(lambda: all(chart.isVisible() for chart in preferences))
    assert charts.loss.head._labels[1].text() != token
    assert charts.log_prob.table().names[-2:] == ("chosen", "rejected")
    assert charts.log_prob.table().rows == 240
    charts.draw(fold_all(RunState(), events(240)))
    assert not any(chart.isVisible() for chart in preferences)
    assert charts.loss.head._labels[1].text() == token


def test_the_hardware_is_shown_where_it_was_recorded(qtbot, charts):
    assert not charts.temperature.isVisible()
    state = fold_all(RunState(), events(240))
    charts.draw(state, recording(state))
    qtbot.waitUntil(lambda: charts.temperature.drawing is not None and drawn(charts))
    read = {reading.label: reading.value for chart in charts.small for reading in chart.readings(240)}
    assert (read["this run"], read["other programs"]) == (5.0, 1.0), "of the GPU that the run trains on"
    assert (read["Power"], read["Clock"]) == (300.0, 2500.0)
    assert read["Temperature"] == pytest.approx(73.9)
    assert charts.power.head.unit == "W, GPU 1", "of several, it says which"
    assert "peak so far" not in read
    assert not charts.load.isVisible(), "the driver did not tell it"
    top = charts.memory.content.values("others")
    assert top[-1] == 6.0, "parts of a stack stand on each other"
    charts.memory.legend("ours").click()
    assert charts.memory.content.values("others")[-1] == 1.0


def test_options_change_axis_scale_and_smoothing(charts):
    options = opened(charts, charts.loss)
    press(options, "Tokens")
    press(options, "Logarithmic")
    options.smoothing.setValue(0)
    assert (charts.link.kind, charts.loss.content.log, charts.loss.content.window) == ("tokens", True, 1)
    press(options, "Last 100")
    assert charts.link.latest == 100
    options.close()
    again = opened(charts, charts.loss)
    assert again.smoothing.value() == 0
    assert next(one for one in again.findChildren(QPushButton) if one.text() == "Tokens").isChecked()


def test_a_chart_can_be_read_as_a_table_and_copied(charts):
    press(opened(charts, charts.loss), "View as table")
    window = charts.findChild(TableWindow)
    assert window.isVisible()
    model = window.model
    assert model.rowCount() == 241, "240 steps and the evaluation before them"
    names = [model.headerData(column, Qt.Orientation.Horizontal) for column in range(model.columnCount())]
    assert names[0] == "step"
    held_out = names.index("held out")
    assert model.text(0, held_out) == "2.61"
    assert model.text(1, held_out) == ""
    window.view.selectRow(100)
    QTest.keyClick(window.view, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    head, row = QApplication.clipboard().text().splitlines()
    assert head.split("\t") == names
    assert row.split("\t")[0] == "100"


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("kind", ["png", "svg", "csv"])
def test_a_chart_is_saved(qtbot, charts, tmp_path, kind):
    path = tmp_path / f"loss.{kind}"
    charts.save(charts.loss, kind, path)
    qtbot.waitUntil(path.exists)
    content = path.read_bytes()
    if kind == "png":
        assert QImage.fromData(content).size() == 2 * charts.loss.picture_size()
    elif kind == "svg":
        text = content.decode()
        assert text.startswith("<?xml")
        assert "held out" in text
        assert text.count("<poly") + text.count("<path") > 5
        assert "<image" not in text, "marks are shapes"
    else:
        lines = content.decode().splitlines()
        assert len(lines) == 242
        assert float(lines[100].split(",")[3]) == pytest.approx(charts.curves.loss.values[98])


def test_a_drawing_is_clipped_where_its_plot_is(charts):
    charts.link.zoom_to(60, 160)
    charts.loss.zoom_values_to(1.3, 1.5)
    charts.loss._draw()
    text = svg_bytes(charts.loss).decode()
    lines = re.findall(r'<g clip-path="url\(#(\w+)\)">(?:(?!clip-path)[\s\S])*?<polyline', text)
    corners = [
        [float(number) for number in re.findall(r"-?[\d.]+", path)]
        for name, path in re.findall(r'<clipPath id="(\w+)">\s*<path[^>]* d="([^"]*)"', text)
        if name in lines
    ]
    box, plot = charts.loss.drawing.plot.box, charts.loss.drawing.plot
    area = box.sceneBoundingRect()
    margin = (charts.loss.picture_size().width() - plot.view.width()) / 2
    wanted = margin + area.left(), margin + area.right()
    assert any((min(path[::2]), max(path[::2])) == pytest.approx(wanted, abs=2) for path in corners)
    below = charts.loss.picture_size().height() - margin  # the plot ends there
    assert any(max(path[1::2]) == pytest.approx(below - plot.view.height() + area.bottom(), abs=3) for path in corners)


def test_a_file_that_cannot_be_written_is_said(qtbot, charts, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with qtbot.waitSignal(charts.failed) as said:
        charts.save(charts.loss, "csv", tmp_path / "file" / "loss.csv")
    assert "loss.csv" in said.args[0]


def test_a_chart_can_take_all_of_the_room_and_give_it_back(charts):
    heights = charts.loss.plot_height(), charts.speed.plot_height()
    charts.room.enlarge(charts.speed)
    assert charts.speed.plot_height() > heights[1] * 2
    assert not charts.loss.isVisible()
    charts.room.enlarge(charts.speed)
    assert (charts.loss.plot_height(), charts.speed.plot_height()) == heights
    assert charts.loss.isVisible()


@pytest.mark.full
def test_pinned_values_take_the_place_of_the_charts_beside_the_loss(qtbot, charts):
    def beside(widget):
        return widget.mapTo(charts, QPoint(0, 0)).x() > charts.loss.mapTo(charts, QPoint(charts.loss.width(), 0)).x()

    assert beside(charts.rate)
    assert beside(charts.grad_norm)
    charts.link.toggle_pin(20)
    qtbot.waitUntil(lambda: charts.pinned.isVisible() and not beside(charts.rate))
    assert beside(charts.pinned)
    for step in (30, 40, 50, 60):  # each takes a column, for which the card grows, or goes below
        charts.link.toggle_pin(step)
        qtbot.waitUntil(lambda: charts.pinned.table.columnCount() == 1 + len(charts.link.pins))
        qtbot.waitUntil(lambda: charts.pinned.table.horizontalScrollBar().maximum() == 0)
        assert charts.pinned.table.columnWidth(0) >= charts.pinned.table.sizeHintForColumn(0)
    charts.link.set_pins(())
    qtbot.waitUntil(lambda: beside(charts.rate))
    charts.resize(700, 900)
    qtbot.waitUntil(lambda: not beside(charts.rate))


@pytest.mark.full
def test_pinned_values_stand_below_the_loss_where_there_is_no_room_beside_it(qtbot, charts):
    charts.resize(470, 1200)
    charts.link.toggle_pin(20)
    qtbot.waitUntil(lambda: charts.pinned.y() > charts.loss.mapTo(charts, QPoint(0, charts.loss.height())).y())
    table = charts.pinned.table
    charts.resize(470, charts.heightForWidth(470))  # as within a page, which scrolls
    qtbot.waitUntil(lambda: charts.pinned.height() > table.height() > table.verticalHeader().length())
    assert table.verticalScrollBar().maximum() == 0
    assert charts.minimumSizeHint().width() <= 470
    charts.resize(1000, 1200)
    qtbot.waitUntil(lambda: charts.pinned.x() > charts.loss.width())


@pytest.mark.full
@pytest.mark.parametrize(("page_px", "small_px"), [(800, 110), (1080, 150)])
def test_plots_are_high_enough_without_their_axes(qtbot, charts, page_px, small_px):
    def area_px(chart):
        return chart.drawing.plot.box.sceneBoundingRect().height() if chart.drawing is not None else 0

    charts.fit_height(page_px)
    qtbot.waitUntil(lambda: area_px(charts.loss) >= 200)
    for chart in (charts.rate, charts.grad_norm):
        qtbot.waitUntil(lambda chart=chart: area_px(chart) >= small_px)


@pytest.mark.full
@pytest.mark.parametrize(("size", "page_px"), [((1600, 1000), 1080), ((700, 600), 700)])
def test_charts_have_their_places_as_soon_as_they_fit_a_page(qtbot, charts, size, page_px):
    """They are painted once, not after each layout on the way up."""
    page = QScrollArea()
    qtbot.addWidget(page)
    page.setWidgetResizable(True)
    page.resize(1000, 700)
    page.setWidget(charts)
    charts.show()
    page.show()
    qtbot.waitUntil(lambda: drawn(charts))
    page.resize(*size)
    charts.fit_height(page_px)
    shown = [charts, charts.loss, *charts.small]
    places = [chart.geometry() for chart in shown]
    for _ in range(20):
        QApplication.processEvents()
    assert [chart.geometry() for chart in shown] == places
    page.takeWidget()


@pytest.mark.full
def test_another_run_is_shown_from_its_beginning(charts):
    charts.link.zoom_to(10, 20)
    charts.link.toggle_pin(15)
    _, lines = TRAIN_SCENES["failed"]
    other = [line.model_copy(update={"run": "another"}) if line.type == "run_started" else line for line in lines]
    charts.draw(fold_all(RunState(), other))
    assert not charts.link.zoomed
    assert charts.link.pins == ()


@pytest.mark.full
def test_the_figure_beside_the_charts_is_the_newest_mean_that_they_draw(charts):
    losses = fold_all(RunState(), events(240)).steps.loss.values()
    newest = charts.loss.content.curve("loss mean").values[-1]
    assert newest_mean(losses, charts.loss.content.window) == pytest.approx(newest)
    assert math.isnan(newest_mean(array("d"), 5))


def test_learning_rates_read_as_in_the_recipe():
    assert [learning_rate_text(rate) for rate in (2e-4, 1.8512e-4, 5e-5, 0.0)] == [
        "0.0002",
        "0.000185",
        "0.00005",
        "0",
    ]
