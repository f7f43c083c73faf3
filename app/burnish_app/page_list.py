"""The list of the window's pages, the status of each before it is made, and their imports.

Pages are imported in a thread while the window is shown already. PySide makes the Python type of a Qt class when it is
used for the first time. Where two threads use one for the first time at once, it is made twice and the process dies of
a segmentation fault (seen with PySide 6.11.3). An import of pyqtgraph uses all types there are. So the window's thread
makes all of them first, a few in each event; then one thread imports at a time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from threading import Event, RLock, Thread
from typing import TYPE_CHECKING, Literal, NamedTuple

from PySide6.QtCore import QObject, QTimer, Signal, SignalInstance

from burnish_app.look.language import tr
from burnish_app.state.step_status import StepStatus

if TYPE_CHECKING:  # the window is shown before it, and pydantic with it, is loaded
    from burnish_app.state.workbench import Workbench

IMPORTING = RLock()
"""Held by the thread that imports: whatever imports parts of the window later on takes it."""
_SLICE_S, _CLOSE_S = 0.008, 5.0
_CORE = (
    "burnish_app.activity_watch",
    "burnish_app.closing",
    "burnish_app.engine.engine_client",
    "burnish_app.engine.runs_poller",
    "burnish_app.hardware_watch",
    "burnish_app.notifier",
    "burnish_app.state.workbench",
    "burnish_app.widgets.hardware.strip",
)


PagePlace = Literal["step", "tab", "panel", "other"]
"""Place where a page is reached: its step in the sidebar, its tab on Runs, its panel, or its own row in the sidebar."""


class PageEntry(NamedTuple):
    """The module and class of a page. The module is imported on the first visit, which keeps the start fast."""

    key: str
    title: str
    module: str
    class_name: str
    place: PagePlace = "step"


PAGES = (
    PageEntry("start", tr("Start"), "burnish_app.pages.start", "StartPage"),
    PageEntry("hardware", tr("Hardware"), "burnish_app.pages.hardware", "HardwarePage", "panel"),
    PageEntry("model", tr("Model"), "burnish_app.pages.model", "ModelPage"),
    PageEntry("data", tr("Data"), "burnish_app.pages.data", "DataPage"),
    PageEntry("recipe", tr("Recipe"), "burnish_app.pages.recipe", "RecipePage"),
    PageEntry("train", tr("Train"), "burnish_app.pages.train", "TrainPage"),
    PageEntry("try_out", tr("Try it"), "burnish_app.pages.try_out", "TryOutPage"),
    PageEntry("export", tr("Export"), "burnish_app.pages.export", "ExportPage"),
    PageEntry("runs", tr("Runs"), "burnish_app.pages.runs", "RunsPage", "other"),
    PageEntry("compare", tr("Compare"), "burnish_app.pages.compare", "ComparePage", "tab"),
    PageEntry("sweep", tr("Sweep"), "burnish_app.pages.sweep", "SweepPage", "tab"),
    PageEntry("duel", tr("Duel"), "burnish_app.pages.duel", "DuelPage", "tab"),
    PageEntry("settings", tr("Settings"), "burnish_app.pages.settings", "SettingsPage", "other"),
)
"""All pages, in the order of their shortcuts: Ctrl and 0 shows the first."""
PANEL = "hardware"
"""Key of the page that lies over the others."""
TABBED = "runs"
"""Key of the page that has the tabs."""
NUMBERED = 10
"""Number of pages that Ctrl and a digit show."""


def row_of(key: str) -> str:
    """Return the key of the page whose row in the sidebar stands for a page that is not the panel."""
    return next(TABBED if entry.place == "tab" else key for entry in PAGES if entry.key == key)


def tabs_of(key: str) -> list[PageEntry]:
    """List the pages that stand as tabs beside a page, itself among them; empty: it has none."""
    tabs = [entry for entry in PAGES if entry.place == "tab" or entry.key == TABBED]
    return tabs if key in [entry.key for entry in tabs] else []


def shortcut_of(key: str) -> str:
    """Return the shortcut that shows a page; empty: it has none with a digit."""
    number = [entry.key for entry in PAGES].index(key)
    return f"Ctrl+{number}" if number < NUMBERED else ""


def first_status(key: str, bench: Workbench) -> StepStatus:
    """Return the status of a step before its page was ever made, from the saved workbench."""
    done = {
        "model": bench.model is not None,
        "data": bench.dataset is not None,
        "recipe": bench.suggestion is not None,
    }
    if key in done:
        return "done" if done[key] else "empty"
    return "ready" if key in ("train", "try_out", "export") and bench.run else "empty"


class PageImports(QObject):
    """Imports what the window needs, then its pages, the first and the wanted ones before others.

    Args:
        pages: all pages.
        parent: parent in Qt's object tree.

    Attributes:
        core_imported: signal without arguments, emitted when the window can be filled and its first page be made.
        page_imported: signal with the key of a page that can be made.
        ended: signal without arguments, emitted when all pages can be made.
    """

    core_imported = Signal()
    page_imported = Signal(str)
    ended = Signal()

    def __init__(self, pages: Sequence[PageEntry], parent: QObject) -> None:
        super().__init__(parent)
        self._modules = {entry.key: entry.module for entry in pages}
        self._ready = {entry.key: Event() for entry in pages}
        self._wanted: list[str] = []
        self._types: Iterator[None] = iter(())
        self._thread: Thread | None = None
        self._closed = False
        self._timer = QTimer(self, interval=0)
        self._timer.timeout.connect(self._make_some_types)

    def start(self, first: str) -> None:
        """Begin to import.

        Args:
            first: key of the page that is needed first.
        """
        self._wanted = [first]
        self._types = lazy_types()
        self._timer.start()

    def is_ready(self, key: str) -> bool:
        """Whether a page can be made without waiting: it is imported, or the imports have not been started."""
        return self._ready[key].is_set() or not (self._timer.isActive() or self._thread is not None)

    def want(self, key: str) -> None:
        """Import a page before the others."""
        self._wanted.append(key)

    def wait_for(self, key: str) -> None:
        """Wait until a page can be made."""
        if self.is_ready(key):
            return
        self.want(key)
        if self._timer.isActive():
            for _ in self._types:
                pass
            self._begin_thread()
        self._ready[key].wait()

    def close(self, wait_s: float = _CLOSE_S) -> None:
        """Import nothing more and send no more signals.

        Args:
            wait_s: longest time to wait for the import that is running, seconds. One that hangs ends with the process.
        """
        self._closed = True
        self._timer.stop()
        if self._thread is not None:
            self._thread.join(wait_s)

    def _make_some_types(self) -> None:
        until = time.perf_counter() + _SLICE_S
        for _ in self._types:
            if time.perf_counter() > until:
                return
        self._begin_thread()

    def _begin_thread(self) -> None:
        self._timer.stop()
        self._thread = Thread(target=self._work, name="import-pages", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            for module in (*_CORE, self._modules[self._wanted[0]]):
                self._import(module)
            self._send(self.core_imported)
            while (key := self._next()) is not None and not self._closed:
                self._import(self._modules[key])
                self._ready[key].set()
                self._send(self.page_imported, key)
            self._send(self.ended)
        finally:
            for ready in self._ready.values():
                ready.set()  # an import that failed does so again where the page is made, and is seen there

    def _import(self, module: str) -> None:
        if not self._closed:
            with IMPORTING:
                import_module(module)

    def _send(self, signal: SignalInstance, *about: str) -> None:
        with suppress(RuntimeError):  # the window is gone already
            if not self._closed:
                signal.emit(*about)

    def _next(self) -> str | None:
        """Return the page to import next: the one that was wanted last."""
        for key in (*reversed(self._wanted), *self._modules):
            if not self._ready[key].is_set():
                return key
        return None


def lazy_types() -> Iterator[None]:
    """Make every type of the loaded modules of PySide that is not made yet; each turn makes one."""
    for name in [one for one in sys.modules if one.startswith("PySide6.Qt")]:
        module = sys.modules[name]
        for attribute in dir(module):
            getattr(module, attribute, None)
            yield
