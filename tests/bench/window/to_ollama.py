"""Times the way from a finished run to a model in Ollama, by clicks and seconds, in the real window over the engine.

    python tests/bench to_ollama RUN [--quant Q8_0]

RUN is the folder of a finished run. Ollama's client has to be on PATH; without one a stand-in takes the file, so that
the time of Ollama itself, which copies the file, is not in the figure.
"""

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtWidgets import QApplication

from bench.window.clicks import Clicks
from support.models import fake_ollama


def main():
    """Drive the window from the page Train of a finished run to a file that Ollama knows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
    clicks = Clicks()
    clicks.wait(lambda: window.client.state == "ready" and window.page("train").status == "done")
    clicks.begun = time.monotonic()
    clicks.click(window.sidebar.button("export"), "Export in the sidebar")
    clicks.wait(lambda: window.shown_key == "export")
    page = window.page("export")
    chart = page.sizes.chart
    clicks.wait(lambda: chart.points and page.choices.types.chosen())
    clicks.note("the chart is there")
    for quant in set(page.choices.types.chosen()) ^ {options.quant}:
        clicks.click(chart, quant, lambda quant=quant: chart.place_of(quant).toPoint())
    clicks.click(page.primary, "Export")
    clicks.wait(lambda: page.status in ("done", "attention"))
    clicks.note(f"the export is {page.job.status}")

    def giver():
        buttons = page.files.findChildren(type(page.primary))
        return next((one for one in buttons if one.text() == "Add to Ollama"), None)

    clicks.wait(lambda: giver() is not None)
    clicks.click(giver(), "Add to Ollama")
    clicks.wait(lambda: not page._handing_over)  # it is full as soon as the button is pressed
    clicks.note("Ollama has it")
    window.close()


if __name__ == "__main__":
    main()
