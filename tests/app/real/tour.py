"""Runs the README's five-minute tour in a real window over the real engine and takes the README's screenshots.

    python tests/app/real/tour.py assets/screenshots [--steps 60] [--home DIR]

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
ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests"))
SAMPLES = ROOT / "assets" / "samples"
LONG_S = 1800.0
LONGEST = 60
"""Tokens of a reply: the base model would go on and on."""
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
        from app.real.studio import Studio

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
        save_small(self.window.grab().toImage(), self.out / f"{name}.png")
        print(f"{name}.png", flush=True)

    def go(self, steps):
        """Follow the README word by word, from the machine to a proven file, with a run of `steps` steps."""
        self.hardware_and_model()
        self.data()
        self.recipe(steps)
        self.train(steps)
        self.try_it()
        self.export()

    def press(self, page, text):
        """Press a page's button with a text, once one is there to be pressed."""
        from PySide6.QtWidgets import QPushButton

        def found():
            return [one for one in page.findChildren(QPushButton) if one.text() == text and one.isVisible()]

        self.studio.wait(found)
        self.studio.press(found()[0])

    def press_primary(self, page, key):
        """Press a page's main button, which leads to another page; return that."""
        self.studio.press(page.primary)
        self.studio.wait(lambda: self.window.shown_key == key)
        return self.window.page(key)

    def hardware_and_model(self):
        """The check-up, and the embedded model."""
        self.picture("start")
        page = self.studio.visit(self.window, "hardware")
        self.studio.wait(lambda: page.status in {"done", "attention"})
        self.picture("hardware")
        page = self.studio.visit(self.window, "model")
        self.studio.wait(lambda: self.window.bench.model is not None)
        self.picture("model")
        self.press_primary(page, "data")

    def data(self):
        """Step 3: drop the sample, and choose the held-out file."""
        from PySide6.QtWidgets import QFileDialog

        window, wait = self.window, self.studio.wait
        self.studio.drop(window, SAMPLES / "bench-notes.train.jsonl")
        wait(lambda: window.bench.dataset is not None)
        page = window.page("data")
        self.press(page, "Use a file of its own ...")
        dialog = page.findChild(QFileDialog)
        dialog.setDirectory(str(SAMPLES))
        dialog.selectFile("bench-notes.heldout.jsonl")
        dialog.accept()
        wait(lambda: window.bench.dataset is not None and window.bench.dataset.validation_rows == 40)
        self.picture("data")
        self.press_primary(page, "recipe")

    def recipe(self, steps):
        """Step 4: a name, the number of steps, start."""
        window, wait = self.window, self.studio.wait
        page = window.page("recipe")
        wait(lambda: window.bench.suggestion is not None and window.bench.plan is not None)
        self.studio.type_into(page.form.row("name").editor, "bench-notes")
        self.studio.type_into(page.form.row("train.max_steps").editor, str(steps))
        wait(lambda: window.bench.plan is not None and window.bench.plan.steps == steps)
        wait(lambda: window.bench.dataset is not None and not page.plans.is_waiting)
        self.picture("recipe")
        self.press_primary(page, "train")

    def train(self, steps):
        """Step 5: watch, pause and resume, close the window, and find the run in the next one."""
        page, wait = self.window.page("train"), self.studio.wait
        wait(lambda: page.events.step >= steps // 3)
        self.press(page, "Pause")
        wait(lambda: page.summary.standing == "paused")
        self.press(page, "Resume")
        wait(lambda: page.summary.standing == "running")
        self.window.close()
        self.studio.press(self.window.closing.question.leaving)
        wait(lambda: not self.window.isVisible())
        self.window = self.studio.open()
        self.window.resize(1280, 800)
        page = self.studio.visit(self.window, "train")
        wait(lambda: page.events.step >= steps * 2 // 3)
        self.picture("train")
        wait(lambda: page.summary.standing == "finished")
        self.picture("train-finished")

    def try_it(self):
        """Step 6: ask base and tuned model."""
        page = self.press_primary(self.window.page("train"), "try_out")
        page.sampling.longest.setValue(LONGEST)
        self.studio.type_into(page.prompt, QUESTION)
        self.studio.press(page.primary)
        self.studio.wait(lambda: all(len(pane.messages) == 2 for pane in (page.left, page.right)))
        self.picture("try-it")

    def export(self):
        """Step 7: the files that the recipe asks for, and their proof."""
        page = self.studio.visit(self.window, "export")
        self.studio.press(page.primary)
        self.studio.wait(lambda: page.job is not None and page.job.status not in {"running"})
        self.picture("export", settle_s=2.0)
        print(f"export {page.job.status}: {page.job.message}")


def save_small(image, path):
    """Save a picture with 256 of its colors, the most frequent that differ: a third of the bytes, and all hues."""
    import numpy as np
    from PySide6.QtGui import QImage

    image = image.convertToFormat(QImage.Format.Format_RGB32)
    colors, counts = np.unique(np.frombuffer(image.constBits(), np.uint32), return_counts=True)
    colors = colors[np.argsort(counts)[::-1]]
    _, firsts = np.unique(colors & 0xF0F0F0, return_index=True)
    near = np.unique(colors & 0xF8F8F8, return_index=True)[1]
    chosen = list(dict.fromkeys([*colors[np.sort(firsts)][:160], *colors[np.sort(near)]]))
    table = [int(color) for color in chosen[:256]]
    image.convertToFormat(QImage.Format.Format_Indexed8, table).save(str(path))


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
    from PySide6.QtCore import Qt

    from burnish_app.instrument import MeasuredApplication
    from burnish_app.look.theme import Theme

    app = MeasuredApplication([])
    app.setAttribute(Qt.ApplicationAttribute.AA_DontUseNativeDialogs)
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
