"""Times the way from a finished run to a model in Ollama, by clicks and seconds, in the real window over the engine.

    python tests/bench/to_ollama.py RUN [--quant Q8_0]

RUN is the folder of a finished run. Ollama's client has to be on PATH; without one a stand-in takes the file, so that
the time of Ollama itself, which copies the file, is not in the figure.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import shutil

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from support.models import fake_ollama


class Clicker:
    """Clicks as a person does, and notes when."""

    def __init__(self):
        self.begun = time.monotonic()
        self.clicks = 0

    def wait(self, condition, limit_s=3600):
        """Handle events until a condition holds."""
        end = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > end:
                raise SystemExit("It took too long.")
            QTest.qWait(20)

    def click(self, widget, pos=None):
        """Click a widget once it can be clicked, and print what and when."""
        self.wait(lambda: widget.isVisible() and widget.isEnabled())
        at = pos() if pos else widget.rect().center()
        QTest.mouseClick(widget, Qt.MouseButton.LeftButton, pos=at)
        self.clicks += 1
        self.note(f"click {self.clicks}: {widget.accessibleName()}")

    def note(self, text):
        """Print a moment."""
        print(f"{time.monotonic() - self.begun:7.1f} s  {text}", flush=True)


def main():
    """Drive the window from the page Train of a finished run to a file that Ollama knows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--quant", default="Q8_0")
    options = parser.parse_args()
    kept = Path(tempfile.mkdtemp())
    if shutil.which("ollama") is None:
        fake_ollama.install(kept / "bin", kept / "models")
        os.environ["PATH"] = os.pathsep.join([str(kept / "bin"), os.environ["PATH"]])
        print("A stand-in takes the place of Ollama.")

    from burnish_app.engine.engine_client import EngineClient
    from burnish_app.look.theme import Theme
    from burnish_app.state.preferences import Preferences
    from burnish_app.state.workbench import Workbench
    from burnish_app.window import Window

    app = QApplication([])
    bench = Workbench()
    bench.set_run(str(options.run.absolute()))
    window = Window(EngineClient(), bench, Preferences(kept / "window.ini"), Theme(app))
    window.preferences.asks_on_close = False
    window.resize(1280, 800)
    window.show()
    window.begin()
    window.go_to("train")
    clicker = Clicker()
    clicker.wait(lambda: window.client.state == "ready" and window.page("train").status == "done")
    clicker.begun = time.monotonic()
    clicker.click(window.sidebar.button("export"))
    clicker.wait(lambda: window.shown_key == "export")
    page = window.page("export")
    chart = page.sizes.chart
    clicker.wait(lambda: chart.points and page.choices.types.chosen())
    clicker.note("the chart is there")
    for quant in set(page.choices.types.chosen()) ^ {options.quant}:
        clicker.click(chart, lambda quant=quant: chart.place_of(quant).toPoint())
    clicker.click(page.primary)
    clicker.wait(lambda: page.status in ("done", "attention"))
    clicker.note(f"the export is {page._job.status}")

    def giver():
        buttons = page.files.findChildren(type(page.primary))
        return next((one for one in buttons if one.text() == "Add to Ollama"), None)

    clicker.wait(lambda: giver() is not None)
    clicker.click(giver())
    clicker.wait(lambda: not page._handing_over)  # it is full as soon as the button is pressed
    clicker.note(f"Ollama has it: {clicker.clicks} clicks")
    window.close()


if __name__ == "__main__":
    main()
