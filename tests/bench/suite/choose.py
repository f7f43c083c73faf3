"""Chooses the quick suite: the tests that execute the most lines for their time, cheapest first.

python tests/bench choose RECORD --minutes 7 [--always FILE] [--write]

RECORD is the folder that `record` filled. Test functions are taken by lines gained for their time: a line counts once,
and a quarter more when a second test executes it. Of a function with many cases first one is taken, then twice as many,
spread evenly. FILE names tests, one a line, that are taken in any case: those that caught a fault that others missed.
`--write` marks the rest in the tests' source: `@pytest.mark.full` leaves a function out of the quick suite, and
`@pytest.mark.quick_cases(3)` leaves it three cases. RECORD/quick.txt gets the tests that are chosen.
"""

from __future__ import annotations

import argparse
import heapq
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.suite.recorded import Record
from support.quick import evenly

ROOT = Path(__file__).resolve().parents[3]
SECOND_TEST = 0.25
"""What a line counts when a second function executes it."""
LEAST_S = 0.004
"""What a test costs at least, in seconds: pytest's own work."""
MARK = re.compile(r"^@pytest\.mark\.(full|quick_cases\(\d+\))\n", re.M)


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


def choose(units: list[Unit], budget_s: float, always: set[str]) -> None:
    """Set how many cases of each unit are taken.

    Args:
        units: test functions.
        budget_s: processor time of all that are taken, in seconds.
        always: node ids of tests, or of functions, that are taken in any case.
    """
    once = twice = 0
    spent = 0.0

    def take(unit: Unit, count: int) -> None:
        nonlocal once, twice, spent
        gained = unit.bits(count)
        spent += unit.cost(count) - unit.cost(unit.taken)
        twice |= once & gained & ~unit.bits(unit.taken)
        once |= gained
        unit.taken = count

    def worth(unit: Unit, count: int) -> float:
        gained = unit.bits(count) & ~unit.bits(unit.taken)
        new, second = (gained & ~once).bit_count(), (gained & once & ~twice).bit_count()
        return (new + SECOND_TEST * second) / (unit.cost(count) - unit.cost(unit.taken) + 1e-6)

    def best(unit: Unit) -> tuple[float, int]:
        return max(((worth(unit, count), count) for count in unit.steps()), default=(0.0, 0))

    for unit in units:
        needed = [at for at, case in enumerate(unit.cases) if {case, unit.name} & always]
        if needed:
            counts = range(1, len(unit.cases) + 1)
            take(unit, next(n for n in counts if unit.name in always or set(needed) <= set(unit.chosen(n))))
    heap = [(-worth_count[0], index) for index, unit in enumerate(units) if (worth_count := best(unit))[1]]
    heapq.heapify(heap)
    while heap:
        stale, index = heapq.heappop(heap)
        value, count = best(units[index])
        if not count or value <= 0:
            continue
        if -stale > value * 1.0001 and heap and value < -heap[0][0]:
            heapq.heappush(heap, (-value, index))
            continue
        unit = units[index]
        if spent + unit.cost(count) - unit.cost(unit.taken) > budget_s:
            continue
        take(unit, count)
        heapq.heappush(heap, (-best(unit)[0], index))
    for unit in sorted(units, key=lambda one: one.cost(len(one.cases)) / len(one.cases)):
        whole = unit.cost(len(unit.cases)) - unit.cost(unit.taken)
        if spent + whole <= budget_s and unit.taken < len(unit.cases):
            take(unit, len(unit.cases))


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
    """Mark in the tests' source what the quick suite leaves out; marks from before go."""
    wanted: dict[Path, dict[str, str]] = defaultdict(dict)
    for unit in units:
        path, *names = unit.name.split("::")
        if unit.taken < len(unit.cases):
            mark = f"quick_cases({unit.taken})" if unit.taken else "full"
            wanted[ROOT / path]["::".join(names)] = mark
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        before = path.read_text(encoding="utf-8")
        after = marked(MARK.sub("", before), wanted.get(path, {}))
        if after != before:
            path.write_text(after, encoding="utf-8")


def marked(source: str, marks: dict[str, str]) -> str:
    """Return the source of a test file with a mark above each function that has one."""
    lines = source.splitlines(keepends=True)
    places: dict[int, str] = {}
    owner = ""
    for number, line in enumerate(lines):
        if found := re.match(r"class (\w+)", line):
            owner = found[1]
        elif line.startswith("def "):
            owner = ""
        if found := re.match(r"(\s*)(?:async )?def (test_\w+)\(", line):
            name = f"{owner}::{found[2]}" if owner and found[1] else found[2]
            if name in marks:
                places[_first_decorator(lines, number)] = f"{found[1]}@pytest.mark.{marks[name]}\n"
    text = "".join(places.get(number, "") + line for number, line in enumerate(lines))
    if places and not re.search(r"^import pytest$", text, re.M):
        text = _with_import(text)
    return text


def _first_decorator(lines: list[str], number: int) -> int:
    """Return the index of the first line of a function's decorators."""
    indent = len(lines[number]) - len(lines[number].lstrip())
    at = number
    while at and lines[at - 1].strip():
        at -= 1
        if lines[at].startswith(" " * indent + "@"):
            number = at
    return number


def _with_import(text: str) -> str:
    """Return the source with `import pytest` before its first import; ruff sorts it in."""
    at = re.search(r"^(import|from) (?!__future__)", text, re.M)
    place = at.start() if at else text.index('"""\n', 3) + 4
    return f"{text[:place]}import pytest\n{text[place:]}"


if __name__ == "__main__":
    sys.exit(main())
