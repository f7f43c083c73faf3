"""The window: the sidebar, the page that is shown, what is dropped, and notes about runs and the engine."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QSize, Qt, QTimer, Signal
from PySide6.QtGui import (
    QCloseEvent,
    QGuiApplication,
    QKeySequence,
    QResizeEvent,
    QShortcut,
)
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QMainWindow, QStackedWidget, QWidget

from burnish_app.engine_setup.engine_command import sets_engine_up
from burnish_app.focus_order import move_focus
from burnish_app.guide_help import GuideHelp
from burnish_app.look.icons import icon
from burnish_app.look.language import tr
from burnish_app.look.motion import fade_in
from burnish_app.look.theme import Theme
from burnish_app.page_list import (
    NUMBERED,
    PAGES,
    PANEL,
    PageEntry,
    PageImports,
    first_status,
    row_of,
    shortcut_of,
    tabs_of,
)
from burnish_app.sidebar import Sidebar
from burnish_app.state.preferences import Preferences
from burnish_app.widgets.basic.drop import DATA_FILTER, DropOverlay, classify_drop
from burnish_app.wording.activity import activities_of, bench_activity

if TYPE_CHECKING:  # the window is shown before these, and pydantic with them, are loaded
    from burnish_app.activity_watch import ActivityWatch
    from burnish_app.closing import Closing
    from burnish_app.engine.engine_client import EngineClient
    from burnish_app.engine.runs_poller import RunsPoller
    from burnish_app.hardware_watch import HardwareWatch
    from burnish_app.notifier import Notifier
    from burnish_app.state.workbench import Workbench
    from burnish_app.widgets.page.banner import BannerAction
    from burnish_app.widgets.page.page import Page
    from burnish_engine.contract.run.duels import DuelFacts
    from burnish_engine.contract.serve.messages import Failure
    from burnish_engine.contract.serve.replies import RunSummary

_WATCH_RUNS_MS, _WATCH_RUNS_CLOSELY_MS = 10_000, 1_500
_PREPARE_MS = 60
_FIRST_SIZE_PX, _LEAST_SIZE_PX = (1280, 800), (720, 480)
_FRAME_PX = (8, 40)  # room for the edges and the title bar that a window manager adds
_TITLE = "Burnish"
_ENGINE_NOTES = {
    "restarting": tr("The engine stopped and is being started again."),
    "down": tr("The engine does not start. It is tried again every few seconds."),
}


class Window(QMainWindow):
    """The main window of the studio.

    It is shown with its sidebar alone; what the pages need is loaded in a thread meanwhile.

    Args:
        client: connection to the engine, which the window starts and ends; None: the window makes one in `begin`.
        bench: workbench with what the person works on; None: the saved one, read in `begin`.
        preferences: settings of the window.
        theme: theme of the application.

    Attributes:
        grown: signal without arguments, emitted after the imports and after all pages were made: many new objects.
    """

    grown = Signal()

    client: EngineClient
    bench: Workbench
    hardware: HardwareWatch
    activity: ActivityWatch
    closing: Closing
    help: GuideHelp
    notifier: Notifier
    _runs_poller: RunsPoller

    def __init__(
        self, client: EngineClient | None, bench: Workbench | None, preferences: Preferences, theme: Theme
    ) -> None:
        super().__init__()
        self._is_filled = False
        self.preferences, self.theme = preferences, theme
        self._pages: dict[str, Page] = {}
        self._shown = ""
        self._runs: list[RunSummary] = []
        self._duels: list[DuelFacts] = []
        self.setWindowTitle(_TITLE)
        self.setWindowIcon(icon("burnish", theme.colors.accent, 64))
        self.sidebar = Sidebar(
            [_named(entry) for entry in PAGES if entry.place == "step"],
            [_named(entry) for entry in PAGES if entry.place == "other"],
        )
        self._stack = QStackedWidget()
        self._middle = QWidget()
        line = QHBoxLayout(self._middle)
        line.setContentsMargins(0, 0, 0, 0)
        line.setSpacing(0)
        line.addWidget(self.sidebar)
        line.addWidget(self._stack, 1)
        self.setCentralWidget(self._middle)
        self._preparing = QTimer(self, interval=_PREPARE_MS)
        self._preparing.setObjectName("prepare")
        self._preparing.timeout.connect(self._prepare_one)
        self._awaited = ""  # page to show once it is imported
        self._given: list[str] = []  # paths to open once there are pages
        self._imports = PageImports(PAGES, self)
        self._imports.core_imported.connect(self._begin_work)
        self._imports.page_imported.connect(self._page_imported)
        self._imports.ended.connect(self._all_imported)
        self.setMinimumSize(*_LEAST_SIZE_PX)
        self.resize(self._first_size())
        if preferences.geometry is not None:
            self.restoreGeometry(preferences.geometry)
        self.sidebar.show_chosen(row_of(self._first_key()))
        if client is not None and bench is not None:
            self._fill(client, bench)

    def _first_key(self) -> str:
        known = {entry.key for entry in PAGES} - {PANEL}
        return self.preferences.page if self.preferences.page in known else PAGES[0].key

    def _fill(self, client: EngineClient, bench: Workbench) -> None:
        """Put engine, workbench and the first page into the window."""
        from burnish_app.activity_watch import ActivityWatch
        from burnish_app.closing import Closing
        from burnish_app.engine.runs_poller import RunsPoller
        from burnish_app.hardware_watch import HardwareWatch
        from burnish_app.notifier import Notifier

        self.sidebar.add_hardware()
        self.hardware = HardwareWatch(client, self.sidebar, self._middle, lambda: self.page(PANEL))  # type: ignore[arg-type,return-value]
        self.activity = ActivityWatch(client, self.sidebar, self._middle)
        self.activity.board.changed.connect(self._activities_changed)
        self.sidebar.activity.clicked.connect(self.hardware.close_panel)
        self.sidebar.hardware.clicked.connect(self.activity.close_panel)
        self.activity.opened.connect(lambda one: self._show_activity(one.page, one.folder))
        self.activity.failed.connect(self._failed)
        self.closing = Closing(self, client, self.preferences, self.activity, self._failed)
        self.notifier = Notifier(self, self.preferences)
        self.notifier.chosen.connect(lambda news: self._show_activity(news.page, news.folder))
        self.client, self.bench = client, bench
        self._is_filled = True
        self._drop_overlay = DropOverlay(self, lambda: bool(bench.data_files))
        self._drop_overlay.dropped.connect(lambda paths, instead: self.take(paths, instead=instead))
        self.sidebar.chosen.connect(self.visit)
        self._make_shortcuts()
        for entry in PAGES:
            if entry.place == "step":
                self.sidebar.button(entry.key).set_status(first_status(entry.key, bench))
        client.state_changed.connect(self._engine_state)
        self.runs_poller = RunsPoller(
            client, _WATCH_RUNS_MS, self, extra_folders=lambda: [bench.run] if bench.run else []
        )
        self.runs_poller.updated.connect(self._runs_updated)
        self.runs_poller.benches_updated.connect(
            lambda benches: self.activity.board.put("benches", [bench_activity(one) for one in benches])
        )
        self.runs_poller.failed.connect(lambda failure: self.sidebar.set_engine_note(failure.what))
        self.go_to(self._first_key())
        if self._given:
            QTimer.singleShot(0, self, lambda: self.open_paths([]))

    def _tell_unopened(self) -> None:
        """Say what of the last time cannot be opened, on the page that is shown."""
        from burnish_app.wording.causes import unopened_text, unread_text

        last, page = self.bench.last, self.page(self.shown_key)
        if last.unread:
            page.banner("warning", *unread_text(last.unread, last.kept_as))
        elif last.unopened:
            actions: list[BannerAction] = [(tr("Try again"), self._open_again)]
            if last.run:
                actions.append((tr("Forget the run"), self._forget_run))
            page.banner("warning", *unopened_text(last.unopened), actions)

    def _open_again(self) -> None:
        self.page(self.shown_key).clear_banner()
        self.bench.look_again()
        self._tell_unopened()

    def _forget_run(self) -> None:
        self.page(self.shown_key).clear_banner()
        self.bench.forget_lost_run()

    @staticmethod
    def _first_size() -> QSize:
        """Return the size at the first start: as wanted, but with its frame within the screen."""
        wanted, screen = QSize(*_FIRST_SIZE_PX), QGuiApplication.primaryScreen()
        return wanted.boundedTo(screen.availableSize() - QSize(*_FRAME_PX)) if screen is not None else wanted

    def begin(self) -> None:
        """Load what the pages need, start the engine and the polling of runs; after the window is shown."""
        self._imports.start(self._first_key())
        if self._is_filled:
            self._start_engine()

    def _begin_work(self) -> None:
        if self._is_filled or not self.isVisible():
            return  # filled from the start, or closed meanwhile
        from burnish_app.engine.engine_client import EngineClient
        from burnish_app.state.workbench import Workbench

        self._fill(EngineClient(), Workbench())
        self._start_engine()

    def _start_engine(self) -> None:
        if sets_engine_up():
            self._watch_engine()
        self.client.start()
        self.runs_poller.start()
        self.hardware.set_seen(not self.isMinimized())

    def _watch_engine(self) -> None:
        """Ask to set the engine up where there is none, and start the one that is switched to."""
        from burnish_app.engine_setup.engine_work import EngineWork
        from burnish_app.widgets.engine.first_start import FirstStart

        work = EngineWork.beside(self.client)
        work.switched.connect(self.client.renew)
        self.client.closed.connect(work.close)
        self.activity.board.changed.connect(lambda: work.set_has_runs(bool(self.activity.board.activities)))
        if not work.facts.in_use:
            FirstStart(work, self).show()
            work.find()

    def page(self, key: str) -> Page:
        """Return a page, which is made on the first call."""
        if key not in self._pages:
            self._imports.wait_for(key)
            entry = next(entry for entry in PAGES if entry.key == key)
            page: Page = getattr(import_module(entry.module), entry.class_name)(self.client, self.bench)
            page.go_to.connect(self.visit)
            page.refresh_runs.connect(self.runs_poller.poll)
            page.help_asked.connect(self.help.open)
            page.activities_changed.connect(lambda activities: self.activity.board.put(key, activities))
            page.take_preferences(self.preferences, self.theme)
            if key == "duel":
                page.duels_changed.connect(self._duels_updated)  # type: ignore[attr-defined]
            self._name_page(page, entry)
            self._pages[key] = page
        return self._pages[key]

    def _name_page(self, page: Page, entry: PageEntry) -> None:
        """Connect a page with what leads to it: a step's button, which shows its status too, or tabs."""
        if tabs := tabs_of(entry.key):
            page.set_tabs([_named(tab) for tab in tabs])
            page.status_changed.connect(lambda _status: self._show_statuses_on_tabs())
            QTimer.singleShot(0, self, self._show_statuses_on_tabs)  # once the page is one of the window's
        elif entry.place == "panel":
            self._show_status_on("start", page)
        elif entry.place == "step" and entry.key != "start":
            self._show_status_on(entry.key, page)

    def _show_statuses_on_tabs(self) -> None:
        """Show the status of each page that has a tab on the tabs of all of them."""
        tabbed = [(page, page.tabs) for page in self._pages.values() if page.tabs is not None]
        for _page, tabs in tabbed:
            for page, _tabs in tabbed:
                tabs.tab(page.key).set_status(page.status)

    def _show_status_on(self, step: str, page: Page) -> None:
        button = self.sidebar.button(step)
        page.status_changed.connect(button.set_status)
        button.set_status(page.status)

    @property
    def shown_key(self) -> str:
        """The key of the page that is shown: the one in front, where the panel lies over another."""
        return PANEL if self._is_filled and self.hardware.is_open else self._shown

    def visit(self, key: str) -> None:
        """Show a page. A page that is not made yet is made now and shown in a later handler: neither takes long.

        One that is not imported yet is shown as soon as it is.
        """
        if key in self._pages:
            self.go_to(key)
            return
        if key != PANEL:
            self.sidebar.show_chosen(row_of(key))
        if not self._imports.is_ready(key):
            self._awaited = key
            self._imports.want(key)
            return
        self.page(key)
        QTimer.singleShot(0, self, lambda: self.go_to(key))

    def go_to(self, key: str) -> None:
        """Show a page at once, and make it if necessary."""
        self._awaited = ""
        if key == PANEL:
            self.activity.close_panel()
            self.hardware.open_panel()
            return
        self.hardware.close_panel()
        self.sidebar.show_chosen(row_of(key))
        if key == self._shown:
            return
        page = self.page(key)
        goes_on_tabs = False
        if self._shown:
            former = self._pages[self._shown]
            goes_on_tabs = former.tabs is not None and former.tabs.has_focus
            former.leave()
        self._shown = key
        self.preferences.page = key
        if self._stack.indexOf(page) < 0:
            self._stack.addWidget(page)
        self._stack.setCurrentWidget(page)
        fade_in(page)
        self.runs_poller.set_interval(_WATCH_RUNS_CLOSELY_MS if page.wants_runs else _WATCH_RUNS_MS)
        page.shown()
        if goes_on_tabs and page.tabs is not None:
            page.tabs.take_focus()

    def take(self, paths: list[str], *, instead: bool = False) -> None:
        """Hand dropped files or folders to the page that takes them, or show why none does.

        Args:
            paths: absolute paths; an empty text stands for something that is not a local file.
            instead: whether data takes the place of the data that is there.
        """
        drop = classify_drop(paths)
        if drop.page:
            self.go_to(drop.page)
            self.page(drop.page).take_drop(drop.paths, instead=instead)
        if drop.what:
            self.page(self.shown_key).banner("warning", drop.what, drop.remedy, passing=True)

    def open_paths(self, paths: list[str]) -> None:
        """Open what the system handed over: a run is shown, and all else is taken as if it were dropped.

        Args:
            paths: absolute paths; they wait while there are no pages yet.
        """
        self._given += paths
        if not self._is_filled or not self._given:
            return
        given, self._given = self._given, []
        from burnish_app.state.run_folder import opened_run  # loads pydantic, which the start does without

        run = opened_run(given)
        if run:
            self._show_activity("train", run)
        else:
            self.take(given)

    def come_forward(self, paths: list[str]) -> None:
        """Bring the window to the front, and open what another start of the studio handed over."""
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()
        self.open_paths(paths)

    def focusNextPrevChild(self, forward: bool) -> bool:
        """Move the focus to what is seen next, and scroll to it.

        Qt calls this too where what has the focus goes or is disabled. Nobody pressed Tab then, so that no control is
        to have a ring: the page has the focus, from which Tab leads to its first control.
        """
        is_panel, now = self._is_filled and self.hardware.is_open, self.focusWidget()
        if now is not None and self._shown and not (now.isVisible() and now.isEnabled()):
            shown = self.hardware.panel if is_panel else self._pages[self._shown]
            shown.setFocus(Qt.FocusReason.OtherFocusReason)
            return True
        root = self.hardware.panel if is_panel else self._middle
        return move_focus(root, self.focusWidget(), forward=forward) or super().focusNextPrevChild(forward)

    def changeEvent(self, event: QEvent) -> None:
        """Redraw the window's icon when the palette changes."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.PaletteChange:
            self.setWindowIcon(icon("burnish", self.theme.colors.accent, 64))
        elif event.type() == QEvent.Type.WindowStateChange and self._is_filled and self.client.pid is not None:
            self.hardware.set_seen(not self.isMinimized())

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Keep the panel of the hardware in its place."""
        super().resizeEvent(event)
        if self._is_filled:
            self.hardware.place_panel()
            self.activity.place_panel()

    def closeEvent(self, event: QCloseEvent) -> None:
        """Save preferences and workbench and end the server; runs continue. While something is running, ask first."""
        if self._is_filled and self.closing.has_to_ask():
            event.ignore()
            self.closing.ask()
            return
        self.preferences.geometry = self.saveGeometry()
        self._awaited = ""
        if not self._is_filled:
            self.hide()
            self._imports.close()
            super().closeEvent(event)
            return
        self.hardware.close_panel()
        self.bench.save()
        self.runs_poller.stop()
        self.hardware.monitor.stop()
        self.notifier.close()
        self._preparing.stop()
        if self._shown:
            self._pages[self._shown].hidden()
        for page in self._pages.values():
            page.closing()
        self.hide()
        self._imports.close()
        self.client.close()
        super().closeEvent(event)

    def _page_imported(self, key: str) -> None:
        if key == self._awaited:
            self.visit(key)

    def _all_imported(self) -> None:
        self._preparing.start()
        self.grown.emit()
        if self._is_filled:
            self._tell_unopened()

    def _prepare_one(self) -> None:
        """Make one page that was not visited yet, or add a made page to the stack: one per call, so none takes long."""
        missing = [entry.key for entry in PAGES if entry.key not in self._pages]
        loose = [page for key, page in self._pages.items() if key != PANEL and self._stack.indexOf(page) < 0]
        if loose:
            self._stack.addWidget(loose[0])
        elif missing:
            self.page(missing[0])
        else:
            self._preparing.stop()
            self.grown.emit()

    def _make_shortcuts(self) -> None:
        self.help = GuideHelp(self, lambda: self.shown_key)
        for entry in PAGES[:NUMBERED]:
            QShortcut(QKeySequence(shortcut_of(entry.key)), self, lambda key=entry.key: self.visit(key))
        QShortcut(QKeySequence("Ctrl+,"), self, lambda: self.visit("settings"))
        QShortcut(QKeySequence(QKeySequence.StandardKey.Open), self, self._browse)
        for keys in ("Ctrl+Return", "Ctrl+Enter"):
            QShortcut(QKeySequence(keys), self, self._press_primary)

    def _failed(self, failure: Failure) -> None:
        self.page(self.shown_key).failed(failure)

    def _press_primary(self) -> None:
        button = self.page(self.shown_key).primary
        if button is not None and button.isVisible():
            button.click()

    def _browse(self) -> None:
        dialog = QFileDialog(self, tr("Add data"), "", DATA_FILTER)
        dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.filesSelected.connect(self.take)
        dialog.open()

    def _show_activity(self, page: str, folder: str) -> None:
        if page == "duel":
            self.page(page).show_duel(folder)  # type: ignore[attr-defined]
        elif page in ("train", "export", "try_out"):
            self.bench.set_run(folder)
        self.visit(page)

    def _engine_state(self, state: str) -> None:
        log_file = str(self.client.log_file()) if state == "down" else ""
        self.sidebar.set_engine_note(_ENGINE_NOTES.get(state, ""), log_file)

    def _runs_updated(self, runs: list[RunSummary]) -> None:
        self._runs = runs
        self.hardware.runs_changed(runs)
        self.notifier.runs_changed(runs)
        self.activity.board.put("runs", activities_of(runs, self._duels))
        self.sidebar.set_engine_note("")
        for page in self._pages.values():
            page.runs_changed(runs)

    def _duels_updated(self, duels: list[DuelFacts]) -> None:
        self._duels = duels
        self.notifier.duels_changed(duels)
        self.activity.board.put("runs", activities_of(self._runs, duels))

    def _activities_changed(self) -> None:
        """Show what is running in the window's title."""
        activities = self.activity.board.activities
        shown = next((one for one in activities if one.folder == self.bench.run), next(iter(activities), None))
        self.setWindowTitle(f"{shown.title} - {_TITLE}" if shown else _TITLE)


def _named(entry: PageEntry) -> tuple[str, str, str]:
    """Return key, name and shortcut of a page."""
    return entry.key, entry.title, shortcut_of(entry.key)
