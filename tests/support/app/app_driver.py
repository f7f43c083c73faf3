"""Runs the real app (`python -m burnish_app`) as its own process and writes down what its window shows.

    python app_driver.py REPORT [--press]

Nothing of the app is replaced: a thread of this process looks for the window and, on the window's thread, reads what
the shown page says five times a second. With `--press` it clicks
the shown page's primary button once it can be clicked.
"""

import json
import runpy
import sys
import threading
import time
from pathlib import Path

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication


def watch(report, press):
    # Only the window's own thread may touch widgets.
    while (app := QApplication.instance()) is None:
        time.sleep(0.05)
    time.sleep(0.5)
    QTimer.singleShot(0, app, lambda: look_again_and_again(app, report, press))


def look_again_and_again(app, report, press):
    timer = QTimer(app, interval=200)
    timer.timeout.connect(lambda: look(report, press))
    timer.start()


def look(report, press):
    from burnish_app.window import Window

    window = next((one for one in QApplication.topLevelWidgets() if isinstance(one, Window)), None)
    if window is None or not window.isVisible():
        return
    page = window.page(window.shown_key)
    if press and page.primary is not None and page.primary.isVisible() and page.primary.isEnabled():
        press.clear()
        page.primary.click()
    shown = {
        "page": window.shown_key,
        "run": window.bench.run,
        "step": page.events.step if window.shown_key == "train" else 0,
        "headline": page.figures.headline.text() if window.shown_key == "train" else "",
        "banner": page.shown_banner.what if page.shown_banner else "",
        "heavy": sorted({"torch", "transformers", "triton"} & set(sys.modules)),
    }
    aside = report.with_suffix(".tmp")
    aside.write_text(json.dumps(shown), encoding="utf-8")
    aside.replace(report)


if __name__ == "__main__":
    pressing = ["--press"] if "--press" in sys.argv else []
    threading.Thread(target=watch, args=(Path(sys.argv[1]), pressing), daemon=True).start()
    sys.argv = ["burnish_app"]
    runpy.run_module("burnish_app", run_name="__main__")
