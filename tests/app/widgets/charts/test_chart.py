"""Charts: linked cursor, zoom, pins, legend, keyboard; driven by real mouse and key events."""

import math

import numpy as np
import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QGuiApplication, QImage, QMouseEvent, QPainter, QWheelEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QVBoxLayout, QWidget

from burnish_app.curves.curve import Curve
from burnish_app.curves.marks import Mark
from burnish_app.curves.run_axis import RunAxis
from burnish_app.look.theme import colors_of
from burnish_app.widgets.charts.chart import Chart
from burnish_app.widgets.charts.content import ChartSpec
from burnish_app.widgets.charts.lines import ChartLine
from burnish_app.widgets.charts.link import ChartLink
from burnish_app.widgets.charts.pinned import PinnedValues

LINES = {"loss": ChartLine("each step"), "held_out": ChartLine("held out", 1, "points")}


def axis(steps):
    at = np.arange(steps + 1, dtype=float)
    return RunAxis(at, at * 100, at * 2, at * 2 + 1000)


class Charts:
    """Two linked charts in a window, with the table of pinned values.

    Args:
        qtbot: pytest-qt's bot.
        steps: number of steps of the run.
    """

    def __init__(self, qtbot, steps=40):
        self.qtbot, self.link, self.window = qtbot, ChartLink(), QWidget()
        self.loss = Chart(ChartSpec("Loss", LINES, lambda value: f"{value:.2f}", smooth="loss"), self.link)
        rate = ChartSpec("Rate", {"rate": ChartLine("", 2)}, lambda value: f"{value:.1f}", from_zero=True)
        self.rate = Chart(rate, self.link)
        self.values = PinnedValues(self.link)
        column = QVBoxLayout(self.window)
        for widget in (self.loss, self.rate, self.values):
            column.addWidget(widget)
        for chart in (self.loss, self.rate):
            chart.set_plot_height(300)
        qtbot.addWidget(self.window)
        self.window.resize(700, 900)
        self.window.show()
        qtbot.waitUntil(lambda: None not in (self.loss.drawing, self.rate.drawing))
        self.show(steps)

    def show(self, steps):
        """Show a run of this many steps."""
        at = np.arange(1, steps + 1, dtype=float)
        self.link.set_axis(axis(steps))
        self.loss.set_curves({"loss": Curve.of(at, 100 - at), "held_out": Curve.of([0, steps // 2], [101, 60])})
        self.rate.set_curves({"rate": Curve.of(at, at)})
        self.settle()

    def settle(self):
        """Wait until all is drawn."""
        self.qtbot.waitUntil(lambda: not any(c.stale or c._redraw.isActive() for c in (self.loss, self.rate)))
        self.qtbot.waitUntil(lambda: not self.link._pace.isActive())
        QApplication.processEvents()

    def viewport(self, chart):
        """Return the widget that the mouse acts on."""
        return chart.drawing.plot.viewport

    def at(self, chart, step, height=0.5):
        """Return where a step lies in the plot, at a share of its height from the top."""
        box = chart.drawing.plot.box
        scene = box.mapViewToScene(QPointF(float(self.link.axis.x(self.link.kind, [step])[0]), 0))
        area = box.sceneBoundingRect()
        return QPoint(round(scene.x()), round(area.top() + height * area.height()))

    def hover(self, chart, step):
        """Move the pointer to a step."""
        QTest.mouseMove(self.viewport(chart), self.at(chart, step) + QPoint(2, 0))
        self.qtbot.wait(15)  # pyqtgraph leaves out moves that follow each other faster
        QTest.mouseMove(self.viewport(chart), self.at(chart, step))
        within = max((self.link.range()[1] - self.link.range()[0]) / 400, 0.01)  # of about a pixel
        self.qtbot.waitUntil(lambda: abs((self.link.cursor or 0) - step) < within)
        self.settle()

    def drag(self, chart, begin, end, button=Qt.MouseButton.LeftButton, modifier=Qt.KeyboardModifier.NoModifier):
        """Drag from one point to another."""
        view, none = self.viewport(chart), Qt.MouseButton.NoButton
        places = [begin, *(begin + (end - begin) * share for share in (0.1, 0.3, 0.6, 1.0)), end]
        kinds = [QEvent.Type.MouseButtonPress, *[QEvent.Type.MouseMove] * 4, QEvent.Type.MouseButtonRelease]
        for place, kind in zip(places, kinds, strict=True):
            changed = none if kind == QEvent.Type.MouseMove else button
            held = none if kind == QEvent.Type.MouseButtonRelease else button
            where = QPointF(place)
            QApplication.sendEvent(view, QMouseEvent(kind, where, view.mapToGlobal(where), changed, held, modifier))
            self.qtbot.wait(15)
        self.settle()

    def double_click(self, chart, step):
        """Click twice, as Qt reports it."""
        view, place = self.viewport(chart), self.at(chart, step)
        for press in (QTest.mousePress, QTest.mouseDClick):
            press(view, Qt.MouseButton.LeftButton, pos=place)
            QTest.mouseRelease(view, Qt.MouseButton.LeftButton, pos=place)
        self.qtbot.wait(300)  # longer than a click waits for the second one
        self.settle()

    def wheel(self, chart, step, notches, modifier=Qt.KeyboardModifier.NoModifier):
        """Turn the wheel over a step and return whether the chart took it."""
        return self.wheel_at(chart, self.at(chart, step), notches, modifier)

    def wheel_at(self, chart, point, notches, modifier=Qt.KeyboardModifier.NoModifier):
        """Turn the wheel over a point and return whether the chart took it."""
        view, place = self.viewport(chart), QPointF(point)
        event = QWheelEvent(
            place, view.mapToGlobal(place), QPoint(), QPoint(0, 120 * notches), Qt.MouseButton.NoButton, modifier,
            Qt.ScrollPhase.NoScrollPhase, False,
        )  # fmt: skip
        event.ignore()
        QApplication.sendEvent(view, event)
        self.settle()
        return event.isAccepted()


@pytest.fixture
def charts(qtbot, theme):
    return Charts(qtbot)


def shown(charts):
    return charts.link.range()


@pytest.mark.full
@pytest.mark.parametrize("steps", [4, 40, 3000])
def test_the_cursor_is_a_thin_line_however_few_steps_there_are(qtbot, theme, steps):
    charts = Charts(qtbot, steps)
    before = charts.viewport(charts.loss).grab().toImage()
    charts.hover(charts.loss, steps // 2)
    after = charts.viewport(charts.loss).grab().toImage()
    area = charts.loss.drawing.plot.box.sceneBoundingRect().toRect()
    rows = range(area.top(), area.bottom(), 3)
    changed = [
        sum(before.pixel(x, y) != after.pixel(x, y) for y in rows) / len(rows) for x in range(area.left(), area.right())
    ]
    assert 1 <= sum(share > 0.9 for share in changed) <= 2, "only the line goes all the way down"


def test_one_cursor_goes_through_all_charts(charts):
    charts.hover(charts.loss, 10)
    for chart, text in ((charts.loss, "each step 90.00"), (charts.rate, "Rate 10.0")):
        assert chart.drawing.plot.cursor.isVisible()
        assert chart.drawing.plot.cursor.value() == 10
        assert text in chart.drawing.card.text
    assert "held out 101.00 (step 0)" in charts.loss.drawing.card.text, "an older value says how old it is"
    QApplication.sendEvent(charts.viewport(charts.loss), QEvent(QEvent.Type.Leave))
    charts.settle()
    assert charts.link.cursor is None
    assert not charts.rate.drawing.plot.cursor.isVisible()


def test_a_drag_zooms_all_charts_and_a_double_click_shows_everything_again(charts):
    everything = shown(charts)
    charts.drag(charts.loss, charts.at(charts.loss, 10), charts.at(charts.loss, 20, 0.55))
    low, high = shown(charts)
    assert low == pytest.approx(10, abs=0.5)
    assert high == pytest.approx(20, abs=0.5)
    for chart in (charts.loss, charts.rate):
        assert chart.drawing.plot.box.viewRange()[0] == pytest.approx([low, high])
    bottom, top = charts.loss.drawing.plot.box.viewRange()[1]
    assert bottom > 75, "values fit the steps that are shown"
    assert top < 105
    charts.double_click(charts.rate, 15)
    assert shown(charts) == everything
    assert charts.link.pins == ()


def test_a_steep_drag_zooms_the_values_of_one_chart(charts):
    place = charts.at(charts.loss, 10, 0.2)
    charts.drag(charts.loss, place, place + QPoint(4, 120))
    low, high = charts.loss.drawing.plot.box.viewRange()[1]
    assert high - low < 25
    assert not charts.link.zoomed


def test_shift_and_drag_moves_the_range(charts):
    charts.link.zoom_to(10, 20)
    charts.settle()
    begin = charts.at(charts.loss, 15)
    charts.drag(charts.loss, begin, charts.at(charts.loss, 17), modifier=Qt.KeyboardModifier.ShiftModifier)
    assert shown(charts) == pytest.approx((8, 18), abs=0.5)


def test_the_wheel_scrolls_the_page_unless_ctrl_or_a_click_asked_for_zoom(charts):
    everything, ctrl = shown(charts), Qt.KeyboardModifier.ControlModifier
    charts.hover(charts.loss, 20)
    assert not charts.wheel(charts.loss, 20, 1), "a pointer that moved asked for nothing"
    assert charts.wheel(charts.loss, 20, 2, ctrl)
    low, high = shown(charts)
    assert everything[0] < low < 20 < high < everything[1]
    assert charts.wheel(charts.loss, 20, -20, ctrl)
    assert shown(charts) == everything
    assert not charts.wheel(charts.loss, 20, -1, ctrl), "there is nothing more to show"
    QTest.mouseClick(charts.viewport(charts.loss), Qt.MouseButton.LeftButton, pos=charts.at(charts.loss, 20))
    assert charts.wheel(charts.loss, 20, 2)
    QApplication.sendEvent(charts.viewport(charts.loss), QEvent(QEvent.Type.Leave))
    assert not charts.wheel(charts.loss, 20, 1)


def test_the_wheel_over_the_numbers_of_an_axis_scrolls_the_page_too(charts):
    below = charts.at(charts.loss, 20, height=1.0) + QPoint(0, 12)
    left = QPoint(12, charts.at(charts.loss, 20).y())
    for place in (below, left):
        assert not charts.wheel_at(charts.loss, place, 1)
        assert charts.wheel_at(charts.loss, place, 1, Qt.KeyboardModifier.ControlModifier)


def test_the_wheel_with_ctrl_and_shift_zooms_values(charts):
    before = charts.loss.drawing.plot.box.viewRange()[1]
    both = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
    charts.wheel(charts.loss, 20, 2, both)
    after = charts.loss.drawing.plot.box.viewRange()[1]
    assert after[1] - after[0] < before[1] - before[0]


def test_a_click_pins_all_values_and_they_are_copied_as_a_table(qtbot, charts):
    for step in (10, 20):
        charts.hover(charts.loss, step)
        QTest.mouseClick(charts.viewport(charts.loss), Qt.MouseButton.LeftButton, pos=charts.at(charts.loss, step))
        qtbot.waitUntil(lambda step=step: step in charts.link.pins)
        qtbot.wait(QApplication.doubleClickInterval())
    assert charts.values.isVisible()
    assert [line.value() for line in charts.rate.drawing.plot.pins] == [10, 20]
    charts.values.table.setFocus()
    QTest.keyClick(charts.values.table, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    rows = {cells[0]: cells[1:] for cells in (line.split("\t") for line in clipboard().splitlines())}
    assert rows["step"] == ["10", "20"]
    assert rows["tokens"] == ["1000", "2000"]
    assert rows["Loss, each step"] == ["90", "80"]
    assert rows["Loss, held out"] == ["101", "60"]
    assert rows["Rate"] == ["10", "20"]


def clipboard():
    return QGuiApplication.clipboard().text()


def test_the_keyboard_moves_the_cursor_and_says_the_values(charts):
    charts.loss.setFocus()
    for key in (Qt.Key.Key_Left, Qt.Key.Key_Left, Qt.Key.Key_Right, Qt.Key.Key_Left):
        QTest.keyClick(charts.loss, key)
    assert charts.link.cursor == 39
    spoken = charts.loss.accessibleDescription()
    assert "39" in spoken
    assert "each step 61.00" in spoken
    QTest.keyClick(charts.loss, Qt.Key.Key_Home)
    assert charts.link.cursor == 0
    QTest.keyClick(charts.loss, Qt.Key.Key_Return)
    assert charts.link.pins == (0,)
    QTest.keyClick(charts.loss, Qt.Key.Key_Plus)
    assert charts.link.zoomed
    QTest.keyClick(charts.loss, Qt.Key.Key_Escape)
    assert not charts.link.zoomed
    assert charts.link.cursor is None


def test_a_cursor_moved_out_of_sight_takes_the_range_along(charts):
    charts.link.zoom_to(10, 20)
    charts.link.set_cursor(19)
    for _ in range(6):
        charts.link.move_cursor(1)
    low, high = shown(charts)
    assert low <= 25 <= high
    assert high - low == pytest.approx(10)


@pytest.mark.full
def test_the_chart_has_a_name_and_its_newest_values_as_text(charts):
    assert "Loss" in charts.loss.accessibleName()
    assert "each step 60.00" in charts.loss.accessibleDescription()


@pytest.mark.full
def test_the_legend_hides_a_line_everywhere(charts):
    entry = charts.loss.legend("held_out")
    assert entry.text() == "held out 60.00"
    wide = entry.sizeHint().width()
    entry.set_value("")
    assert entry.sizeHint().width() < wide
    QTest.mouseClick(entry, Qt.MouseButton.LeftButton)
    charts.settle()
    assert "held out" not in [reading.label for reading in charts.loss.readings(20)]
    assert not charts.loss.drawing.plot.lines["held_out"].items[1].isVisible()


@pytest.mark.full
def test_a_smoothing_draws_the_mean_and_its_name_says_over_what(charts):
    charts.loss.set_window(5)
    charts.settle()
    assert "5" in charts.loss.legend("loss mean").text()
    assert len(charts.loss.content.curve("loss mean")) == 40
    charts.loss.set_window(1)
    assert len(charts.loss.content.curve("loss mean")) == 0


def test_the_axis_changes_its_unit_and_shows_the_same_steps(charts):
    charts.link.zoom_to(10, 20)
    charts.link.set_kind("tokens")
    charts.settle()
    assert charts.loss.drawing.plot.box.viewRange()[0] == pytest.approx([1000, 2000])
    charts.link.set_kind("time")
    charts.settle()
    assert charts.rate.drawing.plot.box.viewRange()[0] == pytest.approx([20, 40])
    charts.hover(charts.rate, 12)


def test_the_newest_steps_stay_in_view_as_more_come(charts):
    charts.link.show_latest(10)
    charts.show(60)
    low, high = shown(charts)
    assert low == pytest.approx(50)
    assert high > 60


def test_a_logarithmic_scale_leaves_out_what_has_no_logarithm(charts):
    at = np.arange(1.0, 41)
    charts.loss.set_curves({"loss": Curve.of(at, np.where(at < 5, -1.0, 10.0 ** (at / 10)))})
    charts.loss.set_log(True)
    charts.settle()
    low, high = charts.loss.drawing.plot.box.viewRange()[1]
    assert 0 < low < 0.5
    assert 4 < high < 5
    charts.hover(charts.loss, 2)


def test_numbers_that_are_none_do_not_break_the_drawing(charts):
    marks = [Mark("bad", 2), Mark("spike", 3, 50.0), Mark("checkpoint", 3), Mark("rollback", 1), Mark("best", 3, 2.0)]
    charts.loss.set_curves({"loss": Curve.of([1, 2, 3], [math.nan, math.inf, 2.0])}, marks=marks)
    charts.rate.set_curves({})
    charts.settle()
    low, high = charts.loss.drawing.plot.box.viewRange()[1]
    assert low < 2.0 < high < 100
    assert "checkpoint" in charts.loss.values_text(3)
    assert not charts.loss.grab().isNull()
    charts.hover(charts.loss, 3)


@pytest.mark.full
def test_the_highest_and_the_lowest_value_have_room(charts):
    (left, right), (low, high) = charts.loss.drawing.plot.box.viewRange()
    box = charts.loss.drawing.plot.box.sceneBoundingRect()
    mark_px = 5  # half a mark, and its rim
    assert (high - 101) / (high - low) * box.height() > mark_px
    assert (60 - low) / (high - low) * box.height() > mark_px
    assert min(0 - left, right - 40) / (right - left) * box.width() > mark_px


def test_the_highest_hundredth_can_be_left_out(charts):
    at = np.arange(1.0, 401)
    charts.link.set_axis(axis(400))
    charts.loss.set_curves({"loss": Curve.of(at, np.where(at == 200, 900.0, 2.0))})
    charts.loss.set_clip(True)
    charts.settle()
    assert charts.loss.drawing.plot.box.viewRange()[1][1] < 10


@pytest.mark.full
def test_lines_are_as_wide_in_a_sharper_picture(charts):
    at = np.arange(1.0, 41)
    charts.rate.set_curves({"rate": Curve.of(at, np.full(40, 5.3))})
    charts.settle()

    def thickness(scale):
        image = QImage(charts.rate.picture_size() * scale, QImage.Format.Format_ARGB32_Premultiplied)
        image.setDevicePixelRatio(scale)
        painter = QPainter(image)
        charts.rate.draw_picture(painter, scale)
        painter.end()
        color = charts.rate.spec.lines["rate"].color(colors_of(charts.rate))
        column = [image.pixelColor(image.width() * 2 // 3, y) for y in range(image.height())]
        return sum(abs(one.hue() - color.hue()) < 10 and one.saturation() > color.saturation() / 3 for one in column)

    assert 1 <= thickness(1) < thickness(2) < thickness(4)


@pytest.mark.full
def test_points_that_would_cover_each_other_are_left_out(charts):
    def points():
        return len(charts.loss.drawing.plot.lines["held_out"].items[2].getData()[0])

    assert points() == 2
    at = np.arange(1.0, 401)
    charts.link.set_axis(axis(400))
    charts.loss.set_curves({"held_out": Curve.of(at, at)})
    charts.settle()
    assert points() == 0
    charts.link.zoom_to(10, 20)
    charts.settle()
    assert points() >= 10


@pytest.mark.full
def test_another_run_starts_without_range_cursor_and_pins(charts):
    charts.link.zoom_to(10, 20)
    charts.link.toggle_pin(12)
    charts.link.set_cursor(12)
    charts.link.forget()
    assert not charts.link.zoomed
    assert (charts.link.pins, charts.link.cursor) == ((), None)


@pytest.mark.full
def test_a_fourth_pin_replaces_the_first(charts):
    for step in (1, 2, 3, 4):
        charts.link.toggle_pin(step)
    assert charts.link.pins == (2, 3, 4)
    charts.link.toggle_pin(3)
    assert charts.link.pins == (2, 4)
