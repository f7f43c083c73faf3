"""Draws every page in every state, light and dark, in two window sizes, into a folder.

    python tests/app/screenshots.py OUT [--only train] [--quick]

SCENES maps a name "page-state" to a function that brings a window into that state. Pages add theirs with `@scene`.
`--quick` draws one size only.
"""

import argparse
import importlib
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from PySide6.QtWidgets import QApplication

SIZES = ((1280, 800), (1920, 1080))
SCENES = {}
SCENE_MODULES = ("app.frame_scenes", "app.page_scenes")
"""Modules that add to SCENES; one that is not there yet is left out."""


def scene(name):
    """Add a function of a window to SCENES. The name begins with the page's key and a dash."""

    def add(function):
        SCENES[name] = function
        return function

    return add


def settle(rounds=6):
    """Let queued events and paints happen."""
    for _ in range(rounds):
        QApplication.processEvents()


def load_scenes():
    for module in SCENE_MODULES:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name != module:
                raise


def draw(window, folder, name):
    """Save what the window shows."""
    settle()
    window.grab().save(str(folder / f"{name}.png"))


def main():
    """Draw all scenes whose name holds the given text."""
    from burnish_app.engine_client import EngineClient
    from burnish_app.preferences import Preferences
    from burnish_app.theme import Theme
    from burnish_app.window import Window
    from burnish_app.workbench import Workbench

    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    app = QApplication([])
    theme = Theme(app)
    load_scenes()
    for mode in ("light", "dark"):
        theme.set_mode(mode)
        for size in SIZES[:1] if options.quick else SIZES:
            for name, function in SCENES.items():
                if options.only not in name:
                    continue
                os.environ["BURNISH_HOME"] = tempfile.mkdtemp()
                window = Window(EngineClient(("nothing",)), Workbench(), Preferences(), theme)
                window.resize(*size)
                window.go_to(name.split("-")[0])
                window.show()
                settle()
                function(window)
                draw(window, options.out, f"{name}-{mode}-{size[0]}")
                window.close()
                window.deleteLater()
                settle(2)


if __name__ == "__main__":
    # The scenes import this module by its name; run as a script it would be there twice.
    from app import screenshots

    screenshots.main()
