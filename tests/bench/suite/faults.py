"""Plants faults, one at a time, and counts which of them the quick suite catches of those that the whole suite does.

python tests/bench faults RECORD                     plant all of `faults.jsonl` that have no outcome yet
python tests/bench faults RECORD --propose 120       print that many new ones, spread over all rooms

RECORD is the folder that `record` filled. For each fault it says which tests execute the changed line; only those run,
the quick ones first, the cheapest first, and the first that fails ends it. A fault is caught by the whole suite where
any of them fails within `--most-s`; a test that fails without a fault too counts for none. Outcomes are kept in
RECORD/outcomes.jsonl, so a later start continues; the table at the end counts them by room. A fault that changes no
behavior is marked `"equal"` in `faults.jsonl`, with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue

from bench.suite.mutate import mutations
from bench.suite.recorded import Record, room_of

ROOT = Path(__file__).resolve().parents[3]
LISTED = Path(__file__).with_name("faults.jsonl")
COPIED = ("app", "engine", "kernels", "packaging", "assets", "tests", ".ci")
_HANGS_S = 900
FIRST_S = 20.0
"""Processor time of the tests that the first pytest of a fault gets; each further one gets three times as much."""


@dataclass(frozen=True)
class Fault:
    """A change of one place in the source.

    Attributes:
        file: path from the repository's root.
        line: number of the line that changes, from 1.
        old: text of that line.
        new: text in its place; it may have several lines.
        kind: what is changed, such as "comparison".
        equal: why the change changes no behavior; empty where it does.
    """

    file: str
    line: int
    old: str
    new: str
    kind: str
    equal: str = ""

    @property
    def name(self) -> str:
        """Return what identifies the fault in outcomes."""
        return f"{self.file}:{self.old.strip()}->{self.new.strip()}"


def main() -> int:
    """Plant faults and print the table, or print new faults."""
    parser = argparse.ArgumentParser(prog="faults", description=__doc__.splitlines()[0])
    parser.add_argument("record", type=Path)
    parser.add_argument("--propose", type=int, metavar="N", help="print N new faults instead")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="faults planted at a time, each in a copy")
    parser.add_argument("--most-s", type=float, default=150.0, help="processor time of a fault's tests")
    arguments = parser.parse_args()
    record = Record.load(arguments.record)
    if arguments.propose:
        for fault in propose(record, arguments.propose, arguments.seed):
            print(json.dumps({key: value for key, value in asdict(fault).items() if value}))
        return 0
    faults = [Fault(**line) for line in _lines(LISTED)]
    campaign = Campaign(record, arguments.record, arguments.most_s)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.jobs):
            campaign.copies.put(_copy(Path(folder) / str(number)))
        while waiting := [fault for fault in faults if fault.name not in campaign.outcomes and not fault.equal]:
            with ThreadPoolExecutor(arguments.jobs) as pool:
                list(pool.map(campaign.try_one, waiting))
            campaign.forget_unsound()
    print(table([(fault, campaign.outcomes[fault.name]) for fault in faults if not fault.equal]))
    return 0


class Campaign:
    """Faults planted in copies of the repository, and what came of each.

    Args:
        record: which tests execute which lines.
        folder: folder of the record, where outcomes are kept.
        most_s: processor time of a fault's tests, seconds.

    Attributes:
        copies: folders to plant in.
        outcomes: what came of each fault, by its name.
    """

    def __init__(self, record: Record, folder: Path, most_s: float) -> None:
        self._record, self._most_s = record, most_s
        self._kept, self._unsound_kept = folder / "outcomes.jsonl", folder / "unsound.txt"
        self._unsound = set(_text_lines(self._unsound_kept))
        self._unsound |= record.seconds.keys() - set(record.collected())  # tests that are not there any more
        self.copies: Queue[Path] = Queue()
        self.outcomes = {str(line["name"]): line for line in _lines(self._kept)}

    def try_one(self, fault: Fault) -> None:
        """Plant one fault, and keep what came of it."""
        outcome = plant(fault, self._record, self.copies, self._most_s, self._unsound)
        self.outcomes[fault.name] = outcome
        with self._kept.open("a", encoding="utf-8") as file:
            file.write(json.dumps(outcome) + "\n")
        print(json.dumps(outcome), flush=True)

    def forget_unsound(self) -> None:
        """Drop the outcomes of tests that fail without any fault too, and leave these out from now on."""
        fallen = {str(one["test"]).partition(" ")[2] for one in self.outcomes.values() if one["whole"]}
        known = sorted(test for test in fallen if test.startswith("tests/"))
        copy = self.copies.get()
        unsound = {test.partition(" ")[2] for test in failures(copy, known, first=False)}
        self.copies.put(copy)
        self._unsound |= unsound
        with self._unsound_kept.open("a", encoding="utf-8") as file:
            file.writelines(f"{test}\n" for test in sorted(unsound))
        for name in [name for name, one in self.outcomes.items() if str(one["test"]).partition(" ")[2] in unsound]:
            del self.outcomes[name]
        lines = (json.dumps(outcome) + "\n" for outcome in self.outcomes.values())
        self._kept.write_text("".join(lines), encoding="utf-8")


def propose(record: Record, count: int, seed: int) -> Iterator[Fault]:
    """Yield faults on lines that some test executes, the rooms by turns."""
    import random

    chance = random.Random(seed)
    by_room: dict[str, list[Fault]] = {}
    for file in record.files():
        source = (ROOT / file).read_text(encoding="utf-8")
        lines = source.splitlines()
        tested = record.lines_of(file)
        for line, new, kind in mutations(source):
            if line in tested:
                by_room.setdefault(room_of(file), []).append(Fault(file, line, lines[line - 1], new, kind))
    for faults in by_room.values():
        chance.shuffle(faults)
    given: Counter[str] = Counter()  # faults by file and by kind: those that had few come first
    used: set[tuple[str, int]] = set()
    while any(by_room.values()):
        for faults in by_room.values():
            fresh = [one for one in faults if (one.file, one.line) not in used]
            faults[:] = sorted(fresh, key=lambda one: (given[one.file], given[one.kind]))
            if faults and len(used) < count:
                fault = faults.pop(0)
                used.add((fault.file, fault.line))
                given.update((fault.file, fault.kind))
                yield fault
        if len(used) >= count:
            return


def plant(
    fault: Fault, record: Record, copies: Queue[Path], most_s: float, unsound: Collection[str]
) -> dict[str, object]:
    """Return what came of one fault: whether quick and whole suite caught it, the test that fell, and seconds.

    Args:
        fault: fault to plant.
        record: which tests execute which lines.
        copies: copies of the repository, of which one is used.
        most_s: processor time of the tests, in seconds.
        unsound: tests that say nothing, since they fail without a fault too.
    """
    outcome: dict[str, object] = {"name": fault.name, "quick": False, "whole": False, "test": "", "seconds": 0.0}
    copy = copies.get()
    file = copy / fault.file
    before = file.read_text(encoding="utf-8")
    lines = before.splitlines(keepends=True)
    places = [at for at, line in enumerate(lines) if line.rstrip("\n") == fault.old]
    if not places:
        copies.put(copy)
        return {**outcome, "test": "stale: the line is not there any more"}
    at = min(places, key=lambda place: abs(place + 1 - fault.line))
    lines[at] = fault.new + "\n"
    began = time.perf_counter()
    try:
        file.write_text("".join(lines), encoding="utf-8")
        for quick in (True, False):
            executing = [test for test in record.tests_of(fault.file, fault.line) if test not in unsound]
            tests = [test for test in executing if record.is_quick(test) == quick]
            fallen = _first_failure(copy, tests, record, most_s)
            if fallen:
                outcome |= {"quick": quick, "whole": True, "test": fallen}
                break
    finally:
        file.write_text(before, encoding="utf-8")
        copies.put(copy)
    return {**outcome, "seconds": round(time.perf_counter() - began, 1)}


def _first_failure(copy: Path, tests: list[str], record: Record, most_s: float) -> str:
    """Return the first test that fails, running ever larger batches of them; empty where none does."""
    left, batch_s, spent = sorted(tests, key=record.seconds_of), FIRST_S, 0.0
    while left and spent < most_s:
        batch: list[str] = []
        taken = 0.0
        while left and len(batch) < 400 and (not batch or taken + record.seconds_of(left[0]) <= batch_s):
            taken += record.seconds_of(left[0])
            batch.append(left.pop(0))
        if fallen := failures(copy, batch):
            return fallen[0]
        spent += taken
        batch_s = min(3 * batch_s, most_s)
    return ""


def failures(copy: Path, tests: Sequence[str], *, first: bool = True) -> list[str]:
    """Return the tests of these that fail in a copy, such as "FAILED tests/test_a.py::test_b"; or only the first."""
    found: list[str] = []
    for kernels in (False, True):
        part = [test for test in tests if test.startswith("tests/kernels") == kernels]
        if part and not (first and found):
            found += _run(copy, part, interpreted=kernels, first=first)
    return found


def _run(copy: Path, tests: Iterable[str], *, interpreted: bool, first: bool) -> list[str]:
    """Return the tests that fail; where pytest itself did not get that far, its exit code."""
    listed = copy / "tests.txt"
    listed.write_text("\n".join(tests), encoding="utf-8")
    packages = [str(copy / part) for part in ("app", "engine", "kernels")]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(packages),
        "HF_HUB_OFFLINE": "1",
        "QT_QPA_PLATFORM": "offscreen",
        "OMP_NUM_THREADS": "1",
        **({"TRITON_INTERPRET": "1"} if interpreted else {}),
    }
    command = [sys.executable, "-m", "pytest", *(["-x"] if first else []), "-q", "-p", "no:cacheprovider"]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    try:
        done = subprocess.run(
            [*command, "--timeout=120", f"@{listed}"], cwd=copy, env=env, timeout=_HANGS_S, check=False, **output
        )
    except subprocess.TimeoutExpired:
        return ["no end"]
    if done.returncode == 0:
        return []
    said = [line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return said or [f"exit code {done.returncode}"]


def _copy(folder: Path) -> Path:
    folder.mkdir(parents=True)
    skipped = shutil.ignore_patterns("__pycache__", ".venv")
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name, ignore=skipped)
    for file in ROOT.iterdir():
        if file.is_file():
            shutil.copy2(file, folder / file.name)
    return folder


def table(outcomes: list[tuple[Fault, dict[str, object]]]) -> str:
    """Return the counts by room as a Markdown table."""
    rooms: dict[str, Counter[str]] = {}
    for fault, outcome in outcomes:
        counts = rooms.setdefault(room_of(fault.file), Counter())
        counts.update(planted=1, whole=bool(outcome["whole"]), quick=bool(outcome["quick"]))
    total: Counter[str] = sum(rooms.values(), Counter())
    lines = ["| room | planted | whole suite | quick suite |", "|---|---|---|---|"]
    for room, counts in [*sorted(rooms.items()), ("all", total)]:
        lines.append(f"| {room} | {counts['planted']} | {counts['whole']} | {counts['quick']} |")
    return "\n".join(lines)


def _text_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in _text_lines(path)]


if __name__ == "__main__":
    sys.exit(main())
