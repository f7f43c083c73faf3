"""`burnish studio`: opens the desktop app."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

from burnish_engine.contract.errors import SetupError

_APP = "burnish_app"


def studio() -> int:
    """Open the desktop app."""
    command = [sys.executable, "-P", "-m", _APP]
    _require("PySide6", "The desktop app needs PySide6, which is not installed.")
    _require(_APP, "The desktop app is not part of this installation.")
    _require_display()
    if os.name == "nt":  # exec on Windows would return to the shell at once and lose the exit code
        return subprocess.run(command, check=False).returncode
    sys.stdout.flush()
    os.execv(command[0], command)  # noqa: S606  the app takes this process's place
    raise AssertionError("unreachable")


def _require(module: str, what: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise SetupError(what, "Run the set-up again; everything else works from the command line.")


def _require_display() -> None:
    """Explain on Linux what is missing instead of letting Qt abort."""
    if not sys.platform.startswith("linux"):
        return
    if not any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")):
        raise SetupError(
            "There is no screen to open a window on (neither DISPLAY nor WAYLAND_DISPLAY is set).",
            "Run it in a desktop session. The command line does everything the app does: burnish --help",
        )
