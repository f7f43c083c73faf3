"""Starts the studio: `burnish-studio`, `burnish studio`, or `python -m burnish_app`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication

TRACE_START_VARIABLE = "BURNISH_TRACE_START"
"""Environment variable that makes the studio print its start time: from the process's creation to the window."""


def main() -> int:
    """Show the window and run until it is closed.

    Returns:
        The exit code of the process.
    """
    from burnish_app.engine.engine_client import EngineClient
    from burnish_app.garbage import GarbageCollector
    from burnish_app.look.theme import Theme
    from burnish_app.state.preferences import Preferences
    from burnish_app.state.workbench import Workbench
    from burnish_app.window import Window

    app = QApplication(sys.argv)
    app.setApplicationName("Burnish")
    app.setDesktopFileName("burnish")
    collector = GarbageCollector(app)
    preferences = Preferences()
    window = Window(EngineClient(), Workbench(), preferences, Theme(app, preferences.theme))
    window.grown.connect(collector.freeze_and_start)
    window.show()
    QTimer.singleShot(0, window, lambda: _shown(window.begin))
    return app.exec()


def _shown(begin: Callable[[], None]) -> None:
    """Begin the window's work after its first paint, and print the start time if asked to."""
    if os.environ.get(TRACE_START_VARIABLE):
        from burnish_app.instrument import process_age_s

        sys.stderr.write(f"window shown after {process_age_s():.2f} s\n")
    begin()


if __name__ == "__main__":
    sys.exit(main())
