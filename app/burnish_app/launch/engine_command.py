"""Names the command that starts the engine: with the window's own Python, or with the engine's where they are apart.

A frozen window carries no torch. The engine then has an environment of its own, in the folder that the file
`engine/current` of the user's data names.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from burnish_engine.contract.paths import user_data_dir

ENGINE_VARIABLE = "BURNISH_ENGINE_PYTHON"
"""Environment variable with the Python that runs the engine, in place of the one that was set up."""


def engines_dir() -> Path:
    """Folder of the engine's environments; its file `current` names the one in use."""
    return user_data_dir() / "engine"


def engine_python() -> Path:
    """Path of the Python that runs the engine; it need not exist yet."""
    named = os.environ.get(ENGINE_VARIABLE)
    if named:
        return Path(named)
    if not is_frozen():
        return Path(sys.executable)
    folder = engines_dir() / _current()
    return folder / "Scripts" / "python.exe" if os.name == "nt" else folder / "bin" / "python"


def is_frozen() -> bool:
    """Whether this window was frozen: its program is no Python interpreter, and it carries no engine."""
    return bool(getattr(sys, "frozen", False))


def serve_command() -> tuple[str, ...]:
    """Command line of the engine's server."""
    return (str(engine_python()), "-P", "-m", "burnish_engine.cli.main", "serve")


def _current() -> str:
    try:
        return (engines_dir() / "current").read_text(encoding="utf-8").strip() or "current"
    except (OSError, ValueError):  # nothing was set up
        return "current"
