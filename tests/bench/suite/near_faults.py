"""Plants new faults and runs the tests near them, by imports: it needs no record of the suite (Linux).

python tests/bench near_faults OUT --count 64 --seed 47

The rooms take turns; in each, a file is drawn, then one of its places, by the seed alone. The quick tests that import
the file run first, those of its own name before others, then tests that import its importers, then the tests marked
`full`. The first that fails ends it, as does `--most-s` of processor time, so what tests farther away would have caught
counts as missed. Libraries are loaded once: each pytest is a fork of this process. Outcomes are kept in OUT, so a later
start continues; a test that fails without the fault too catches nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from bench.suite.faults import LISTED, ROOT, Fault, copy_repository, table
from bench.suite.mutate import mutations
from bench.suite.recorded import room_of
from support.sources import files, modules, source

QUICK = "not gpu and not long and not full"
WHOLE = "full and not gpu and not long"
MOST_IMPORTERS = 14
"""Test files that run for a fault at most."""


def main() -> int:
    """Plant faults, keep what came of each, and print the table."""
    parser = argparse.ArgumentParser(prog="near_faults", description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="file of outcomes, JSON lines")
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--seed", type=int, default=47)
    parser.add_argument("--most-s", type=int, default=60, help="processor time of a fault's quick, and full, tests")
    parser.add_argument("--jobs", type=int, default=1, help="faults planted at a time, each in a copy")
    parser.add_argument("--again", action="store_true", help="plant those again that nothing caught")
    arguments = parser.parse_args()
    faults = drawn(arguments.count, arguments.seed)
    known = {one["name"]: one for one in _lines(arguments.out)}
    if arguments.again:
        known = {name: one for name, one in known.items() if one["whole"]}
    _load_libraries()
    tests_near(ROOT / faults[0].file)  # reads all sources, once for all forks
    waiting = [fault for fault in faults if fault.name not in known]
    workers = [_start_worker(waiting[part :: arguments.jobs], arguments) for part in range(arguments.jobs)]
    for worker in workers:
        os.waitpid(worker, 0)
    known |= {one["name"]: one for one in _lines(arguments.out)}
    forget_unsound(known)
    print(table([(fault, known[fault.name]) for fault in faults]))
    return 0


def forget_unsound(outcomes: dict[str, dict]) -> None:
    """Count as missed what only a test caught that fails without the fault too."""
    fallen = sorted({one["test"] for one in outcomes.values() if one["whole"]})
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_repository(Path(folder) / "copy")
        unsound = failures(copy, fallen, "not gpu and not long", 600, first=False) if fallen else []
    for one in outcomes.values():
        if one["test"] in unsound:
            one |= {"quick": False, "whole": False, "test": f"fails without it too: {one['test']}"}


def _start_worker(faults: list[Fault], arguments: argparse.Namespace) -> int:
    """Return the id of a fork of this process that plants faults in a copy of its own."""
    if child := os.fork():
        return child
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_repository(Path(folder) / "copy")
        for fault in faults:
            outcome = planted(fault, copy, arguments.most_s)
            with arguments.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**asdict(fault), **outcome}) + "\n")
    os._exit(0)


def drawn(count: int, seed: int) -> list[Fault]:
    """Return faults by the seed alone: the rooms by turns, of each room a file, of that a place."""
    chance = random.Random(seed)
    listed = {(line["file"], line["old"]) for line in _lines(LISTED)}
    by_room: dict[str, list[Path]] = {}
    for path in files():
        by_room.setdefault(room_of(str(path.relative_to(ROOT))), []).append(path)
    found: list[Fault] = []
    while len(found) < count:
        for room in sorted(by_room):
            if len(found) < count and (fault := _in_room(by_room[room], chance, listed)):
                listed.add((fault.file, fault.old))
                found.append(fault)
    return found


def _in_room(paths: list[Path], chance: random.Random, listed: set[tuple[str, str]]) -> Fault | None:
    """Return a fault in one of these files; None where no place is left."""
    for path in chance.sample(paths, len(paths)):
        text, file = source(path).text, str(path.relative_to(ROOT))
        lines = text.splitlines()
        places = [Fault(file, at, lines[at - 1], new, kind) for at, new, kind in mutations(text)]
        places = [fault for fault in places if (fault.file, fault.old) not in listed and fault.old != fault.new]
        if places:
            return chance.choice(places)
    return None


def planted(fault: Fault, copy: Path, most_s: int) -> dict[str, object]:
    """Return what came of one fault: whether quick and whole suite caught it, and the test that fell."""
    file = copy / fault.file
    before = file.read_text(encoding="utf-8")
    lines = before.splitlines(keepends=True)
    lines[fault.line - 1] = fault.new + "\n"
    tests = tests_near(ROOT / fault.file)
    outcome: dict[str, object] = {"name": fault.name, "quick": False, "whole": False, "test": "", "tests": len(tests)}
    _write(file, "".join(lines))
    try:
        for marked in (QUICK, WHOLE):
            for first, behind in ((0, 1), (1, 3), (3, 7), (7, len(tests))):  # most fall to the nearest file
                some = tests[first:behind]
                if some and (fallen := failures(copy, some, marked, most_s)):
                    return {**outcome, "quick": marked == QUICK, "whole": True, "test": fallen[0]}
    finally:
        _write(file, before)
    return outcome


def _write(file: Path, text: str) -> None:
    """Write a source file so that no byte code of another text is taken for its own."""
    after = file.stat().st_mtime_ns + 2 * 10**9
    file.write_text(text, encoding="utf-8")
    os.utime(file, ns=(after, after))


def tests_near(path: Path) -> list[str]:
    """Return test files by nearness: those named like the file, that import it, and that import its importers."""
    importers = _importers()
    module = next((name for name, known in modules().items() if known == path), path.stem)
    own = {name for name, known in modules().items() if known == path.parent / "__init__.py"}
    first = [test for name in (module, *own) for test in importers.get(name, ())]
    second = [
        test for middle, imported in _imports().items() if module in imported for test in importers.get(middle, ())
    ]
    named = [test for test in _tests() if test.stem == f"test_{path.stem}" or test.parent.name == path.parent.name]
    mirrored = sorted(named, key=lambda test: (test.stem != f"test_{path.stem}", test.stat().st_size))
    ranked = [*mirrored[:4], *sorted(first, key=_size), *mirrored[4:], *sorted(second, key=_size)]
    return [str(test.relative_to(ROOT)) for test in dict.fromkeys(ranked)][:MOST_IMPORTERS]


def _size(path: Path) -> int:
    return path.stat().st_size


def _tests() -> list[Path]:
    return sorted((ROOT / "tests").rglob("test_*.py"))


def _imports() -> dict[str, set[str]]:
    return {module: set(source(path).imports) for module, path in modules().items()}


def _importers() -> dict[str, list[Path]]:
    """Return the test files that import each module."""
    found: dict[str, list[Path]] = {}
    for test in _tests():
        for name in dict.fromkeys(source(test).imports):
            found.setdefault(name, []).append(test)
    return found


def failures(copy: Path, tests: list[str], marked: str, most_s: int, *, first: bool = True) -> list[str]:
    """Return the tests that fail in a fork of this process, or only the first; the files where pytest itself ended."""
    said = copy / "said.txt"
    child = os.fork()
    if child == 0:
        _run_tests(copy, tests, [*(["-x"] if first else []), "-m", marked], most_s, said)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code in {0, 5, -signal.SIGXCPU}:  # passed, nothing selected, out of processor time
        return []
    lines = _text_lines(said)
    return [line.split(" - ")[0].split(" ", 1)[1] for line in lines if line[:6] in {"FAILED", "ERROR "}] or tests


def _run_tests(copy: Path, tests: list[str], options: list[str], most_s: int, said: Path) -> None:
    """Run pytest in this process, which ends with it."""
    import pytest

    code = 70
    with contextlib.suppress(BaseException):
        resource.setrlimit(resource.RLIMIT_CPU, (most_s, most_s + 5))
        os.chdir(copy)
        packages = [str(copy / part) for part in ("app", "engine", "kernels", "packaging")]
        sys.path[:] = [*packages, *(one for one in sys.path if not one.startswith(str(ROOT)))]
        ours = ("burnish", "bench", "support")
        for name in [name for name in sys.modules if name.startswith(ours)]:
            del sys.modules[name]
        os.environ |= {"PYTHONPATH": os.pathsep.join(packages), "HF_HUB_OFFLINE": "1", "QT_QPA_PLATFORM": "offscreen"}
        if any(test.startswith("tests/kernels") for test in tests):
            os.environ["TRITON_INTERPRET"] = "1"
        with said.open("w", encoding="utf-8") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        code = pytest.main(["-q", "-p", "no:cacheprovider", "--timeout=400", *options, *tests])
    sys.stdout.flush()
    os._exit(int(code))


def _load_libraries() -> None:
    """Import what most tests import, before any thread starts."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in ("hypothesis", "torch", "transformers.modeling_utils", "peft", "PySide6.QtWidgets", "pytestqt"):
        with contextlib.suppress(ImportError):
            __import__(name)


def _text_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _lines(path: Path) -> Iterator[dict]:
    return (json.loads(line) for line in _text_lines(path))


if __name__ == "__main__":
    sys.exit(main())
