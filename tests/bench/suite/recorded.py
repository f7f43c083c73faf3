"""The record that `record` makes: tests by the lines that they execute, and their processor time."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_PHASE = re.compile(r" \((setup|call|teardown)\)$")


@dataclass
class Record:
    """Tests, lines and seconds of a recorded run of the whole suite.

    Attributes:
        lines: by file (path from the repository's root) and test, the lines that the test executes.
        seconds: processor time of each test.
        quick: tests of the quick suite.
    """

    lines: dict[str, dict[str, set[int]]]
    seconds: dict[str, float]
    quick: frozenset[str] = field(default_factory=frozenset)

    @classmethod
    def load(cls, folder: Path) -> Record:
        """Read what `record` left; `quick.txt` there, a test a line, says which tests are quick."""
        from coverage.numbits import numbits_to_nums

        lines: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        with closing(
            sqlite3.connect(folder / "coverage.db")
        ) as connection:  # one query in place of one a test and file
            for path, context, bits in connection.execute(
                "select file.path, context.context, line_bits.numbits from line_bits "
                "join file on file.id = line_bits.file_id join context on context.id = line_bits.context_id"
            ):
                test = _PHASE.sub("", context)
                if test and (file := _here(path)):
                    lines[file][test].update(numbits_to_nums(bits))
        if not lines:
            raise SystemExit(f"{folder} names no file of {ROOT}: record the suite here first.")
        seconds = json.loads((folder / "seconds.json").read_text(encoding="utf-8"))
        quick = folder / "quick.txt"
        named = frozenset(quick.read_text(encoding="utf-8").splitlines()) if quick.exists() else frozenset()
        return cls(lines, seconds, named)

    def files(self) -> list[str]:
        """Return the files of which any line was executed by a test."""
        return sorted(self.lines)

    def lines_of(self, file: str) -> set[int]:
        """Return the lines of a file that any test executes."""
        return set().union(*self.lines[file].values())

    def tests_of(self, file: str, line: int) -> list[str]:
        """Return the tests that execute a line; those that execute anything of the file where none does."""
        by_test = self.lines.get(file, {})
        return [test for test, lines in by_test.items() if line in lines] or list(by_test)

    def seconds_of(self, test: str) -> float:
        """Return a test's processor time; 1 s where it is not known."""
        return self.seconds.get(test, 1.0)

    def is_quick(self, test: str) -> bool:
        """Return whether a test is in the quick suite; every test is where no `quick.txt` was there."""
        return not self.quick or test in self.quick

    def collected(self) -> list[str]:
        """Return the tests with a time in the order of collection."""
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not gpu and not long"]
        printed = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
        return [line for line in printed.splitlines() if line in self.seconds]


@cache
def _here(path: str) -> str:
    """Return a recorded file's path from this repository's root, wherever it was recorded; empty where it is gone."""
    parts = Path(path).parts
    tails = ("/".join(parts[first:]) for first in range(1, len(parts)))
    return next((tail for tail in tails if (ROOT / tail).is_file()), "")


def room_of(file: str) -> str:
    """Return the room of a source file: its part of the engine, folder of the window, kernels or packaging."""
    parts = Path(file).parts
    if parts[0] in {"app", "engine"}:
        return f"{parts[0]}/{parts[2]}" if len(parts) > 3 else parts[0]
    return parts[0]
