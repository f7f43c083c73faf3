"""Reports about bugs, to be sent to the maintainers by hand: one text file, without data, paths and secrets.

Command line and window write one for an exception that nobody expected. Nothing is ever sent.
"""

from __future__ import annotations

import os
import platform
import re
import time
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from burnish_engine.contract.cleaned_text import last_lines, without_paths, without_secrets
from burnish_engine.contract.files import make_private, read_plain, write_atomic
from burnish_engine.contract.paths import user_data_dir
from burnish_engine.contract.version import burnish_version

PACKAGES = (
    *("torch", "triton", "triton-windows", "transformers", "peft", "tokenizers", "safetensors", "numpy", "pyarrow"),
    *("llama-cpp-python", "PySide6-Essentials", "pyqtgraph"),
)
"""Packages whose versions a report names."""
_LOG_LINES = 200
_MOST_KEPT = 20
"""Reports that are kept; the oldest go first."""
_KERNEL_MODULE = Path("/proc/driver/nvidia/version")
_CHOICE = re.compile(r"[a-z0-9_]{1,24}")
"""A text of a recipe that can be nothing but the name of a choice, or of a key."""
_DATA_SECTIONS = {"data", "task"}


def last_error_file() -> Path:
    """Path of the report about the last bug in a command."""
    return user_data_dir() / "last-error.log"


def versions() -> dict[str, str]:
    """Versions of Burnish, Python and the packages it stands on, and of NVIDIA's driver where Linux tells it."""
    found = {"Burnish": burnish_version(), "Python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    with suppress(OSError):
        driver = re.search(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", _KERNEL_MODULE.read_text(encoding="utf-8"))
        found |= {"NVIDIA driver": driver[1]} if driver else {}
    return found


def failure_report(
    what: str,
    details: str,
    *,
    logs: Sequence[Path] = (),
    recipe: Path | None = None,
    more: Mapping[str, str] | None = None,
) -> str:
    """Write a report.

    Args:
        what: what was done, such as the command.
        details: what went wrong, such as a traceback.
        logs: logs whose last lines belong to it.
        recipe: recipe file whose settings belong to it.
        more: further facts, by their names.
    """
    facts = {
        "What": what,
        "Time": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "System": f"{platform.system()} {platform.release()} {platform.machine()}",
        **(more or {}),
        **versions(),
    }
    parts = [("Facts", "\n".join(f"{name}: {value}" for name, value in facts.items())), ("Details", details.strip())]
    parts += [(f"Last lines of {log.name}", last_lines(log, _LOG_LINES)) for log in logs]
    parts += [("Recipe, without data and texts", _settings(recipe))] if recipe else []
    return "\n\n".join(f"== {title} ==\n{masked(text)}" for title, text in parts if text) + "\n"


def masked(text: str) -> str:
    """Return the text without secrets, and without the names of folders and files of the person's own."""
    return without_paths(without_secrets(text))


def save_report(text: str) -> Path:
    """Write a report into a file of its own in the user data folder; returns the file.

    Raises:
        OSError: The folder cannot be made.
        NoSpaceError: The file cannot be written.
    """
    folder = user_data_dir() / "reports"
    make_private(folder)
    for old in sorted(folder.glob("report-*.txt"))[: -_MOST_KEPT + 1]:
        old.unlink(missing_ok=True)
    path = folder / f"report-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    write_atomic(path, text.encode("utf-8", "replace"))
    return path


def _settings(recipe: Path) -> str:
    try:
        sections = tomllib.loads(read_plain(recipe))
    except (OSError, ValueError, RecursionError) as error:
        return f"It cannot be read: {type(error).__name__}."
    return "\n".join(
        line for name, value in sections.items() if name not in _DATA_SECTIONS for line in _lines(_key(name), value)
    )


def _lines(name: str, value: Any) -> list[str]:
    if isinstance(value, dict):
        return [line for key, below in value.items() for line in _lines(f"{name}.{_key(key)}", below)]
    if isinstance(value, bool | int | float):
        return [f"{name} = {str(value).lower()}"]
    if isinstance(value, str) and _CHOICE.fullmatch(value):
        return [f"{name} = {value}"]
    return [f"{name} = <{type(value).__name__}>"]


def _key(name: str) -> str:
    """Return a key, unless it is none that a recipe can have: then it is a text of the person's own."""
    return name if _CHOICE.fullmatch(name) else "<key>"
