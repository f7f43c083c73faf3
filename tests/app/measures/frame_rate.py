"""Measures how many frames a second the charts of a long run draw while they are panned and zoomed.

    python tests/app/measures/frame_rate.py [--steps 100000] [--size 1280x800]

All charts of the run stand in a scroll area of the size of the page Train, drawn in software. A frame is all that
follows from one gesture: new ranges, thinned curves, ticks, and painting. Two rates are printed: by the clock, which
other programs on the machine slow down, and by the CPU time of the window's thread.
"""

import argparse
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from app.facts.run_events import events
from PySide6.QtWidgets import QApplication, QScrollArea

from burnish_app.look.theme import Theme
from burnish_app.widgets.runs.run_charts import RunCharts
from burnish_engine.contract.run.fold import RunState, fold_all

FRAMES = 60
BESIDE_PX = (274, 64)  # sidebar and margins, foot


def zoom_in(link, frame):
    """Zoom in from everything to about a hundredth."""
    low, high = link.range()
    link.zoom_by(0.92, low + 0.6 * (high - low))


def pan(link, frame):
    """Move the range by a little, there and back."""
    low, high = link.range()
    link.pan_by((high - low) / 600 * (1 if frame % FRAMES < FRAMES / 2 else -1))


def zoom_out(link, frame):
    """Zoom out until everything is shown."""
    low, high = link.range()
    link.zoom_by(1 / 0.92, low + 0.6 * (high - low))


def move_cursor(link, frame):
    """Move the cursor over the whole range."""
    low, high = link.range()
    link.cursor = link.axis.nearest(link.axis.step(link.kind, low + (high - low) * frame / FRAMES))
    link.cursor_changed.emit()  # at once; for the mouse it comes at most every 16 ms


def measure(app, link, gesture):
    """Draw frames and return frames per second, by the clock and by the thread's CPU time."""
    begun, used = time.perf_counter(), time.thread_time()
    for frame in range(FRAMES):
        gesture(link, frame)
        for _ in range(3):  # one event after the other until all is painted
            app.processEvents()
    return FRAMES / (time.perf_counter() - begun), FRAMES / (time.thread_time() - used)


def main():
    """Print the rates of all gestures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--size", default="1280x800")
    options = parser.parse_args()
    width, height = (int(part) for part in options.size.split("x"))
    app = QApplication([])
    Theme(app)
    state = fold_all(RunState(), events(options.steps, total=options.steps))
    charts, area = RunCharts(), QScrollArea()
    area.setWidgetResizable(True)
    area.setWidget(charts)
    area.resize(width - BESIDE_PX[0], height - BESIDE_PX[1])
    charts.fit_height(height)
    area.show()
    for _ in range(2):
        charts.draw(state)
        until = time.monotonic() + 1
        while time.monotonic() < until:
            app.processEvents()
    link = charts.link
    for kind in ("step", "time"):
        link.set_kind(kind)
        for name, gesture, share in (
            ("zoom in", zoom_in, 1.0),
            ("pan a tenth", pan, 0.1),
            ("pan nine tenths", pan, 0.9),
            ("zoom out", zoom_out, 0.02),
            ("move the cursor", move_cursor, 1.0),
        ):
            link.show_latest(0)
            low, high = link.range()
            link.zoom_to(low + (high - low) * (1 - share) / 2, high - (high - low) * (1 - share) / 2)
            app.processEvents()
            wall, cpu = measure(app, link, gesture)
            print(f"x = {kind}, {name}: {wall:.0f} frames/s by the clock, {cpu:.0f} by CPU time", flush=True)


if __name__ == "__main__":
    main()
