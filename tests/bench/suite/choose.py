"""Chooses the quick suite: the tests that execute the most lines for their time, cheapest first.

python tests/bench choose RECORD --minutes 7 [--always FILE] [--write]

RECORD is the folder that `record` filled. Cheap test functions are taken whole. The others are taken by lines gained
for their time: a line counts once, and a quarter more when a second test executes it. Of a function with many cases
first one is taken, then twice as many, spread evenly. What time is left goes to the cheapest. FILE names tests, one a
line, that are taken in any case: those that caught a fault that others missed. `--write` marks the rest in the tests'
source: `@pytest.mark.full` leaves a function out of the quick suite, and `@pytest.mark.quick_cases(3)` leaves it three
cases. RECORD/quick.txt gets the tests that are chosen.
"""

from __future__ import annotations

import argparse
import heapq
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.suite.recorded import Record
from support.quick import evenly

ROOT = Path(__file__).resolve().parents[3]
SECOND_TEST = 0.25
"""Worth of a line that a second function executes; the first one counts 1."""
CHEAP_S = 0.05
"""Processor time of a function's cases on average, in seconds, up to which all of them are taken."""
LEAST_WORTH = 5.0
"""Lines that a second of further tests has to gain; below it the cheapest tests are taken instead."""
LEAST_S = 0.004
"""Least processor time of a test, in seconds: pytest's own work."""
ALWAYS = ("tests/test_", "tests/assets/")
"""Beginnings of tests that are about text and structure, and execute few lines of the source: all are quick."""
MARK = re.compile(r"^\s*@pytest\.mark\.(full|quick_cases\(\d+\))$")


@dataclass
class Unit:
    """A test function with its cases, in the order of collection.

    Attributes:
        name: node id without the case.
        cases: node ids.
        lines: by case, the lines it executes, as a set of bits.
        seconds: by case, its processor time.
        taken: number of cases in the quick suite.
    """

    name: str
    cases: list[str]
    lines: list[int]
    seconds: list[float]
    taken: int = 0

    def chosen(self, count: int) -> list[int]:
        """Return the indices of `count` cases."""
        return evenly(len(self.cases), count)

    def bits(self, count: int) -> int:
        """Return the lines that `count` cases execute together."""
        found = 0
        for at in self.chosen(count):
            found |= self.lines[at]
        return found

    def cost(self, count: int) -> float:
        """Return the processor time of `count` cases, in seconds."""
        return sum(self.seconds[at] for at in self.chosen(count))

    @property
    def mean_s(self) -> float:
        """Return the processor time of a case on average, in seconds."""
        return sum(self.seconds) / len(self.seconds)

    def steps(self) -> Iterator[int]:
        """Yield the next larger numbers of cases."""
        count = max(self.taken * 2, 1)
        while count < len(self.cases):
            yield count
            count *= 2
        if self.taken < len(self.cases):
            yield len(self.cases)


def main() -> int:
    """Choose, print what each folder costs and keeps, and mark the source where asked to."""
    parser = argparse.ArgumentParser(prog="choose", description=__doc__.splitlines()[0])
    parser.add_argument("record", type=Path)
    parser.add_argument("--minutes", type=float, required=True, help="processor time of the chosen tests, as recorded")
    parser.add_argument("--always", type=Path)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    record = Record.load(arguments.record)
    always = set(arguments.always.read_text(encoding="utf-8").split("\n")) if arguments.always else set()
    units = make_units(record)
    choose(units, arguments.minutes * 60, always)
    quick = [unit.cases[at] for unit in units for at in unit.chosen(unit.taken)]
    (arguments.record / "quick.txt").write_text("\n".join(quick) + "\n", encoding="utf-8")
    print(table(units))
    if arguments.write:
        write_marks(units)
    return 0


def make_units(record: Record) -> list[Unit]:
    """Return the test functions of a record."""
    numbers: dict[tuple[str, int], int] = {}
    bits: dict[str, int] = defaultdict(int)
    for file, by_test in record.lines.items():
        at = {line: numbers.setdefault((file, line), len(numbers)) for line in record.lines_of(file)}
        for test, lines in by_test.items():
            mask = bytearray(len(numbers) // 8 + 1)
            for line in lines:
                mask[at[line] // 8] |= 1 << at[line] % 8
            bits[test] |= int.from_bytes(mask, "little")
    cases: dict[str, list[str]] = defaultdict(list)
    for test in record.collected():
        cases[test.partition("[")[0]].append(test)
    return [
        Unit(name, tests, [bits[test] for test in tests], [max(record.seconds_of(test), LEAST_S) for test in tests])
        for name, tests in cases.items()
    ]


class Chooser:
    """Takes cases of test functions until a processor time is used up.

    Args:
        budget_s: processor time of all that are taken, in seconds.
    """

    def __init__(self, budget_s: float) -> None:
        self.left_s = budget_s
        self._once = self._twice = 0  # lines that one and two functions execute, as sets of bits

    def take(self, unit: Unit, count: int) -> None:
        """Take the first `count` cases of a unit, spread evenly, in place of those that were taken."""
        gained = unit.bits(count)
        self.left_s -= unit.cost(count) - unit.cost(unit.taken)
        self._twice |= self._once & gained & ~unit.bits(unit.taken)
        self._once |= gained
        unit.taken = count

    def best(self, unit: Unit) -> tuple[float, int]:
        """Return what a unit's best next step gains for its time, and its number of cases; 0: there is none."""
        return max(((self._worth(unit, count), count) for count in unit.steps()), default=(0.0, 0))

    def fits(self, unit: Unit, count: int) -> bool:
        """Return whether there is time left for so many cases."""
        return unit.cost(count) - unit.cost(unit.taken) <= self.left_s

    def _worth(self, unit: Unit, count: int) -> float:
        gained = unit.bits(count) & ~unit.bits(unit.taken)
        new, second = (gained & ~self._once).bit_count(), (gained & self._once & ~self._twice).bit_count()
        return (new + SECOND_TEST * second) / (unit.cost(count) - unit.cost(unit.taken) + 1e-6)


def choose(units: list[Unit], budget_s: float, always: set[str]) -> None:
    """Set how many cases of each unit are taken.

    Args:
        units: test functions.
        budget_s: processor time of all that are taken, in seconds.
        always: node ids of tests, or of functions, that are taken in any case.
    """
    chooser = Chooser(budget_s)
    for unit in units:
        if unit.name in always or unit.name.startswith(ALWAYS) or unit.mean_s <= CHEAP_S:
            chooser.take(unit, len(unit.cases))
        elif needed := {at for at, case in enumerate(unit.cases) if case in always}:
            counts = range(1, len(unit.cases) + 1)
            chooser.take(unit, next(count for count in counts if needed <= set(unit.chosen(count))))
    heap = [(-chooser.best(unit)[0], index) for index, unit in enumerate(units)]
    heapq.heapify(heap)
    while heap:
        expected, index = heapq.heappop(heap)
        value, count = chooser.best(units[index])
        if value < LEAST_WORTH:
            continue
        if value < -expected and heap and value < -heap[0][0]:  # others took its lines meanwhile
            heapq.heappush(heap, (-value, index))
        elif chooser.fits(units[index], count):
            chooser.take(units[index], count)
            heapq.heappush(heap, (-chooser.best(units[index])[0], index))
    for unit in sorted(units, key=lambda one: one.mean_s):
        if chooser.fits(unit, len(unit.cases)):
            chooser.take(unit, len(unit.cases))


def table(units: list[Unit]) -> str:
    """Return tests, time and lines of the whole and the quick suite by folder."""
    folders: dict[str, list[Unit]] = defaultdict(list)
    for unit in units:
        folders["/".join(unit.name.partition("::")[0].split("/")[:3])].append(unit)
    lines = [f"{'folder':40} {'tests':>6} {'quick':>6} {'s':>7} {'quick':>7} {'lines':>6} {'quick':>6}"]
    for folder, inside in [*sorted(folders.items()), ("all", units)]:
        whole = quick = 0
        for unit in inside:
            whole |= unit.bits(len(unit.cases))
            quick |= unit.bits(unit.taken)
        counts = sum(len(unit.cases) for unit in inside), sum(unit.taken for unit in inside)
        seconds = sum(sum(unit.seconds) for unit in inside), sum(unit.cost(unit.taken) for unit in inside)
        lines.append(
            f"{folder:40} {counts[0]:6} {counts[1]:6} {seconds[0]:7.1f} {seconds[1]:7.1f} "
            f"{whole.bit_count():6} {quick.bit_count():6}"
        )
    return "\n".join(lines)


def write_marks(units: list[Unit]) -> None:
    """Mark in the tests' source what the quick suite leaves out; tests that were not recorded keep their marks."""
    by_file: dict[Path, dict[str, str]] = defaultdict(dict)
    for unit in units:
        path, *names = unit.name.split("::")
        mark = f"quick_cases({unit.taken})" if unit.taken else "full"
        by_file[ROOT / path]["::".join(names)] = mark if unit.taken < len(unit.cases) else ""
    for path, marks in by_file.items():
        before = path.read_text(encoding="utf-8")
        after = marked(before, marks)
        if after != before:
            path.write_text(after, encoding="utf-8")


def marked(source: str, marks: Mapping[str, str]) -> str:
    """Return the source of a test file in which functions have these marks for the quick suite.

    Args:
        source: source of the file.
        marks: mark by function, such as "test_a" or "TestIt::test_b"; empty: it has none. Others keep theirs.
    """
    lines = source.splitlines(keepends=True)
    owner, pending, found = "", [], []  # lines of decorators that wait for their function
    for line in lines:
        if name := re.match(r"class (\w+)", line):
            owner = name[1]
        elif re.match(r"(async )?def ", line):
            owner = ""
        if re.match(r"\s*@", line) or (pending and not re.match(r"\s*(async )?(def|class) ", line)):
            pending.append(line)
            continue
        function = re.match(r"(\s*)(?:async )?def (test_\w+)\(", line)
        key = f"{owner}::{function[2]}" if function and owner and function[1] else function and function[2]
        if function and key in marks:
            pending = [one for one in pending if not MARK.match(one.rstrip("\n"))]
            if marks[key]:
                pending.insert(0, f"{function[1]}@pytest.mark.{marks[key]}\n")
        found += [*pending, line]
        pending = []
    text = "".join([*found, *pending])
    if "@pytest.mark." in text and not re.search(r"^import pytest$", text, re.M):
        text = _with_import(text)
    return text


def _with_import(text: str) -> str:
    """Return the source with `import pytest` before its first import; ruff sorts it in."""
    at = re.search(r"^(import|from) (?!__future__)", text, re.M)
    place = at.start() if at else text.index('"""\n', 3) + 4
    return f"{text[:place]}import pytest\n{text[place:]}"


if __name__ == "__main__":
    sys.exit(main())
