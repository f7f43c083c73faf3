"""Records which lines each test executes and its processor time; `choose` and `faults` read the record.

python tests/bench record FOLDER [PATH ...]

FOLDER gets `coverage.db` (coverage.py's format; a context is a test) and `seconds.json` (processor time by test). It
takes about twice the time of `bash packaging/test.sh --all`, and needs `pip install coverage`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.suite.record_plugin import FOLDER

if TYPE_CHECKING:
    from run_checks import Check

ROOT = Path(__file__).resolve().parents[3]
STARTS = "import coverage\ncoverage.process_startup()\n"
SETTINGS = """
[run]
parallel = true
sigterm = true
data_file = {folder}/part
source_pkgs = burnish_app, burnish_engine, burnish_kernels
source = {root}/packaging
context = ${{PYTEST_CURRENT_TEST}}
disable_warnings = no-data-collected, module-not-imported, module-not-measured, couldnt-parse
"""


def main() -> int:
    """Run the tests part by part, then combine what their processes wrote."""
    parser = argparse.ArgumentParser(prog="record", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("paths", nargs="*", help="instead of all tests")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(STARTS, encoding="utf-8")
    settings = folder / "coverage.ini"
    settings.write_text(SETTINGS.format(folder=folder.as_posix(), root=ROOT.as_posix()), encoding="utf-8")
    sys.path.insert(0, str(ROOT / "packaging"))
    from run_checks import test_parts

    env = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "QT_QPA_PLATFORM": "offscreen",
        "COVERAGE_PROCESS_START": str(settings),
        FOLDER: str(folder),
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]),
    }
    parts = test_parts(os.cpu_count() or 1, every=True)
    if arguments.paths:
        parts = [replace(parts[0], arguments=["pytest", "-n", str(os.cpu_count() or 1), *arguments.paths])]
    lanes = [[(0, parts[0])], list(enumerate(parts))[1:]]
    with ThreadPoolExecutor() as pool:
        for _ in pool.map(lambda lane: [_run(number, part, folder, env) for number, part in lane], lanes):
            pass
    combine(folder)
    return 0


def _run(number: int, part: Check, folder: Path, env: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", *part.arguments, "-p", "bench.suite.record_plugin"]
    with (folder / f"log-{number}.txt").open("wb") as log:
        subprocess.run(command, env={**part.env, **env}, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, check=False)


def combine(folder: Path) -> None:
    """Join the files of all processes."""
    import coverage

    joined = coverage.Coverage(data_file=str(folder / "coverage.db"), config_file=False)
    joined.combine([str(folder / path.name) for path in folder.glob("part.*")], keep=False)
    joined.save()
    seconds: dict[str, float] = {}
    for path in folder.glob("seconds-*.jsonl"):
        for line in path.read_text(encoding="utf-8").splitlines():
            test, taken = json.loads(line)
            seconds[test] = seconds.get(test, 0.0) + taken
    (folder / "seconds.json").write_text(json.dumps(seconds, indent=0), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
