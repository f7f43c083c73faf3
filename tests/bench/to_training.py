"""Counts clicks and seconds from a dropped CSV with columns that nobody knows to the first step of its training.

    python tests/bench/to_training.py [--rows 400] [--chips]

A real window over the real engine, as it is at its first start, with the embedded model. All is done by mouse: the file
is dropped, the reading that is meant is chosen among those offered (with --chips, each column gets its role by its chip
instead), and the two main buttons are pressed. A click follows as soon as it can, so the seconds are the program's own.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

ROLES = {"Frage": "Prompt", "Antwort": "Reply"}
READING = "Frage asked, Antwort replied"


def write_rows(path, count):
    """Write rows with German column names, a semicolon between them, and two columns that do not count."""
    lines = [f"{n};Was ist Teil {n}?;Teil {n} ist ein Teil des Lagers {n % 7}.;geprüft" for n in range(count)]
    path.write_text("\n".join(["Nr;Frage;Antwort;Vermerk", *lines]) + "\n", encoding="utf-8")


class Clicks:
    """Presses buttons of the window, and notes each click with its time.

    Args:
        studio: the real studio.
        window: its window.
    """

    def __init__(self, studio, window):
        self._studio, self.window, self._begun = studio, window, time.monotonic()
        self.count = 0

    def note(self, what, *, clicks=1):
        """Note that something was done, or came."""
        self.count += clicks
        print(f"{time.monotonic() - self._begun:6.1f} s  {self.count:2} clicks  {what}", flush=True)

    def press(self, button, what):
        """Click a button."""
        self._studio.press(button)
        self.note(what)

    def pick(self, chip, role):
        """Choose a role from a chip's menu."""
        from PySide6.QtCore import Qt
        from PySide6.QtTest import QTest
        from PySide6.QtWidgets import QApplication

        self.press(chip, f"the chip of {chip.column}")
        self._studio.wait(lambda: QApplication.activePopupWidget() is not None)
        menu = QApplication.activePopupWidget()
        action = next(one for one in menu.actions() if one.text().startswith(role))
        QTest.mouseClick(menu, Qt.MouseButton.LeftButton, pos=menu.actionGeometry(action).center())
        self.note(role)


def offered(page):
    """Return the button of the reading that is meant; None while it is not there."""
    from PySide6.QtWidgets import QPushButton

    found = [one for one in page.rows.findChildren(QPushButton) if one.text() == READING and one.isVisible()]
    return found[0] if found else None


def measure(app, home, rows, *, by_chips):
    """Go from a dropped file to the first step of its training; returns the clicks, the drop not counted."""
    from app.real.studio import Studio
    from app.real.tour import Bot

    from burnish_app.garbage import GarbageCollector
    from burnish_app.look.theme import Theme

    file = home / "Anfragen.csv"
    write_rows(file, rows)
    studio = Studio(Bot(app), Theme(app), GarbageCollector(app), home)
    window = studio.open()
    window.resize(1280, 800)
    clicks = Clicks(studio, window)
    studio.drop(window, file)
    clicks.note("the file is dropped", clicks=0)
    studio.wait(lambda: window.shown_key == "data")
    page = window.page("data")
    studio.wait(lambda: page.rows.rows.rowCount() == rows and set(ROLES) <= set(page.rows.header.chips))
    clicks.note("its rows are shown", clicks=0)
    if by_chips:
        for column, role in ROLES.items():
            clicks.pick(page.rows.header.chips[column], role)
    else:
        studio.wait(lambda: offered(page) is not None)
        clicks.press(offered(page), READING)
    studio.wait(lambda: window.bench.dataset is not None)
    clicks.note("it is understood", clicks=0)
    clicks.press(page.primary, "Next")
    studio.wait(lambda: window.shown_key == "recipe")
    recipe = window.page("recipe")
    studio.wait(lambda: window.bench.plan is not None and recipe.primary.isEnabled())
    clicks.press(recipe.primary, "Start training")
    studio.wait(lambda: window.shown_key == "train")
    studio.wait(lambda: bool(window.bench.run))
    clicks.note("the run is started", clicks=0)
    studio.wait(lambda: window.page("train").events.step >= 1)
    clicks.note("its first step is done", clicks=0)
    studio.close()
    return clicks.count


def main():
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--chips", action="store_true", help="give each column its role by its chip")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["BURNISH_HOME"] = folder
        from PySide6.QtWidgets import QApplication

        app = QApplication([])
        print(f"{measure(app, Path(folder), args.rows, by_chips=args.chips)} clicks after the drop")


if __name__ == "__main__":
    main()
