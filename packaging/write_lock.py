"""Writes the lock files from the environment of this repository: `.venv`'s Python runs `packaging/write_lock.py`.

Run it after a change of dependencies, on Linux with a finished `test` set-up. Versions that another system or build
needs cannot be read off here; they are carried over from the old file and listed in `CARRIED`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from choose_builds import TORCH_VERSION, TRITON_VERSION, TRITON_WINDOWS_VERSION

LOCK = Path(__file__).with_name("lock") / "constraints.txt"
CARRIED = {"torch": TORCH_VERSION, "triton": TRITON_VERSION, "triton-windows": TRITON_WINDOWS_VERSION}
_APART = {"pip", "wheel", "burnish", *CARRIED}


def lock_lines(freeze: str) -> list[str]:
    """Sorted `name==version` lines from pip freeze, local versions cut, paths and editable installs left out.

    Args:
        freeze: output of `pip freeze --all`.
    """
    pins = dict(CARRIED)
    for line in freeze.splitlines():
        name, found, version = line.strip().partition("==")
        if found and not name.startswith("#") and name.lower() not in _APART:
            pins[name] = version.split("+")[0]
    return [f"{name}=={pins[name]}" for name in sorted(pins, key=lambda name: name.lower().replace("_", "-"))]


if __name__ == "__main__":
    command = [sys.executable, "-m", "pip", "freeze", "--all", "--exclude-editable"]
    frozen = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    LOCK.write_text("\n".join(lock_lines(frozen)) + "\n", encoding="utf-8", newline="\n")
    print(f"{LOCK}: {len(lock_lines(frozen))} packages")
