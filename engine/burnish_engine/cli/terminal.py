"""What all commands share in talking to a terminal: consoles, errors, number formats."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.markup import escape

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def say_error(paragraph: str) -> None:
    """One paragraph on standard error."""
    err.print(f"[bold red]burnish:[/] {escape(paragraph)}")


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
