"""Measures the window under a run of very many steps: its memory, its slowest handlers, and its frames a second.

    python tests/bench window_load [--steps 100000] [--only memory|handlers|resize|frames]

Each figure comes from a process of its own, which opens the real window over the real engine, with the run that
`long_run` writes. Handlers: every page is visited and filled, and the charts are worked with by mouse; the times
are the thread's CPU time. Each event passes through Python there, which makes a handler with many events up to twice as
slow as it is in the studio. Resize: the same of all handlers that making the window as large as the screen takes, ten
times. Frames: see `tests/app/measures/frame_rate.py`; here a frame is one turn of the wheel or one step of
a pan, until the whole page is painted by software.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import psutil

from bench import ROOT
from bench.shared.commands import script
from bench.window.long_run import write_long_run

KINDS = ("memory", "handlers", "resize", "frames")
DATA = ROOT / "assets" / "samples" / "bench-notes.train.jsonl"
WORST = 15
FRAMES = 60
SMALL, LARGE, RESIZES = (1000, 700), (1920, 1080), 10


class Driver:
    """Drives the window: each action is an event of its own.

    Args:
        app: the application.
        home: folder with the run.
    """

    def __init__(self, app, home):
        from burnish_app.engine.engine_client import EngineClient
        from burnish_app.garbage import GarbageCollector
        from burnish_app.look.motion import set_motion
        from burnish_app.look.theme import Theme
        from burnish_app.page_list import PAGES
        from burnish_app.state.preferences import Preferences
        from burnish_app.state.workbench import Workbench
        from burnish_app.window import Window

        self.app, self.pages = app, [entry.key for entry in PAGES]
        self.theme, self.collector = Theme(app), GarbageCollector(app)
        set_motion("reduced")
        self.window = Window(EngineClient(), Workbench(), Preferences(), self.theme)
        self.window.grown.connect(self.collector.freeze_and_start)
        self.window.show()
        self.window.begin()
        self.wait(lambda: self.window.client.state == "ready" and len(self.window._pages) == len(self.pages))
        self.window.bench.set_run(str(home / "runs" / "long"))

    def wait(self, condition, limit_s=120):
        """Process events until a condition holds."""
        until = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > until:
                raise TimeoutError("the window did not get there")
            self.app.processEvents()
            time.sleep(0.002)

    def rest(self, seconds):
        """Process events for a while."""
        until = time.monotonic() + seconds
        self.wait(lambda: time.monotonic() > until)

    def do(self, action, seconds=0.15):
        """Do something in an event of its own."""
        from PySide6.QtCore import QTimer

        QTimer.singleShot(0, self.window, action)
        self.rest(seconds)

    def chart_the_run(self, steps):
        """Show the run on Train, until all of its steps are drawn."""
        self.do(lambda: self.window.visit("train"))
        page = self.window.page("train")
        self.wait(lambda: page.events.step == steps and len(page.charts.curves.loss) == steps)
        self.rest(2)
        return page

    def close(self):
        """Close the window and its engine."""
        self.window.closing.decided = True
        self.window.close()


def mouse(chart, share, *, turn=0, press=None):
    """Move the mouse over a chart, or turn the wheel there.

    Args:
        chart: chart to act on.
        share: place on the horizontal axis, 0 to 1.
        turn: notches of the wheel; 0: none.
        press: function of QTest such as `mouseClick`; None: move.
    """
    from PySide6.QtCore import QPoint, QPointF, Qt
    from PySide6.QtGui import QWheelEvent
    from PySide6.QtTest import QTest
    from PySide6.QtWidgets import QApplication

    plot = chart.drawing.plot
    area, view = plot.box.sceneBoundingRect(), plot.viewport
    place = QPoint(round(area.left() + share * area.width()), round(area.center().y()))
    if turn:
        none = Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False
        event = QWheelEvent(QPointF(place), QPointF(view.mapToGlobal(place)), QPoint(), QPoint(0, 120 * turn), *none)
        QApplication.sendEvent(view, event)
    elif press:
        press(view, Qt.MouseButton.LeftButton, pos=place)
    else:
        QTest.mouseMove(view, place)


def measure_memory(driver, steps):
    """Print the resident memory of the window's process at rest and with the run charted."""
    process = psutil.Process()
    driver.rest(1)
    print(f"memory of the window, all pages made: {process.memory_info().rss / 1e6:.0f} MB")
    driver.chart_the_run(steps)
    print(f"memory while charting {steps:,} points: {process.memory_info().rss / 1e6:.0f} MB")
    for key in driver.pages:
        driver.do(lambda key=key: driver.window.visit(key), 1)
    driver.do(lambda: driver.window.visit("train"), 1)
    print(f"memory after a visit to all pages: {process.memory_info().rss / 1e6:.0f} MB")


class HandlerTour:
    """Does in turn what a person can do with the window, and notes how long the handlers of each stage took.

    Args:
        driver: driver of a window in a `MeasuredApplication`.
        steps: number of steps of the run.
    """

    def __init__(self, driver, steps):
        self.driver, self.window = driver, driver.window
        self.count, self.slowest = 0, {}
        self._stage, self._add = "train", driver.app.times.add
        driver.app.times.add = self._note
        self.page = driver.chart_the_run(steps)
        self.charts = self.page.charts

    def _note(self, wall_ms, cpu_ms, what):
        self.count += 1
        self.slowest[self._stage] = max(self.slowest.get(self._stage, (0.0, "")), (cpu_ms, what))
        self._add(wall_ms, cpu_ms, what)

    def do(self, stage, action, seconds=0.5):
        """Do something in an event of its own, as part of a stage."""
        self._stage = stage
        self.driver.do(action, seconds)

    def work_with_charts(self):
        """Move, zoom, pin, change axis and scale, open options and table, save files."""
        from PySide6.QtTest import QTest

        charts = self.charts
        for kind in ("tokens", "time", "step"):
            self.do("axis", partial(charts.link.set_kind, kind))
        for chart in (charts.loss, charts.rate, charts.memory):
            self._stage = f"mouse on {chart.name}"
            for place in range(20):
                mouse(chart, place / 20)
                self.driver.rest(0.03)
            for turn in (1, 1, 1, 1, -1, -1, 2, 2, -8):
                mouse(chart, 0.4, turn=turn)
                self.driver.rest(0.1)
            mouse(chart, 0.6, press=QTest.mouseClick)
            self.driver.rest(0.6)
        for action in (partial(charts.loss.set_log, True), partial(charts.loss.set_window, 301)):
            self.do("scale and smoothing", action)
        self.do("scale and smoothing", partial(charts.loss.set_log, False))
        self.do("options of a chart", partial(charts._open_options, charts.loss))
        self.close_others()
        self.do("chart as a table", partial(charts._show_table, charts.loss), 1)
        self.close_others()
        for kind in ("csv", "svg", "png"):
            path = Path(os.environ["BURNISH_HOME"]) / f"loss.{kind}"
            self.do(f"save as {kind}", partial(charts.save, charts.loss, kind, path), 2)

    def close_others(self):
        """Close the windows beside the studio's."""
        for other in self.driver.app.topLevelWidgets():
            if other is not self.window and other.isVisible():
                other.close()

    def visit_pages(self):
        """Fill the pages with the sample data and the real engine's answers, and resize the window."""
        self.do("data", partial(self.window.take, [str(DATA)]))
        self.driver.wait(lambda: self.window.bench.dataset is not None)
        for key in self.driver.pages:
            self.do(key, partial(self.window.visit, key), 2)
        self.do("compare", lambda: self.window.bench.set_compared([run.folder for run in self.window._runs[:2]]))
        self.do("compare", partial(self.window.visit, "compare"), 6)
        self.do("train", partial(self.window.visit, "train"))
        for size in (SMALL, LARGE):
            self.do("resize", partial(self.window.resize, *size), 1)


def measure_handlers(driver, steps):
    """Print the handlers that took most CPU time of the window's thread."""
    tour = HandlerTour(driver, steps)
    tour.work_with_charts()
    tour.visit_pages()
    print(f"{tour.count:,} handlers; the slowest of each stage, milliseconds of thread CPU:")
    for stage, (cpu_ms, what) in sorted(tour.slowest.items(), key=lambda entry: -entry[1][0])[:WORST]:
        print(f"  {cpu_ms:5.1f}  {stage}: {what}")


def measure_resize(driver, steps):
    """Print the CPU time of the handlers that enlarging the window takes: the slowest one's, and that of all."""
    driver.chart_the_run(steps)
    times, slowest, sums = [], [], []
    driver.app.times.add = lambda _wall_ms, cpu_ms, _what: times.append(cpu_ms)
    for _ in range(RESIZES):
        driver.do(partial(driver.window.resize, *SMALL), 1)
        times.clear()
        driver.do(partial(driver.window.resize, *LARGE), 1)
        slowest.append(max(times))
        sums.append(sum(times))
    for name, found in (("slowest handler", slowest), ("all handlers", sums)):
        low, middle, high = min(found), statistics.median(found), max(found)
        print(f"{RESIZES} resizes to {LARGE}, {name}: {middle:.1f} ms ({low:.1f} to {high:.1f}) of thread CPU")


def measure_frames(driver, steps):
    """Print frames a second of zooming and panning the charts, by the clock and by CPU time."""
    page = driver.chart_the_run(steps)
    link = page.charts.link
    gestures = {
        "zoom in": lambda frame: mouse(page.charts.loss, 0.6, turn=0.3),
        "pan": lambda frame: link.pan_by((link.range()[1] - link.range()[0]) / 400 * (1 if frame % 40 < 20 else -1)),
        "zoom out": lambda frame: mouse(page.charts.loss, 0.6, turn=-0.3),
    }
    mouse(page.charts.loss, 0.6)
    for name, gesture in gestures.items():
        driver.rest(0.3)
        begun, used = time.perf_counter(), time.thread_time()
        for frame in range(FRAMES):
            gesture(frame)
            for _ in range(3):
                driver.app.processEvents()
        wall, cpu = time.perf_counter() - begun, time.thread_time() - used
        print(f"{name}: {FRAMES / wall:.0f} frames/s by the clock, {FRAMES / cpu:.0f} by CPU time")


def child(kind, steps, home):
    """Measure one kind of figure in this process."""
    from PySide6.QtWidgets import QApplication

    from burnish_app.instrument import MeasuredApplication

    app = (MeasuredApplication if kind in ("handlers", "resize") else QApplication)([])
    driver = Driver(app, home)
    try:
        measure = {
            "memory": measure_memory, "handlers": measure_handlers, "resize": measure_resize, "frames": measure_frames
        }  # fmt: skip
        measure[kind](driver, steps)
    finally:
        driver.close()


def main():
    """Write the run and measure each kind in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.only, options.steps, options.child)
        return
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write_long_run(home / "runs" / "long", options.steps)
        environment = {**os.environ, "BURNISH_HOME": folder}
        for kind in [options.only] if options.only else KINDS:
            command = script("window_load", "--steps", options.steps, "--only", kind, "--child", folder)
            subprocess.run(command, env=environment, check=True)


if __name__ == "__main__":
    main()
