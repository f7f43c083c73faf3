"""Runs the README's five-minute tour in a real window over the real engine and takes the README's screenshots.

    python tests/app/tour.py assets/screenshots [--steps 60] [--home DIR]

Nothing in the pictures is made up: they show the embedded model, the sample dataset and this machine. Takes some
minutes on a processor. `--home` keeps the run; by default it goes into a temporary folder.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
SAMPLES = ROOT / "assets" / "samples"
LONG_S = 1800.0
QUESTION = "My kettle trips the breaker as soon as I switch it on."


class Bot:
    """Stands in for pytest-qt's bot, outside a test."""

    def __init__(self, app):
        self.app = app

    def addWidget(self, widget):  # noqa: N802  pytest-qt's name
        """Do nothing: the process ends, so nothing needs to be cleaned up."""

    def waitUntil(self, condition, timeout):  # noqa: N802  pytest-qt's name
        """Process events until a condition holds."""
        until = time.monotonic() + max(timeout / 1000, LONG_S)
        while not condition():
            if time.monotonic() > until:
                raise TimeoutError("the window did not get there")
            self.app.processEvents()
            time.sleep(0.01)

    def mouseClick(self, *arguments):  # noqa: N802  pytest-qt's name
        """Click a widget."""
        from PySide6.QtTest import QTest

        QTest.mouseClick(*arguments)

    def keyClicks(self, *arguments):  # noqa: N802  pytest-qt's name
        """Type text."""
        from PySide6.QtTest import QTest

        QTest.keyClicks(*arguments)

    def keyClick(self, *arguments):  # noqa: N802  pytest-qt's name
        """Press a key."""
        from PySide6.QtTest import QTest

        QTest.keyClick(*arguments)


class Tour:
    """Visits the pages one after the other and takes the screenshots."""

    def __init__(self, app, theme, out, home):
        from app.studio import Studio

        from burnish_app.garbage import GarbageCollector

        self.app, self.theme, self.out = app, theme, out
        self.studio = Studio(Bot(app), theme, GarbageCollector(app), home)
        self.window = self.studio.open()
        self.window.resize(1280, 800)

    def picture(self, name, settle_s=1.0):
        """Take a screenshot of the window after `settle_s` seconds."""
        until = time.monotonic() + settle_s
        while time.monotonic() < until:
            self.app.processEvents()
            time.sleep(0.02)
        self.window.grab().save(str(self.out / f"{name}.png"))
        print(f"{name}.png", flush=True)

    def go(self, steps):
        """Go from the machine to a proven file, with a run of `steps` steps."""
        studio, window, wait = self.studio, self.window, self.studio.wait
        studio.visit(window, "hardware")
        wait(lambda: window.page("hardware").status in {"done", "attention"})
        self.picture("hardware")
        studio.visit(window, "model")
        wait(lambda: window.bench.model is not None)
        self.picture("model")
        studio.drop(window, SAMPLES / "bench-notes.train.jsonl")
        wait(lambda: window.shown_key == "data" and window.bench.dataset is not None)
        window.bench.set_validation_files([str(SAMPLES / "bench-notes.heldout.jsonl")])
        wait(lambda: window.bench.dataset is not None and window.bench.dataset.validation_rows == 40)
        self.picture("data")
        page = studio.visit(window, "recipe")
        wait(lambda: window.bench.suggestion is not None and window.bench.plan is not None)
        studio.type_into(page.form.row("train.max_steps")._editor, str(steps))
        wait(lambda: window.bench.plan is not None and window.bench.plan.steps == steps)
        wait(lambda: window.bench.dataset is not None)
        self.picture("recipe")
        studio.press(page.primary)
        wait(lambda: window.shown_key == "train")
        page = window.page("train")
        wait(lambda: page.events.step >= steps * 2 // 3)
        self.picture("train")
        wait(lambda: page.figures.headline.text() == "Finished")
        studio.press(page.primary)
        page = window.page("try_out")
        wait(lambda: window.shown_key == "try_out")
        page.longest.setValue(60)
        studio.type_into(page.prompt, QUESTION)
        studio.press(page.primary)
        wait(lambda: all(len(pane.messages) == 2 for pane in (page.left, page.right)))
        self.picture("try-it")
        page = studio.visit(window, "export")
        page.choices.types.choose(["Q8_0", "IQ4_NL"])
        studio.press(page.primary)
        wait(lambda: page._job is not None and page._job.status not in {"running"})
        self.picture("export", settle_s=2.0)
        print(f"export {page._job.status}: {page._job.message}")


def main():
    """Run the tour."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--dark", action="store_true")
    options = parser.parse_args()
    home = options.home or Path(tempfile.mkdtemp(prefix="burnish-tour-"))
    os.environ["BURNISH_HOME"] = str(home)
    from burnish_app.instrument import MeasuredApplication
    from burnish_app.look.theme import Theme

    app = MeasuredApplication([])
    theme = Theme(app)
    theme.set_mode("dark" if options.dark else "light")
    began = time.monotonic()
    tour = Tour(app, theme, options.out, home)
    try:
        tour.go(options.steps)
    finally:
        tour.studio.close()
    print(f"{time.monotonic() - began:.0f} s from window to proven file")


if __name__ == "__main__":
    main()
