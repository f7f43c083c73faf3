"""Plants faults, one at a time, and counts which of them the quick suite catches of those that the whole suite does.

python tests/bench faults RECORD                     plant all of `faults.jsonl` that have no outcome yet
python tests/bench faults RECORD --propose 120       print that many new ones, spread over all rooms

RECORD is the folder that `record` filled. For each fault it says which tests execute the changed line; only those run,
the quick ones first, the cheapest first, and the first that fails ends it. A fault is caught by the whole suite where
any of them fails within `--most-s`. Outcomes are kept in RECORD/outcomes.jsonl, so a later start goes on; the table at
the end counts them by room. A fault that changes no behavior is marked `"equal"` in `faults.jsonl`, with the reason.
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
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue

from bench.suite.mutate import mutations
from bench.suite.recorded import Record, room_of

ROOT = Path(__file__).resolve().parents[3]
LISTED = Path(__file__).with_name("faults.jsonl")
COPIED = ("app", "engine", "kernels", "packaging", "assets", "tests", ".ci")
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
    kept = arguments.record / "outcomes.jsonl"
    known = {line["name"]: line for line in _lines(kept)}
    faults = [Fault(**line) for line in _lines(LISTED)]
    waiting = [fault for fault in faults if fault.name not in known and not fault.equal]
    copies: Queue[Path] = Queue()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.jobs):
            copies.put(_copy(Path(folder) / str(number)))
        with ThreadPoolExecutor(arguments.jobs) as pool:
            for outcome in pool.map(lambda fault: plant(fault, record, copies, arguments.most_s), waiting):
                known[outcome["name"]] = outcome
                with kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(outcome) + "\n")
                print(json.dumps(outcome), flush=True)
    print(table([(fault, known[fault.name]) for fault in faults if fault.name in known]))
    return 0


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
    given: Counter[str] = Counter()
    used: set[tuple[str, int]] = set()
    while sum(given.values()) < count and any(by_room.values()):
        for faults in by_room.values():
            fresh = [one for one in faults if (one.file, one.line) not in used]
            faults[:] = sorted(fresh, key=lambda one: (given[one.file], given[one.kind] // 4))
            if faults and sum(given.values()) - sum(given[key] for key in given if "/" not in key) < count:
                fault = faults.pop(0)
                used.add((fault.file, fault.line))
                given[fault.file] += 1
                yield fault
        if len(used) >= count:
            return


def plant(fault: Fault, record: Record, copies: Queue[Path], most_s: float) -> dict[str, object]:
    """Return what came of one fault: whether quick and whole suite caught it, the test that fell, and seconds."""
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
            tests = [test for test in record.tests_of(fault.file, fault.line) if record.is_quick(test) == quick]
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
        for kernels in (False, True):
            part = [test for test in batch if test.startswith("tests/kernels") == kernels]
            if part and (fallen := _run(copy, part, interpreted=kernels)):
                return fallen
        spent += taken
        batch_s = min(3 * batch_s, most_s)
    return ""


def _run(copy: Path, tests: Iterable[str], *, interpreted: bool) -> str:
    """Return the first test of these that fails in the copy; empty where all pass."""
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
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout=120", f"@{listed}"]
    try:
        done = subprocess.run(
            command,
            cwd=copy,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "hang"
    if done.returncode == 0:
        return ""
    said = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return said[0].split(" - ")[0] if said else f"exit code {done.returncode}"


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


def _lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


if __name__ == "__main__":
    sys.exit(main())
