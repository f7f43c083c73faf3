"""Draws every page in every state, light and dark, in four window sizes, into a folder.

    python tests/app/page_scenes/screenshots.py OUT [--only train] [--theme dark] [--width 744] [--scale 2] [--text 150]

SCENES maps a name "page-state" to a function that brings a window into that state. Pages add theirs with `@scene`.
What they show is made up; tour.py takes pictures of a real run.
"""

import argparse
import importlib
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QApplication, QScrollArea

SIZES = ((744, 900), (1000, 700), (1280, 800), (1920, 1080))
SCENES = {}
STEPS = ("start", "model", "data", "recipe", "train", "try_out", "export")
_SCENES = (
    "frame_scenes", "hardware", "model", "data", "recipe", "try_out", "export", "names", "several_scenes", "engine",
    "rewards",
)  # fmt: skip
SCENE_MODULES = tuple(f"app.page_scenes.{name}" for name in _SCENES)
"""Modules that add to SCENES."""


def scene(name):
    """Add a function of a window to SCENES. The name begins with the page's key and a dash."""

    def add(function):
        SCENES[name] = function
        return function

    return add


def settle(rounds=12):
    """Let queued events and paints happen."""
    for _ in range(rounds):
        QApplication.processEvents()


def load_scenes():
    for module in SCENE_MODULES:
        importlib.import_module(module)


def draw(scene_name, size, theme, file):
    """Bring a window into a scene and save what it shows; return by how much the page is too wide, pixels."""
    from burnish_app.page_list import PANEL
    from burnish_app.state.preferences import Preferences
    from burnish_app.state.workbench import Workbench
    from burnish_app.window import Window

    from support.app.held_client import HeldClient

    os.environ["BURNISH_HOME"] = tempfile.mkdtemp()
    window = Window(HeldClient(), Workbench(), Preferences(), theme)
    window.resize(*size)
    key, _, state = scene_name.partition("-")
    if key != PANEL:
        window.go_to(key)
    if state != "empty" and key in STEPS:
        for before in STEPS[: STEPS.index(key)]:
            window.sidebar.button(before).set_status("done")
    window.show()
    window.go_to(key)  # the panel lies over a window that is shown
    settle()
    SCENES[scene_name](window)
    settle()
    too_wide = window.page(window.shown_key).findChild(QScrollArea).horizontalScrollBar().maximum()
    picture = window.grab()
    beside = getattr(window, "grab_beside", None)
    if beside is not None:  # a dialog is a window of its own
        put_over(picture, beside.grab())
        window.closing.decided = True
        beside.close()
    picture.save(str(file))
    window.close()
    window.deleteLater()
    settle(2)
    return too_wide


def put_over(picture, other):
    """Draw a picture into the middle of another, with its edge."""
    painter = QPainter(picture)
    ratio = picture.devicePixelRatio()
    left, top = (picture.width() - other.width()) / 2 / ratio, (picture.height() - other.height()) / 2 / ratio
    painter.drawPixmap(QPointF(left, top), other)
    painter.drawRect(QRectF(left, top, other.width() / ratio, other.height() / ratio))
    painter.end()


def main():
    """Draw all scenes whose name holds the given text."""
    from burnish_app.garbage import GarbageCollector
    from burnish_app.look.motion import set_motion
    from burnish_app.look.theme import Theme

    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--theme", choices=("light", "dark"), help="of all windows")
    parser.add_argument("--width", type=int, choices=[width for width, _ in SIZES], help="of all windows")
    parser.add_argument("--scale", default="1", help="pixels to a point, as on a fine screen")
    parser.add_argument("--text", type=int, default=100, help="text size, percent")
    options = parser.parse_args()
    os.environ["QT_SCALE_FACTOR"] = options.scale
    folder = options.out
    folder.mkdir(parents=True, exist_ok=True)
    app = QApplication([])
    GarbageCollector(app).start()
    theme = Theme(app, text_percent=options.text)
    set_motion("reduced")
    load_scenes()
    for mode in (options.theme,) if options.theme else ("light", "dark"):
        theme.set_mode(mode)
        for size in SIZES:
            for name in SCENES:
                if options.only in name and options.width in {None, size[0]}:
                    draw(name, size, theme, folder / f"{name}-{mode}-{size[0]}.png")


if __name__ == "__main__":
    # The scenes import this module by its name; run as a script it would be there twice.
    from app.page_scenes import screenshots

    screenshots.main()
