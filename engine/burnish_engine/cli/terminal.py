"""What all commands share in talking to a terminal: consoles, errors, number formats."""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from burnish_engine.contract.paths import RunPaths, runs_dir

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def say_error(paragraph: str) -> None:
    """One paragraph on standard error."""
    err.print(f"[bold red]burnish:[/] {escape(paragraph)}")


def show_log() -> None:
    """Say on standard error what our own modules log: long work that nobody asked for by name."""
    logger = logging.getLogger("burnish_engine")
    if not any(isinstance(handler, _OnTerminal) for handler in logger.handlers):
        logger.addHandler(_OnTerminal())
        logger.setLevel(logging.INFO)
        logger.propagate = False  # the root's handler would say it again


class _OnTerminal(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        err.print(escape(record.getMessage()))


def typed(argument: str | Path) -> str:
    """An argument as a person types it into the shell: quoted where it holds spaces or the like."""
    text = str(argument)
    return subprocess.list2cmdline([text]) if os.name == "nt" else shlex.quote(text)


def typed_run(paths: RunPaths) -> str:
    """How a run is named in a command: by its name, or by its folder where that lies elsewhere."""
    here = paths.root.parent == runs_dir().absolute()
    return typed(paths.root.name if here else paths.root)


def print_json(text: str) -> None:
    """One JSON document on standard output, nothing else."""
    sys.stdout.write(text.rstrip("\n") + "\n")


def size(count: float) -> str:
    """Bytes for people: decimal units, as file managers and download pages use."""
    for unit in ("B", "kB", "MB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"
