"""Commands that measurements start, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from bench import ROOT

BURNISH = [sys.executable, "-m", "burnish_engine.cli.main"]
_MOST_ERROR = 900  # characters


def script(name: str, *words: object) -> list[str]:
    """Return the command that starts a measurement by name with these arguments."""
    return [sys.executable, str(ROOT / "tests" / "bench"), name, *map(str, words)]


def bench_step(settings: Sequence[object], **process: Any) -> dict[str, Any]:
    """Run `burnish bench step` and return its row; `error` holds the end of what it printed where it failed.

    Args:
        settings: options and values of the command.
        process: arguments of `subprocess.run` such as `env` and `cwd`.
    """
    command = [*BURNISH, "bench", "step", "--json", *map(str, settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **process)
    return json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr.strip()[-_MOST_ERROR:]}
