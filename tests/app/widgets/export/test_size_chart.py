"""The chart of sizes: points are chosen with mouse and keyboard, and read to those who do not see them."""

import pytest
from app.facts import export_facts as facts
from PySide6.QtCore import QRectF, Qt

from burnish_app.curves.export_points import export_points
from burnish_app.widgets.export.size_chart import SizeChart, covered

pytestmark = pytest.mark.gui


@pytest.fixture
def chart(qtbot, theme):
    made = SizeChart()
    qtbot.addWidget(made)
    made.resize(700, 260)
    made.show_points(export_points(facts.forecast(), None), 600_000_000)
    with qtbot.waitExposed(made):
        made.show()
    made.chosen_by_hand = []
    made.toggled.connect(made.chosen_by_hand.append)
    return made


def test_a_press_on_a_point_chooses_its_type(qtbot, chart):
    for quant in ("Q8_0", "F16", "Q2_K"):
        qtbot.mouseClick(chart, Qt.MouseButton.LeftButton, pos=chart.place_of(quant).toPoint())
    assert chart.chosen_by_hand == ["Q8_0", "F16", "Q2_K"]


def test_a_press_beside_all_points_chooses_nothing(qtbot, chart):
    far = (chart.place_of("Q8_0") + chart.place_of("Q2_K")).toPoint() / 2
    qtbot.mouseClick(chart, Qt.MouseButton.LeftButton, pos=far)
    assert chart.chosen_by_hand == []


def test_arrows_go_by_size_and_space_chooses(qtbot, chart):
    chart.show_chosen({"Q8_0"})
    chart.clearFocus()
    chart.setFocus()
    assert chart.points[chart.current].quant == "Q8_0", "it begins at what is chosen"
    qtbot.keyClick(chart, Qt.Key.Key_Left)
    assert chart.points[chart.current].quant == "Q6_K"
    qtbot.keyClick(chart, Qt.Key.Key_Space)
    assert chart.chosen_by_hand == ["Q6_K"]
    qtbot.keyClick(chart, Qt.Key.Key_End)
    qtbot.keyClick(chart, Qt.Key.Key_Right)
    assert chart.points[chart.current].quant == "F16"


def test_the_point_it_is_at_is_read(qtbot, chart):
    chart.setFocus()
    qtbot.keyClick(chart, Qt.Key.Key_End)
    text = chart.accessibleDescription()
    assert "F16" in text
    assert "not chosen" in text
    chart.show_chosen({"F16"})
    assert "not chosen" not in chart.accessibleDescription()


def test_all_points_lie_inside_at_any_width(chart):
    for width in (260, 460, 1300):
        chart.resize(width, 260)
        assert all(chart._plot().contains(chart._place(point)) for point in chart.points)


def test_what_is_measured_later_keeps_the_place_of_the_keyboard(qtbot, chart):
    chart.setFocus()
    qtbot.keyClick(chart, Qt.Key.Key_End)
    chart.show_points(export_points(facts.forecast(), facts.report()), 0)
    assert chart.points[chart.current].quant == "F16"


def test_hollow_and_filled_look_different(chart):
    place = chart.place_of("Q8_0").toPoint()
    hollow = chart.grab().toImage().pixelColor(place)
    chart.show_points(export_points(facts.forecast(), facts.report()), 600_000_000)
    assert chart.grab().toImage().pixelColor(chart.place_of("Q8_0").toPoint()) != hollow


def test_a_chosen_name_goes_where_it_covers_least():
    around = [QRectF(0, 0, 10, 10), QRectF(20, 0, 10, 10)]
    assert covered(QRectF(5, 5, 20, 10), around) == 2 * 25
    assert covered(QRectF(40, 0, 10, 10), around) == 0


@pytest.mark.full
@pytest.mark.parametrize("measured", [None, facts.report()])
def test_measured_types_have_their_names_and_no_two_names_touch(chart, measured):
    chart.show_points(export_points(facts.forecast(), measured), 0)
    chart.show_chosen({"Q4_K_M"})
    for width in range(400, 1600, 25):
        chart.resize(width, 260)
        places = chart.label_places()
        assert {point.quant for point in chart.points if point.measured} <= set(places)
        wider = [place.adjusted(-1, 0, 1, 0) for place in places.values()]
        assert not any(one.intersects(other) for at, one in enumerate(wider) for other in wider[:at])
