"""Counts clicks and seconds from a dropped CSV with columns that nobody knows to the first step of its training.

    python tests/bench to_training [--rows 400] [--chips]

A real window over the real engine, as it is at its first start, with the embedded model. All is done by mouse: the file
is dropped, the reading that is meant is chosen among those offered (with --chips, each column gets its role by its chip
instead), and the two main buttons are pressed. A click follows as soon as it can, so the seconds are the program's own.
"""

import argparse
import os
import tempfile
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from app.real.studio import Studio
from app.real.tour import Bot
from PySide6.QtWidgets import QApplication, QPushButton

from burnish_app.garbage import GarbageCollector
from burnish_app.look.theme import Theme

from bench.window.clicks import Clicks

ROLES = {"Frage": "Prompt", "Antwort": "Reply"}
READING = "Frage asked, Antwort replied"


def write_rows(path, count):
    """Write rows with German column names, a semicolon between them, and two columns that do not count."""
    lines = [f"{n};Was ist Teil {n}?;Teil {n} ist ein Teil des Lagers {n % 7}.;geprüft" for n in range(count)]
    path.write_text("\n".join(["Nr;Frage;Antwort;Vermerk", *lines]) + "\n", encoding="utf-8")


def pick(clicks, chip, role):
    """Choose a role from a chip's menu."""
    clicks.click(chip, f"the chip of {chip.column}")
    clicks.wait(lambda: QApplication.activePopupWidget() is not None)
    menu = QApplication.activePopupWidget()
    action = next(one for one in menu.actions() if one.text().startswith(role))
    clicks.click(menu, role, lambda: menu.actionGeometry(action).center())


def offered(page):
    """Return the button of the reading that is meant; None while it is not there."""
    found = [one for one in page.rows.findChildren(QPushButton) if one.text() == READING and one.isVisible()]
    return found[0] if found else None


def measure(app, home, rows, *, by_chips):
    """Go from a dropped file to the first step of its training; returns the clicks, the drop not counted."""
    file = home / "Anfragen.csv"
    write_rows(file, rows)
    studio = Studio(Bot(app), Theme(app), GarbageCollector(app), home)
    window = studio.open()
    window.resize(1280, 800)
    clicks = Clicks()
    studio.drop(window, file)
    clicks.note("the file is dropped")
    clicks.wait(lambda: window.shown_key == "data")
    page = window.page("data")
    clicks.wait(lambda: page.rows.rows.rowCount() == rows and set(ROLES) <= set(page.rows.header.chips))
    clicks.note("its rows are shown")
    if by_chips:
        for column, role in ROLES.items():
            pick(clicks, page.rows.header.chips[column], role)
    else:
        clicks.wait(lambda: offered(page) is not None)
        clicks.click(offered(page), READING)
    clicks.wait(lambda: window.bench.dataset is not None)
    clicks.note("it is understood")
    clicks.click(page.primary, "Next")
    clicks.wait(lambda: window.shown_key == "recipe")
    recipe = window.page("recipe")
    clicks.wait(lambda: window.bench.plan is not None and recipe.primary.isEnabled())
    clicks.click(recipe.primary, "Start training")
    clicks.wait(lambda: window.shown_key == "train")
    clicks.wait(lambda: bool(window.bench.run))
    clicks.note("the run is started")
    clicks.wait(lambda: window.page("train").events.step >= 1)
    clicks.note("its first step is done")
    studio.close()
    return clicks.count


def main():
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--chips", action="store_true", help="give each column its role by its chip")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.environ["BURNISH_HOME"] = folder
        app = QApplication([])
        print(f"{measure(app, Path(folder), args.rows, by_chips=args.chips)} clicks after the drop")


if __name__ == "__main__":
    main()
