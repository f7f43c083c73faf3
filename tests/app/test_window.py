"""The window: pages, keys, what it remembers, and notes in the sidebar."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from app.facts.run_summaries import RUNS, summary, write_run
from app.facts.train_scenes import TRAIN_SCENES
from PySide6.QtCore import QEvent, QObject, QPoint, Qt
from PySide6.QtWidgets import QAbstractSpinBox, QHeaderView, QLabel, QLineEdit, QPushButton, QScrollArea, QWidget

from burnish_app.focus_order import focus_order
from burnish_app.look.motion import is_reduced, set_motion
from burnish_app.look.theme import DARK, LIGHT, Theme, colors_of
from burnish_app.page_list import PAGES, PANEL
from burnish_app.sidebar import StepButton
from burnish_app.state.preferences import Preferences, studio_dir
from burnish_app.state.workbench import Workbench
from burnish_app.window import Window
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.serve.replies import ExportJob


@pytest.mark.full
def test_every_page_can_be_shown_and_says_its_question(window):
    for entry in PAGES:
        window.go_to(entry.key)
        page = window.page(entry.key)
        assert window.shown_key == entry.key
        assert page.isVisible()
        assert (page.key, page.title) == (entry.key, entry.title)
        assert page.question


@pytest.mark.full
def test_pages_are_made_while_nothing_is_done_and_bear_what_changes_on_others(qtbot, window, answers, tmp_path):
    answers.result("runs", runs=RUNS)
    window._preparing.setInterval(1)
    qtbot.waitUntil(lambda: window._stack.count() == len(PAGES) - 1)  # the panel is beside it
    qtbot.waitUntil(lambda: not window._preparing.isActive())
    for entry in PAGES:
        assert (window._stack.indexOf(window.page(entry.key)) >= 0) == (entry.key != PANEL)
    run, lines = TRAIN_SCENES["finished"]
    bench = window.bench
    bench.set_model_path(str(tmp_path))
    bench.set_data_files([str(tmp_path / "data.jsonl")])
    bench.set_run(write_run(tmp_path / "run", run, lines).folder)
    bench.set_recipe(Recipe.model_validate({"train": {"max_steps": 3}}))
    bench.set_target(bench.target.model_copy(update={"kind": "phone", "ram_gib": 6.0}))
    bench.set_compared([run.folder for run in RUNS[:2]])
    window.runs_poller.updated.emit(RUNS)
    window.theme.set_mode("dark")
    window.theme.set_mode("system")
    for entry in PAGES:
        window.go_to(entry.key)
        qtbot.waitUntil(window.page(entry.key).isVisible)


def test_the_sidebar_has_seven_steps_and_below_them_runs_and_settings(window):
    buttons = window.sidebar.findChildren(StepButton)
    assert [one.text() for one in buttons] == [
        "Start", "Model", "Data", "Recipe", "Train", "Try it", "Export", "Runs", "Settings"
    ]  # fmt: skip
    assert [one.key for one in buttons if not one.has_status] == ["runs", "settings"]


def test_compare_sweep_and_duel_are_tabs_of_runs(qtbot, window):
    window.go_to("runs")
    for key in ("compare", "sweep", "duel", "runs"):
        qtbot.mouseClick(window.page(window.shown_key).tabs.tab(key), Qt.MouseButton.LeftButton)
        qtbot.waitUntil(lambda key=key: window.shown_key == key)
        assert window.sidebar.button("runs").isChecked()
        assert window.page(key).tabs.tab(key).isChecked()
    assert window.page("data").tabs is None


def test_no_control_gets_the_focus_that_nobody_moved_there(qtbot, window):
    """The focused control is hidden with its page, or disabled; Tab then begins at the page's first control."""
    window.go_to("settings")
    settings = window.page("settings")
    qtbot.keyClick(window, Qt.Key.Key_Tab)
    inner = next(one for one in focus_order(settings) if isinstance(one, QPushButton))
    inner.setFocus()
    inner.setEnabled(False)
    assert window.focusWidget() is settings
    inner.setEnabled(True)
    inner.setFocus()
    window.go_to("runs")
    runs = window.page("runs")
    assert window.focusWidget() is runs
    qtbot.keyClick(runs, Qt.Key.Key_Tab)
    assert window.focusWidget() is focus_order(runs)[0]


def test_a_tab_shows_that_its_page_works_or_needs_attention(qtbot, window):
    window.go_to("sweep")
    window.go_to("runs")
    tab = window.page("runs").tabs.tab("sweep")
    width = tab.sizeHint().width()
    window.page("sweep").set_status("busy")
    qtbot.waitUntil(lambda: tab.status == "busy")
    assert tab.sizeHint().width() > width
    assert tab.accessibleDescription()
    window.page("sweep").set_status("done")
    assert tab.sizeHint().width() == width
    assert not tab.accessibleDescription()


def test_the_arrow_keys_go_from_tab_to_tab_and_the_focus_with_them(qtbot, window):
    window.go_to("runs")
    window.page("runs").tabs.take_focus()
    for key in ("compare", "sweep"):
        qtbot.keyClick(window.focusWidget(), Qt.Key.Key_Right)
        qtbot.waitUntil(lambda key=key: window.shown_key == key and window.page(key).tabs.has_focus)
    qtbot.keyClick(window.focusWidget(), Qt.Key.Key_Left)
    qtbot.waitUntil(lambda: window.shown_key == "compare")


@pytest.mark.parametrize(("saved", "shown"), [("sweep", "sweep"), ("hardware", "start"), ("gone", "start")])
def test_a_window_opens_where_the_last_one_was_also_with_older_pages(qtbot, client, bench, theme, saved, shown):
    preferences = Preferences()
    preferences.page = saved
    made = Window(client, bench, preferences, theme)
    qtbot.addWidget(made)
    assert made.shown_key == shown
    assert made.sidebar.button("runs").isChecked() == (shown == "sweep")


class ShownWindows(QObject):
    """Notes every widget that is shown as a window of its own."""

    def __init__(self):
        super().__init__()
        self.names = []

    def eventFilter(self, receiver, event):  # noqa: N802 Qt names it
        if event.type() == QEvent.Type.Show and isinstance(receiver, QWidget) and receiver.isWindow():
            self.names.append(type(receiver).__name__)
        return False


@pytest.mark.full
def test_no_part_of_a_page_flashes_as_a_window_of_its_own(qtbot, qapp, window):
    shown = ShownWindows()
    qapp.installEventFilter(shown)
    try:
        for entry in PAGES:
            window.go_to(entry.key)
            qtbot.wait(50)
    finally:
        qapp.removeEventFilter(shown)
    assert shown.names == []
    assert window.isActiveWindow()


def test_keys_go_to_pages_and_press_the_primary_action(qtbot, window):
    qtbot.keyClick(window, Qt.Key.Key_2, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(lambda: window.shown_key == "model")
    pressed = []
    window.page("model").set_primary("Go", lambda: pressed.append(True))
    qtbot.waitUntil(window.page("model").primary.isVisible)
    qtbot.keyClick(window, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    assert pressed
    qtbot.keyClick(window, Qt.Key.Key_Comma, Qt.KeyboardModifier.ControlModifier)
    qtbot.waitUntil(lambda: window.shown_key == "settings")


def test_every_control_has_a_name_for_screen_readers(window):
    from PySide6.QtWidgets import QComboBox, QLineEdit, QPushButton, QTableView

    nameless = []
    for key in ("data", "train", "export", "runs", "settings"):
        for kind in (QPushButton, QComboBox, QLineEdit, QTableView):
            nameless += [
                (key, control)
                for control in window.page(key).findChildren(kind)
                if not control.accessibleName() and not isinstance(control.parent(), QAbstractSpinBox)
            ]
    assert nameless == []


def button(page, text):
    return next(one for one in page.shown_banner.findChildren(QPushButton) if one.text() == text)


def test_what_cannot_be_opened_is_said_and_can_be_tried_again(qtbot, client, burnish_home, theme, tmp_path):
    lost = tmp_path / "lost"
    file = studio_dir() / "workbench.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"run": str(lost)}))
    preferences = Preferences()
    preferences.page = "settings"
    made = Window(client, Workbench(), preferences, theme)
    qtbot.addWidget(made)
    made.show()
    made.begin()
    page = made.page("settings")
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    assert any(str(lost) in label.text() for label in page.shown_banner.findChildren(QLabel))
    again = "Try again"
    button(page, again).click()
    assert page.shown_banner is not None
    lost.mkdir()
    button(page, again).click()
    assert page.shown_banner is None
    assert made.bench.run == str(lost)


@pytest.mark.full
def test_page_and_size_are_remembered(qtbot, client, bench, theme):
    first = Window(client, bench, Preferences(), theme)
    qtbot.addWidget(first)
    first.resize(780, 640)  # the screen of the offscreen platform has 800 x 800
    first.show()
    first.go_to("settings")
    first.close()
    again = Window(client, bench, Preferences(), theme)
    qtbot.addWidget(again)
    assert again.shown_key == "settings"
    assert (again.width(), again.height()) == (780, 640)


@pytest.mark.full
def test_a_run_that_goes_on_is_said(qtbot, window, answers):
    answers.result("runs", runs=[summary("running")])
    window.go_to("runs")
    window.page("runs").refresh_runs.emit()
    qtbot.waitUntil(lambda: "continues when this window closes" in window.sidebar.run_note.text())
    assert window.windowTitle().startswith("40 % - support-desk")
    answers.result("runs", runs=[summary("finished")])
    qtbot.waitUntil(lambda: window.sidebar.run_note.text() == "")


@pytest.mark.full
def test_an_export_of_another_run_stays_in_sight_and_leads_to_it(qtbot, window, answers, tmp_path):
    job = ExportJob(status="running", share=0.36)
    other = summary("finished", 600, folder=str(tmp_path), name="other").model_copy(update={"export": job})
    answers.result("runs", runs=[summary("finished"), other])
    window.go_to("runs")
    window.page("runs").refresh_runs.emit()
    shown = window.sidebar.activity
    qtbot.waitUntil(shown.isVisible)
    assert shown.accessibleDescription().startswith("Exporting other, 36 %")
    assert window.windowTitle().startswith("36 % - other")
    shown.click()
    next(iter(window.activity.panel.rows.values())).open_button.click()
    qtbot.waitUntil(lambda: window.shown_key == "export")
    assert window.bench.run == str(tmp_path)


@pytest.mark.full
def test_the_first_window_fits_the_screen_with_its_frame(qapp, client, bench, theme, qtbot):
    made = Window(client, bench, Preferences(), theme)
    qtbot.addWidget(made)
    available = qapp.primaryScreen().availableSize()
    assert made.height() < available.height()
    assert made.width() < available.width()


@pytest.mark.full
def test_tab_goes_through_the_page_as_it_is_seen(qtbot, window, answers):
    """Banners and late rows too, whenever they were made; from the sidebar to the foot and around."""
    window.go_to("settings")
    page = window.page("settings")
    page.banner("info", "Late.", "", [("Do it", lambda: None)])
    qtbot.wait(20)
    window.sidebar.button("settings").setFocus()
    seen = []
    for _ in range(12):
        qtbot.keyClick(window, Qt.Key.Key_Tab)
        seen.append(window.focusWidget())
    on_page = [widget for widget in seen if page.isAncestorOf(widget)]
    places = [widget.mapTo(page, QPoint(0, 0)).y() for widget in on_page[: on_page.index(on_page[-1]) + 1]]
    first = places[: places.index(min(places), 1) if places.count(min(places)) > 1 else len(places)]
    assert on_page[0].text() == "Do it"
    assert first == sorted(first)
    assert not [widget for widget in seen if isinstance(widget, QScrollArea)]


@pytest.mark.full
def test_text_size_and_motion_are_chosen_in_settings_and_kept(qtbot, window, theme):
    page = window.page("settings")
    window.go_to("settings")
    try:
        page.text.setCurrentIndex(page.text.findData(150))
        page.text.activated.emit(page.text.currentIndex())
        assert (theme.text_percent, Preferences().text_percent) == (150, 150)
        page.motion.button("reduced").click()
        assert Preferences().motion == "reduced"
        assert is_reduced()
        page.motion.button("full").click()
        assert not is_reduced()
        for entry in PAGES:  # nothing is pushed out of a window that is wide enough
            window.resize(1280, 800)
            window.go_to(entry.key)
            qtbot.wait(10)
            assert window.page(entry.key).findChild(QScrollArea).horizontalScrollBar().maximum() == 0, entry.key
    finally:
        theme.set_text_percent(100)
        set_motion("system")


@pytest.mark.full
def test_a_run_outside_the_usual_folder_is_asked_for_too(qtbot, window, answers, tmp_path):
    answers.result("runs", runs=[])
    window.bench.set_run(str(tmp_path))
    window.go_to("runs")
    qtbot.waitUntil(lambda: any(asked["folders"] == [str(tmp_path)] for asked in answers.asked("runs")))


def test_an_engine_that_does_not_start_offers_its_log(window, monkeypatch):
    opened = []
    monkeypatch.setattr("burnish_app.sidebar.QDesktopServices.openUrl", lambda url: opened.append(url.toLocalFile()))
    button = window.sidebar.log_button
    window._engine_state("restarting")
    assert button.isHidden()
    window._engine_state("down")
    assert not button.isHidden()
    button.click()
    assert [Path(path) for path in opened] == [window.client.log_file()]
    window._engine_state("ready")
    assert button.isHidden()


def test_an_engine_that_dies_is_said_and_comes_back(qtbot, window, answers):
    qtbot.waitUntil(lambda: window.client.state == "ready")
    answers.set("runs", {"exit": 3})
    runs = window.page("runs")

    def said():
        runs.refresh_runs.emit()  # again and again: while the first question is open no other is asked
        return "started again" in window.sidebar.engine_note.text()

    qtbot.waitUntil(said)
    answers.set("runs", {"type": "result", "runs": []})
    qtbot.waitUntil(lambda: window.sidebar.engine_note.text() == "")


@pytest.mark.full
def test_light_and_dark_reach_every_widget(qtbot, window, theme):
    settings = window.page("settings")
    window.go_to("data")  # has an edit
    window.go_to("settings")
    for mode, colors in (("dark", DARK), ("light", LIGHT)):
        settings.mode.button(mode).click()
        assert theme.colors is colors
        assert Preferences().theme == mode
        painted = [
            widget
            for widget in window.findChildren(QWidget)
            if type(widget).__module__.startswith("burnish_app")
            and not isinstance(widget, QPushButton | QHeaderView | QScrollArea)
        ]  # these have palettes of their own: the style sheet writes their fill into it
        assert len(painted) > 20
        assert [widget for widget in painted if colors_of(widget) is not colors] == []
        inks = {edit.palette().placeholderText().color().name() for edit in window.findChildren(QLineEdit)}
        assert inks == {colors.muted}
    theme.set_mode("system")


_SHOWN = """
import json, sys
from PySide6.QtWidgets import QApplication
def tell(window, **more):
    objects = len(window.findChildren(object))
    print(json.dumps({"modules": sorted(sys.modules), "objects": objects, "visible": window.isVisible(), **more}))
"""
_STUDIO = f"""{_SHOWN}
import gc
from PySide6.QtCore import QTimer
import burnish_app.__main__ as start, burnish_app.window as window
def begin(self):
    tell(self, pages=len(self._pages), collects=gc.isenabled())
    QTimer.singleShot(0, self, self.close)
window.Window.begin = begin
sys.exit(start.main())
"""
_BARE = f"""{_SHOWN}
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QMainWindow
app = QApplication([])
window = QMainWindow()
window.show()
QTimer.singleShot(0, window, lambda: (tell(window), app.quit()))
app.exec()
"""


def shown_window(code):
    """Show a window in a process of its own and return what it tells of itself then, and what it says to the user."""
    environment = {**os.environ, "BURNISH_TRACE_START": "1", "QT_QPA_PLATFORM": "offscreen"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


_BROKEN = """
import sys
import burnish_app.__main__ as start, burnish_app.launch.single_instance as launch
def broken(self, paths):
    raise ValueError("no lock")
launch.SingleInstance.hand_over = broken
sys.exit(start.main())
"""


@pytest.mark.full
def test_a_bug_before_the_window_is_shown_is_reported_too(burnish_home):
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    done = subprocess.run(
        [sys.executable, "-c", _BROKEN], env=environment, capture_output=True, timeout=300, check=False
    )
    assert done.returncode == 1
    reports = list((burnish_home / "reports").glob("*.txt"))
    assert ["no lock" in report.read_text(encoding="utf-8") for report in reports] == [True]


def test_the_studio_shows_itself_before_torch_charts_schemas_and_pages_are_loaded(burnish_home):
    told, said = shown_window(_STUDIO)
    late = {"torch", "transformers", "triton", "pyqtgraph", "numpy", "pydantic", "tomlkit"}
    assert late & set(told["modules"]) == set()
    assert (told["visible"], told["collects"], told["pages"]) == (True, False, 0)
    assert "window shown after" in said


def test_what_is_loaded_and_made_before_the_window_is_shown_stays_small(burnish_home):
    """The start takes as long as there is to load: it is bounded by what a bare PySide6 window loads."""
    studio, bare = shown_window(_STUDIO)[0], shown_window(_BARE)[0]
    assert len(studio["modules"]) < 2 * len(bare["modules"])
    assert studio["objects"] < 150, "sidebar, an empty stack, and timers"


@pytest.mark.full
def test_what_the_system_hands_over_is_shown_where_it_belongs(qtbot, window, tmp_path):
    run, lines = TRAIN_SCENES["finished"]
    folder = Path(write_run(tmp_path / "run", run, lines).folder)
    (folder / "recipe.toml").touch()
    data, recipe = tmp_path / "data.jsonl", tmp_path / "mine.toml"
    data.write_text("{}\n")
    recipe.write_text("[train]\nmax_steps = 3\n")
    window.come_forward([str(folder / "events.jsonl")])
    qtbot.waitUntil(lambda: window.shown_key == "train")
    assert window.bench.run == str(folder)
    window.come_forward([str(recipe)])
    assert window.shown_key == "recipe"
    assert window.bench.recipe.train.max_steps == 3
    window.showMinimized()
    window.come_forward([])
    assert not window.isMinimized()
    window.come_forward([str(data)])
    assert window.shown_key == "data"


@pytest.mark.full
def test_paths_given_at_the_start_wait_for_the_pages(qtbot, client, qapp, tmp_path):
    (tmp_path / "data.jsonl").write_text("{}\n")
    window = Window(None, None, Preferences(tmp_path / "window.ini"), Theme(qapp, "light"))
    qtbot.addWidget(window)
    window.open_paths([str(tmp_path / "data.jsonl")])
    bench = Workbench()
    window._fill(client, bench)
    qtbot.waitUntil(lambda: window.shown_key == "data")
    qtbot.waitUntil(lambda: bench.data_files == [str(tmp_path / "data.jsonl")])
