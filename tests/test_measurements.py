"""`python tests/bench` finds each measurement by its name, and starts it; all of them fit the packages."""

import ast
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BENCH = ROOT / "tests" / "bench"
SCRIPTS = runpy.run_path(str(BENCH / "__main__.py"))["scripts"]()
WINDOW = [name for name, path in SCRIPTS.items() if path.parent.name == "window"]
OTHERS = [name for name in SCRIPTS if name not in WINDOW]
IMPORT_ALL = """
import importlib, sys
for module in sys.argv[1:]:
    importlib.import_module(module)
"""


def start(*words, **environment):
    """Start a measurement from another folder than the checkout's."""
    return subprocess.run(
        [sys.executable, str(BENCH), *map(str, words)],
        cwd=BENCH.anchor,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_no_two_scripts_have_the_same_name():
    found = [path for path in BENCH.rglob("[!_]*.py") if "\ndef main(" in path.read_text(encoding="utf-8")]
    assert len(found) == len(SCRIPTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_how_it_is_started(name):
    said = ast.get_docstring(ast.parse(SCRIPTS[name].read_text(encoding="utf-8")))
    assert f"python tests/bench {name} " in said


@pytest.mark.parametrize("names", [WINDOW, OTHERS], ids=["window", "others"])
def test_what_scripts_import_is_there(names):
    """Most of them run on a GPU only, so nothing else would notice."""
    modules = [".".join(SCRIPTS[name].relative_to(ROOT / "tests").with_suffix("").parts) for name in names]
    paths = [str(ROOT / part) for part in ("tests", "app", "engine", "kernels")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", IMPORT_ALL, *modules]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_script_is_started_by_name_without_packages_on_the_path(tmp_path):
    """It draws the plot that the guide shows from the rows that it names."""
    drawn, shown = tmp_path / "drawn.svg", ROOT / "assets" / "plots" / "speed-over-memory.svg"
    done = start("speed_over_memory", BENCH / "memory" / "speed_over_memory.jsonl", drawn, PYTHONPATH="")
    assert done.returncode == 0, done.stderr
    assert drawn.read_text(encoding="utf-8") == shown.read_text(encoding="utf-8")


def test_without_a_name_and_with_an_unknown_one_all_are_listed():
    listed, unknown = start(), start("no_such_measurement")
    assert (listed.returncode, unknown.returncode) == (0, 2)
    for name in SCRIPTS:
        assert f"  {name} " in listed.stdout
        assert f"  {name} " in unknown.stderr
