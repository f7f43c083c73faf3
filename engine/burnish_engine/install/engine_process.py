"""Environment and flags for programs of an engine, which no setting of another Python leads astray."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

NO_WINDOW: int = getattr(subprocess, "CREATE_NO_WINDOW", 0)
"""Flag with which Windows opens no console for a program."""
_LEADING_ASTRAY = ("PYTHON", "UV_", "PIP_", "CONDA_", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
"""Beginnings of the names of variables that make Python or uv read from, or write to, another place."""


def clean_env(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment for an engine's programs, without what would lead them to another Python."""
    kept = {name: value for name, value in env.items() if not name.upper().startswith(_LEADING_ASTRAY)}
    return kept | {"PYTHONUTF8": "1"}
