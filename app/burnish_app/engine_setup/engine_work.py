"""Carries out in a thread what the person asks of the engine's set-up, and says how far it is."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal

from burnish_app.engine_setup.setup_facts import Doing, Found, facts_of, find_release, open_places
from burnish_app.look.language import tr
from burnish_engine.contract.errors import BurnishError, LeasedError, SetupError, StoppedError
from burnish_engine.contract.paths import user_data_dir
from burnish_engine.contract.system_errors import known_error
from burnish_engine.install.bundle import bundle_content, write_bundle
from burnish_engine.install.engines import Engines, InstalledEngine, engine_home
from burnish_engine.install.offer import release_places
from burnish_engine.install.set_up import Order, SetUpProgress, set_up
from burnish_engine.install.upkeep import damaged_files, move

_TICK_MS = 250
_CLOSE_S = 2.0


class EngineWork(QObject):
    """The engine's set-up as the window sees it: one piece of work at a time.

    Args:
        parent: parent in Qt's object tree.

    Attributes:
        facts: the facts as they are now.
        changed: signal without arguments, emitted when they are others.
        switched: signal without arguments, emitted when another engine is in use.
    """

    changed = Signal()
    switched = Signal()
    _ended = Signal(object, object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engines = Engines(engine_home(user_data_dir()))
        self._place = self._engines.place
        self._places = release_places(os.environ)
        self._found: Found | None = None
        self._progress = SetUpProgress()
        self._sets_up = self._is_closed = False
        self._last: tuple[Doing, Callable[[], str]] | None = None
        self._thread: threading.Thread | None = None
        self._in_use = self._folder_in_use()
        self.facts = facts_of(self._engines, self._place, None)
        self._tick = QTimer(self, interval=_TICK_MS)
        self._tick.timeout.connect(self._ticked)
        self._ended.connect(self._finished)

    @classmethod
    def beside(cls, parent: QObject) -> EngineWork:
        """Return the one that all of a window shares, which is made on the first call.

        Args:
            parent: the window's connection to the engine, with which it ends.
        """
        return parent.findChild(cls) or cls(parent)

    def find(self, *, was_asked: bool = False) -> None:
        """Look for a release for this machine.

        Args:
            was_asked: whether the person asked for updates.
        """

        def found() -> str:
            self._found = find_release(self._places, self._place)
            newer = facts_of(self._engines, self._place, self._found)
            return tr("This is the newest version.") if was_asked and not newer.is_update and newer.in_use else ""

        self._begin("looking", found)

    def take_bundle(self, path: str) -> None:
        """Take the release from a bundle or a folder from now on."""
        self._places = [path]
        self.find()

    def choose_place(self, folder: str) -> None:
        """Choose the folder in which the engine goes into a folder of its own."""
        self._place = self._engines.place_in(Path(folder))
        with suppress(BurnishError):  # the set-up says why nothing can be written
            self._engines.choose(self._place)
        if self._found is not None:
            order = replace(self._found.order, place=self._place)
            self._found = replace(self._found, order=order)
        self._show()

    def set_has_runs(self, runs: bool) -> None:
        """Say whether something is running that needs the engine: meanwhile it is not repaired, moved or removed."""
        if runs != self.facts.has_runs:
            self.facts = replace(self.facts, has_runs=runs)
            self.changed.emit()

    def set_up(self) -> None:
        """Set the engine up that was found."""

        def found_one() -> str:
            if self._found is None:
                self._found = find_release(self._places, self._place)
            self._set_up(self._found.order)
            return tr("The engine is ready.")

        self._begin("fetching", found_one)

    def again(self) -> None:
        """Continue what was paused, or do once more what failed."""
        if self._last is not None:
            self._begin(*self._last)

    def pause(self) -> None:
        """Pause what is being done."""
        self._progress.stop.set()

    def roll_back(self) -> None:
        """Switch back to the engine that was in use before."""

        def switched() -> str:
            self._engines.roll_back()
            return tr("The engine from before is in use again.")

        self._begin("switching", switched)

    def repair(self) -> None:
        """Check all files of the engine, and set the same one up again where one is damaged."""

        def repaired() -> str:
            engine = self._engine_alone()
            if not damaged_files(engine.folder, engine.target, self._progress):
                return tr("All files of the engine are as they were installed.")
            self._set_up(Order(engine.release, engine.target, open_places(self._places), engine.place))
            return tr("The engine was damaged and is set up again.")

        self._begin("checking", repaired)

    def move_to(self, folder: str) -> None:
        """Move the engine into a folder of its own in a folder, such as one on another drive."""

        def moved() -> str:
            place = self._engines.place_in(Path(folder))
            move(self._engine_alone(), self._engines, place, self._progress)
            self._place = place
            return tr("The engine was moved.")

        self._begin("moving", moved)

    def remove(self) -> None:
        """Remove all engines; runs, models and settings stay."""

        def removed() -> str:
            self._refuse_beside_runs()
            self._engines.remove()
            return tr("The engine was removed. Your runs and models are where they were.")

        self._begin("removing", removed)

    def bundle(self, path: str, targets: list[str]) -> None:
        """Make a bundle for other PCs.

        Args:
            path: path of the bundle.
            targets: names of the kinds of machine that it sets up; none: all that the release has.
        """

        def bundled() -> str:
            found = self._found or find_release(self._places, self._place)
            content = bundle_content(found.offer, targets or sorted(found.offer.release.targets))
            write_bundle(
                found.offer, content, found.order.sources, Path(path), self._progress.fetching(content.size_bytes)
            )
            return tr("The bundle is {path}.").format(path=path)

        self._begin("bundling", bundled)

    def wait(self, most_s: float | None = None) -> None:
        """Wait until what is being done has ended.

        Args:
            most_s: longest time to wait, seconds; None: any.
        """
        if self._thread is not None:
            self._thread.join(most_s)

    def close(self) -> None:
        """Pause, and wait a moment for that: what does not end is as if the PC had been switched off."""
        self._is_closed = True
        self.pause()
        self.wait(_CLOSE_S)

    def _set_up(self, order: Order) -> None:
        self._sets_up = True
        set_up(order, self._engines, self._progress)

    def _engine_alone(self) -> InstalledEngine:
        """Return the engine in use.

        Raises:
            LeasedError: Something is running with it.
            SetupError: There is none.
        """
        self._refuse_beside_runs()
        engine = self._engines.current
        if engine is None:
            raise SetupError(tr("No engine is set up."), tr("Set the engine up."))
        return engine

    def _refuse_beside_runs(self) -> None:
        if self.facts.has_runs:
            raise LeasedError(tr("Something is running with this engine."), tr("Wait until it has ended, or stop it."))

    def _begin(self, doing: Doing, work: Callable[[], str]) -> None:
        if self._thread is not None:
            return
        self._progress, self._sets_up, self._last = SetUpProgress(), False, (doing, work)
        self.facts = replace(
            self.facts, doing=doing, problem=("", ""), failed="", note="", is_paused=False, reading=None
        )
        self._thread = threading.Thread(target=self._work, args=(work,), name="engine-set-up", daemon=True)
        self._thread.start()
        self._tick.start()
        self.changed.emit()

    def _work(self, work: Callable[[], str]) -> None:
        try:
            note, problem = work(), None
        except Exception as error:  # noqa: BLE001 - shown below, whatever it is
            note, problem = "", error
        if not self._is_closed:
            with suppress(RuntimeError):  # the window ended meanwhile
                self._ended.emit(note, problem)

    def _ticked(self) -> None:
        doing: Doing = self.facts.doing
        if doing in ("fetching", "unpacking", "installing", "trying") and self._progress.meter is not None:
            doing = self._progress.stage
        self.facts = replace(self.facts, doing=doing, reading=self._progress.reading())
        self.changed.emit()

    def _finished(self, note: str, problem: Exception | None) -> None:
        self.wait()
        self._thread = None
        self._tick.stop()
        known = None if problem is None else known_error(problem)
        if problem is not None and known is None:
            sys.excepthook(type(problem), problem, problem.__traceback__)  # the window writes a report
            known = BurnishError(f"{type(problem).__name__}: {problem}.", tr("This is a bug: send its report."))
        self._show(note, known)
        if self._folder_in_use() != self._in_use:
            self._in_use = self._folder_in_use()
            self.switched.emit()

    def _show(self, note: str = "", problem: BurnishError | None = None) -> None:
        stopped = isinstance(problem, StoppedError)
        told = ("", "") if problem is None or stopped else (problem.what, problem.remedy)
        paused = stopped and self._sets_up
        note = tr("It was stopped.") if stopped and not paused else note
        failed: Doing = self._last[0] if told[0] and self._last is not None else ""
        shown = facts_of(self._engines, self._place, self._found)
        self.facts = replace(
            shown, note=note, problem=told, failed=failed, is_paused=paused, has_runs=self.facts.has_runs
        )
        self.changed.emit()

    def _folder_in_use(self) -> str:
        engine = self._engines.current
        return "" if engine is None else str(engine.folder)
