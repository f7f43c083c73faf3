"""One place for what is running: any source reports to it, and it is opened and stopped from every page."""

import pytest
from app.facts.run_summaries import summary
from PySide6.QtCore import Qt

from burnish_app.activity_board import ActivityBoard
from burnish_app.state.time_left import Remaining
from burnish_app.wording.activity import Activity, activity_text
from burnish_engine.contract.serve.replies import Bench, ExportJob


def going(name="a", share=0.5, **fields):
    return Activity("model", name, name, "Downloading", share, **fields)


def test_sources_are_kept_apart_and_each_replaces_its_own():
    board = ActivityBoard()
    board.put("model", [going("a"), going("b")])
    board.put("export", [going("c")])
    board.put("model", [going("b")])
    assert [one.name for one in board.activities] == ["b", "c"]
    board.put("export", [])
    assert [one.name for one in board.activities] == ["b"]


def test_the_time_left_is_estimated_where_the_source_tells_none():
    now = [0.0]
    board = ActivityBoard(clock=lambda: now[0])
    for seconds, share in ((0, 0.0), (10, 0.25)):
        now[0] = seconds
        board.put("model", [going("a", share), going("b", share, left=Remaining.about(7.0)), going("c", None)])
    assert [one.left and one.left.middle_s for one in board.activities] == [pytest.approx(30), 7.0, None]


def test_an_activity_in_words():
    text = activity_text(going("a", 0.4, stage="1 of 2 GB", left=Remaining.about(30.0)))
    assert all(part in text for part in ("Downloading a", "40 %", "1 of 2 GB", "30 s"))
    assert "%" not in activity_text(going("a", None))


@pytest.fixture
def watched(qtbot, window, answers, tmp_path):
    """A window beside which a run and an export continue."""
    job = ExportJob(status="running", share=0.36)
    other = summary("finished", 600, folder=str(tmp_path), name="other").model_copy(update={"export": job})
    answers.result("runs", runs=[summary("running"), other])
    window.go_to("settings")
    window.runs_poller.poll()
    qtbot.waitUntil(lambda: len(window.sidebar.activity.activities) == 2)
    return window


def test_the_list_opens_on_every_page_and_escape_closes_it(qtbot, watched):
    panel = watched.activity.panel
    for key in ("settings", "hardware"):
        watched.go_to(key)
        watched.sidebar.activity.click()
        assert panel.isVisible()
        assert watched.rect().contains(panel.mapTo(watched, panel.rect().bottomRight()))
        qtbot.keyClick(panel, Qt.Key.Key_Escape)
        assert not panel.isVisible()
        assert not watched.sidebar.activity.isChecked()


def test_only_one_panel_lies_over_the_page(qtbot, watched):
    watched.sidebar.hardware.click()
    assert watched.hardware.panel.isVisible()
    watched.sidebar.activity.click()
    assert not watched.hardware.panel.isVisible()
    watched.sidebar.hardware.click()
    assert not watched.activity.panel.isVisible()


def test_the_hardwares_panel_fits_the_window_and_reaches_the_edges_of_a_narrow_one(qtbot, watched):
    panel = watched.hardware.panel
    for width in (744, 1280, 1920):
        watched.resize(width, 800)
        watched.sidebar.hardware.click()
        assert watched.rect().contains(panel.geometry())
        reaches = panel.geometry().right() == watched.rect().right()
        assert reaches == (width == 744), width
        qtbot.keyClick(panel, Qt.Key.Key_Escape)


@pytest.mark.full
def test_what_goes_on_is_stopped_from_the_list(qtbot, watched, answers):
    answers.result("command", done=True)
    watched.sidebar.activity.click()
    row = next(iter(watched.activity.panel.rows.values()))
    row.stop_button.click()
    qtbot.waitUntil(lambda: len(answers.asked("command")) == 1)
    assert answers.asked("command")[0]["command"] == "stop"
    assert not row.stop_button.isEnabled()


@pytest.mark.full
def test_rows_stay_while_their_progress_changes(watched):
    watched.sidebar.activity.click()
    panel = watched.activity.panel
    before = dict(panel.rows)
    watched.runs_poller.updated.emit([one.model_copy() for one in watched._runs])
    assert panel.rows == before


def test_a_page_reports_its_own_and_stops_it_itself(qtbot, window):
    stopped = []
    window.go_to("model")
    one = going("Qwen3", stop=lambda: stopped.append(True), outlives=False)
    window.page("model").activities_changed.emit([one])
    assert window.sidebar.activity.isVisible()
    assert window.sidebar.run_note.isHidden(), "it ends with the window"
    window.sidebar.activity.click()
    next(iter(window.activity.panel.rows.values())).stop_button.click()
    assert stopped == [True]
    window.page("model").activities_changed.emit([])
    assert not window.sidebar.activity.isVisible()
    assert not window.activity.panel.isVisible()


@pytest.mark.full
@pytest.mark.parametrize(("page", "verb"), [("model", "Pause"), ("export", "Stop")])
def test_a_download_is_paused_and_other_work_is_stopped(qtbot, window, page, verb):
    window.activity.board.put("test", [Activity(page, "/runs/a", "Qwen3", "Working", 0.5)])
    window.sidebar.activity.click()
    row = next(iter(window.activity.panel.rows.values()))
    assert row.stop_button.text() == verb
    assert row.stop_button.accessibleName().startswith(verb)


def test_a_stop_that_is_refused_is_said(qtbot, watched, answers):
    answers.failure("command", "No process would take it.")
    watched.sidebar.activity.click()
    row = next(iter(watched.activity.panel.rows.values()))
    row.stop_button.click()
    qtbot.waitUntil(lambda: watched.page("settings").shown_banner is not None)
    assert row.stop_button.isEnabled(), "it can be tried again"


def test_a_benchmark_of_a_terminal_is_listed_and_stopped_and_no_page_is_offered(qtbot, window, answers):
    step = Bench(kind="step", about="qwen3-0.6b", started=0.0, share=0.5, pid=4711, process_created=1.0)
    tuning = step.model_copy(update={"kind": "kernels", "about": "", "share": None, "pid": 4712})
    answers.result("runs", runs=[], benches=[step, tuning])
    answers.result("stop_bench", done=True)
    window.runs_poller.poll()
    qtbot.waitUntil(lambda: len(window.activity.board.activities) == 2)
    window.sidebar.activity.click()
    rows = list(window.activity.panel.rows.values())
    assert ["50 %" in row.text.text() for row in rows] == [True, False]
    assert not any(row.open_button.isVisible() for row in rows)
    rows[1].stop_button.click()
    qtbot.waitUntil(lambda: [request["pid"] for request in answers.asked("stop_bench")] == [4712])
    answers.result("runs", runs=[])
    window.runs_poller.poll()
    qtbot.waitUntil(lambda: not window.sidebar.activity.isVisible())


def test_opening_leads_to_the_page(qtbot, watched, tmp_path):
    watched.sidebar.activity.click()
    list(watched.activity.panel.rows.values())[1].open_button.click()
    qtbot.waitUntil(lambda: watched.shown_key == "export")
    assert watched.bench.run == str(tmp_path)
    assert not watched.activity.panel.isVisible()
