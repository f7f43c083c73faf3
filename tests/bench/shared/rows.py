"""Rows of measurements: JSON objects, a line each, in a file that every call adds to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def add_row(path: Path, row: dict[str, Any]) -> None:
    """Add a row to a file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return all rows of a file; none where there is no file yet."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []


class Rows(list[dict[str, Any]]):
    """Rows that are printed as they come, and added to a file.

    Args:
        out: the file; None: none.
    """

    def __init__(self, out: Path | None) -> None:
        super().__init__()
        self._out = out

    def add(self, **row: Any) -> None:
        """Keep, print and write a row."""
        self.append(row)
        print(json.dumps(row), flush=True)
        if self._out is not None:
            add_row(self._out, row)
