"""Command line that starts the engine: the window's Python where it has torch, otherwise the one that was set up."""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib.util import find_spec

ENGINE_VARIABLE = "BURNISH_ENGINE_PYTHON"
"""Environment variable with the Python that runs the engine, in place of the one that was set up."""
_MODULE = ("-P", "-m", "burnish_engine.cli.main")


@cache
def sets_engine_up() -> bool:
    """Whether the engine is one that the window sets up: it is a program without torch."""
    return bool(getattr(sys, "frozen", False)) or find_spec("torch") is None


def serve_command() -> tuple[str, ...]:
    """Return the command line of the engine's server; empty: no engine is set up."""
    return engine_command("serve")


def engine_command(*arguments: str) -> tuple[str, ...]:
    """Return a command line of the engine; empty: no engine is set up.

    Args:
        *arguments: what stands behind `burnish` in a terminal.
    """
    named = os.environ.get(ENGINE_VARIABLE)
    if named:
        return (named, *_MODULE, *arguments)
    if not sets_engine_up():
        return (sys.executable, *_MODULE, *arguments)
    from burnish_engine.contract.paths import user_data_dir
    from burnish_engine.install.engines import engine_python

    python = engine_python(user_data_dir())
    return () if python is None else (str(python), *_MODULE, *arguments)
