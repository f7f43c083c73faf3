"""The page Compare: curves over each other, what differs, replies; it follows what was chosen."""

import pytest
from app.conftest import PATIENCE_MS
from app.facts.run_summaries import LONG_NAME, compared, many_runs
from app.page_scenes.unusual_runs import long_names
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QScrollArea

from burnish_engine.contract.paths import user_data_dir


@pytest.fixture
def runs(burnish_home):
    return many_runs(user_data_dir() / "runs")


@pytest.fixture
def page(qtbot, window, answers, runs):
    window.runs_poller.stop()
    answers.result("runs", runs=runs)
    window.go_to("compare")
    page = window.page("compare")
    page.runs_changed(runs)
    return page


def choose(page, answers, runs):
    answers.result("compare", comparison=compared(runs))
    page.bench.set_compared([run.folder for run in runs])


@pytest.mark.full
def test_without_two_runs_there_is_a_way_to_choose_them(qtbot, window, page, runs):
    assert page.nothing.isVisible()
    window.bench.set_compared([runs[2].folder])
    assert page.nothing.isVisible()
    assert not page.open.isVisible()


@pytest.mark.full
def test_chosen_runs_are_drawn_compared_and_their_replies_stand_side_by_side(qtbot, page, answers, runs):
    chosen = runs[2:5]
    choose(page, answers, chosen)
    qtbot.waitUntil(lambda: len(page.view.charts.curves.held_out) == 3 and page.view.differences.isVisible())
    assert [len(curve) for curve in page.view.charts.curves.held_out] == [7, 7, 7]
    model = page.view.differences.model
    assert model.columnCount() == 4
    labels = [model.index(row, 0).data() for row in range(model.rowCount())]
    assert "Learning rate" in labels
    assert page.view.replies.isVisible()
    assert [request["runs"] for request in answers.asked("compare")][-1] == [run.folder for run in chosen]


@pytest.mark.full
def test_the_best_is_opened(qtbot, window, page, answers, runs):
    choose(page, answers, runs[2:5])
    qtbot.waitUntil(page.open.isVisible)
    page.open.click()
    assert window.bench.run == runs[2].folder  # 1.148 is the lowest of MANY[2:5]
    qtbot.waitUntil(lambda: window.shown_key == "train")


@pytest.mark.full
def test_two_can_go_on_to_a_duel(qtbot, window, page, answers, runs):
    choose(page, answers, runs[2:5])
    qtbot.waitUntil(page.open.isVisible)
    assert not page.duel.isVisible()
    choose(page, answers, runs[2:4])
    qtbot.waitUntil(page.duel.isVisible)
    page.duel.click()
    assert window.bench.duelists == tuple(run.folder for run in runs[2:4])


@pytest.mark.full
def test_the_axis_changes_for_all_charts_and_all_runs(qtbot, page, answers, runs):
    choose(page, answers, runs[2:4])
    charts = lambda: page.view.charts  # noqa: E731
    qtbot.waitUntil(lambda: len(charts().curves.held_out) == 2)
    charts().link.set_kind("tokens")
    qtbot.waitUntil(lambda: charts().curves.axis.unit == "tokens")
    assert charts().curves.held_out[0].steps[-1] == 600 * 2048
    assert "tokens" in charts().large.values_text(600 * 2048)


def test_the_legend_of_the_large_chart_hides_a_run_in_all(qtbot, page, answers, runs):
    choose(page, answers, runs[2:4])
    qtbot.waitUntil(lambda: len(page.view.charts.curves.held_out) == 2)
    charts = page.view.charts
    charts.large.legend("run1").click()
    assert not any(chart.content.shown("run1") for chart in (charts.large, *charts.small))
    assert all(chart.content.shown("run0") for chart in (charts.large, *charts.small))


@pytest.mark.full
def test_a_deleted_run_is_no_longer_compared(qtbot, page, answers, runs):
    choose(page, answers, runs[2:5])
    qtbot.waitUntil(lambda: len(page.view.folders) == 3)
    page.runs_changed([run for run in runs if run is not runs[3]])
    assert page.view.folders == (runs[2].folder, runs[4].folder)
    page.runs_changed([])
    assert page.nothing.isVisible()


@pytest.mark.full
def test_leaving_ends_the_reading_and_coming_back_begins_it_again(qtbot, window, page, answers, runs):
    choose(page, answers, runs[2:4])
    qtbot.waitUntil(lambda: len(page.view.charts.curves.held_out) == 2)
    window.go_to("settings")
    assert page.view._follower._thread is None
    window.go_to("compare")
    qtbot.waitUntil(lambda: len(page.view.charts.curves.held_out) == 2 and page.view._follower._thread is not None)


@pytest.mark.full
def test_the_same_runs_keep_their_charts_when_the_list_comes_again(qtbot, page, answers, runs):
    choose(page, answers, runs[2:4])
    charts = page.view.charts
    page.runs_changed(list(runs))
    assert page.view.charts is charts


@pytest.mark.full
def test_other_runs_are_compared_anew_and_what_was_found_before_is_dropped(qtbot, page, answers, runs):
    choose(page, answers, runs[2:4])
    qtbot.waitUntil(page.open.isVisible)
    page.view._again.setInterval(PATIENCE_MS)  # of runs that are running
    page.bench.set_compared([run.folder for run in runs[3:5]])
    assert not page.open.isVisible()
    choose(page, answers, runs[2:5])  # before the answer about the two
    qtbot.waitUntil(page.view.differences.isVisible)
    assert answers.asked("compare")[-1]["runs"] == [run.folder for run in runs[2:5]]


@pytest.mark.full
def test_pinned_values_of_several_runs_stand_at_the_unit_of_their_axis_alone(qtbot, page, answers, runs):
    choose(page, answers, runs[2:4])
    charts = page.view.charts
    qtbot.waitUntil(lambda: len(charts.curves.held_out) == 2)
    charts.link.set_pins((600.0,))
    _, shown, plain = charts.pinned.rows()
    assert [line[0] for line in shown].count("step") == 1
    assert not {"tokens", "time", "time, seconds"} & {line[0] for line in (*shown, *plain)}


@pytest.mark.full
def test_a_long_line_stands_below_the_question_only_where_there_is_no_room_beside_it(qtbot, window, page, answered):
    window.runs_poller.stop()
    answered()  # an answer about runs would bring the page's own line
    page.set_subtitle("A sentence about which of the runs is the best one, and by how much. " * 2)
    window.resize(1600, 900)
    qtbot.waitUntil(lambda: page.subtitle.geometry().left() > 0)
    beside = page.subtitle.geometry()
    window.resize(744, 900)
    qtbot.waitUntil(lambda: page.subtitle.geometry().top() > beside.top())
    assert page.subtitle.geometry().left() < beside.left()


@pytest.mark.full
def test_a_comparison_that_fails_is_said(qtbot, page, answers, runs):
    answers.failure("compare", "The recipe of one run cannot be read.", "Leave it out.")
    page.bench.set_compared([run.folder for run in runs[2:4]])
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    assert page.shown_banner.kind == "error"


def test_the_table_is_copied_as_a_spreadsheet_takes_it(qtbot, qapp, page, answers, runs):
    choose(page, answers, runs[2:4])
    qtbot.waitUntil(page.view.differences.isVisible)
    page.view.differences.copy()
    lines = qapp.clipboard().text().splitlines()
    assert lines[0].split("\t")[1:] == [run.state.name for run in runs[2:4]]
    assert any(line.startswith("Held-out loss\t") for line in lines)


@pytest.mark.full
def test_small_charts_reach_as_far_down_as_the_large_one_with_its_long_legend(qtbot, window, page, answers, runs):
    window.resize(1280, 800)
    choose(page, answers, runs[2:7])
    charts = lambda: page.view.charts  # noqa: E731
    qtbot.waitUntil(lambda: len(charts().curves.held_out) == 5 and charts().large.head.height() > 60)

    def below():
        """Return the room below the plot of the large chart and of each one beside it, in their cards, pixels."""
        large = charts().large
        shown = [one for one in charts().small if one.isVisible()]
        beside = [
            one for one in shown if one.mapTo(page, QPoint()).y() < large.mapTo(page, large.rect().bottomLeft()).y()
        ]
        return [one.parentWidget().height() - one.y() - one.picture_size().height() for one in (large, *beside)]

    qtbot.waitUntil(lambda: len(below()) == 3 and max(below()) - min(below()) <= 2)


@pytest.mark.full
def test_a_long_name_does_not_widen_the_page(qtbot, window, page, answers, runs):
    window.resize(1000, 700)
    named = long_names(runs)
    answers.result("runs", runs=named)
    page.runs_changed(named)
    choose(page, answers, named[2:5])
    legend = lambda: page.view.charts.large.legend("run0")  # noqa: E731
    qtbot.waitUntil(lambda: len(page.view.charts.curves.held_out) == 3 and legend().isVisible())
    assert LONG_NAME in legend().accessibleName()
    assert legend().width() < 400
    assert page.findChild(QScrollArea).horizontalScrollBar().maximum() == 0
