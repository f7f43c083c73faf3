"""Starts the studio: `burnish-studio`, `burnish studio`, or `python -m burnish_app`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication

TRACE_START_VARIABLE = "BURNISH_TRACE_START"
"""Environment variable that makes the studio print its start time: from the process's creation to the window."""
DESKTOP_NAME = "burnish"
"""Name of the desktop entry, by which taskbars find icon and windows: Wayland's app id, X11's window class."""


def main() -> int:
    """Show the window and run until it is closed.

    Returns:
        The exit code of the process.
    """
    from burnish_app.garbage import GarbageCollector
    from burnish_app.launch.single_instance import SingleInstance
    from burnish_app.look.motion import set_motion
    from burnish_app.look.theme import Theme
    from burnish_app.state.preferences import Preferences
    from burnish_app.widgets.basic.bug_notice import BugNotice
    from burnish_app.widgets.basic.drop import typed_path
    from burnish_app.window import Window

    app = QApplication([DESKTOP_NAME, *sys.argv[1:]])  # X11's window class is the first argument
    app.setApplicationName("Burnish")
    app.setDesktopFileName(DESKTOP_NAME)
    _name_on_windows()
    given = [typed_path(text) for text in app.arguments()[1:]]
    BugNotice(app).install()
    instance = SingleInstance(app)
    if instance.hand_over(given):
        return 0
    collector = GarbageCollector(app)
    preferences = Preferences()
    theme = Theme(app, preferences.theme, preferences.text_percent)
    set_motion(preferences.motion)
    window = Window(None, None, preferences, theme)
    window.grown.connect(collector.freeze_and_start)
    instance.called.connect(window.come_forward)
    window.open_paths(given)
    window.show()
    QTimer.singleShot(0, window, lambda: _shown(window.begin))
    return app.exec()


def _name_on_windows() -> None:
    """Tell Windows' taskbar that the window is Burnish's, not the Python interpreter's."""
    if sys.platform == "win32":
        import ctypes

        ctypes.windll.shell32.SetCurrentProcessExplicitAppUserModelID("Burnish.Studio")


def _shown(begin: Callable[[], None]) -> None:
    """Begin the window's work after its first paint, and print the start time if asked to."""
    if os.environ.get(TRACE_START_VARIABLE):
        from burnish_app.instrument import process_age_s

        sys.stderr.write(f"window shown after {process_age_s():.2f} s\n")
    begin()


if __name__ == "__main__":
    sys.exit(main())
