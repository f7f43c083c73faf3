"""Starts the studio: `burnish-studio`, `burnish studio`, or `python -m burnish_app`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication

TRACE_START_VARIABLE = "BURNISH_TRACE_START"
"""Environment variable: print to standard error how long the start took, from the process's creation to the window."""


def main() -> int:
    """Show the window and stay until it is closed.

    Returns:
        The process's exit code.
    """
    from burnish_app.engine_client import EngineClient
    from burnish_app.garbage import Collector
    from burnish_app.preferences import Preferences
    from burnish_app.theme import Theme
    from burnish_app.window import Window
    from burnish_app.workbench import Workbench

    app = QApplication(sys.argv)
    app.setApplicationName("Burnish")
    app.setDesktopFileName("burnish")
    collector = Collector(app)
    preferences = Preferences()
    window = Window(EngineClient(), Workbench(), preferences, Theme(app, preferences.theme))
    window.grown.connect(collector.settle)
    window.show()
    QTimer.singleShot(0, window, lambda: _shown(window.begin))
    return app.exec()


def _shown(begin: Callable[[], None]) -> None:
    """The event loop came round once after `show`: the window has been painted."""
    if os.environ.get(TRACE_START_VARIABLE):
        from burnish_app.instrument import process_age_s

        sys.stderr.write(f"window shown after {process_age_s():.2f} s\n")
    begin()


if __name__ == "__main__":
    sys.exit(main())
