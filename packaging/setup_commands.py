"""The bootstrap's commands: `run`, `test` and `setup`, all of which first set up what is missing."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from child_process import become, child_env, interrupt_on_sigterm, say
from run_checks import run_checks
from venv_install import Setup
from venv_state import (
    PLACE,
    STAMP,
    changed_parts,
    is_set_up,
    python_version,
    read_stamp,
    setup_lock,
    stamp_parts,
    venv_python,
    write_stamp,
)

from burnish_engine.install.machine.choose_builds import MAX_PYTHON, MIN_PYTHON, choose
from burnish_engine.install.machine.machine_facts import detect
from burnish_engine.install.machine.setup_checks import NO_SPACE, STOPPED, USAGE, SetupProblem

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"


def main(arguments: list[str], usage: str) -> int:
    """Carry out one command.

    Args:
        arguments: name of the command and its arguments.
        usage: text to print when the name is missing or unknown.

    Returns:
        The exit code.
    """
    if not arguments or arguments[0] not in {"run", "test", "setup"}:
        print(usage, file=sys.stderr)
        return USAGE
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a path need not be printable in the console's code page
    interrupt_on_sigterm()
    command, rest = arguments[0], arguments[1:]
    try:
        prepare(dev=command == "test")
        if command == "run":
            return run(rest)
        return test(rest) if command == "test" else 0
    except SetupProblem as problem:
        say(f"\n{problem}")
        return problem.exit_code
    except OSError as error:
        say(f"\nA file could not be read or written: {error}. Check the folder's owner and rights, and the free space.")
        return NO_SPACE
    except KeyboardInterrupt:
        say("\nStopped. The next start continues from here.")
        return STOPPED


def prepare(*, dev: bool) -> None:
    """Set up what is missing; returns at once when nothing is.

    Args:
        dev: whether the developers' tools are needed too.

    Raises:
        SetupProblem: Something is missing or failed; it holds the paragraph to show and the exit code.
    """
    python, moved = usable_python()
    facts = detect(ROOT, os.environ, python)
    choice = choose(facts)
    if choice.error:
        raise SetupProblem(choice.error)
    parts = stamp_parts(ROOT, choice=choice.fingerprint(), python=python)
    if is_set_up(VENV, parts, dev=dev):
        return
    VENV.mkdir(exist_ok=True)
    with setup_lock(VENV, say):
        if is_set_up(VENV, parts, dev=dev):
            return
        started = time.monotonic()
        changed = changed_parts(VENV, parts)
        say(f"Setting Burnish up in {VENV}{': changed is ' + ', '.join(changed) if changed else ''}")
        dev = dev or read_stamp(VENV)[1]
        (VENV / STAMP).unlink(missing_ok=True)
        Setup(ROOT, os.environ, facts, choice, dev=dev, fresh=moved).install()
        write_stamp(VENV, parts, dev=dev)
        say(f"Set up in {time.monotonic() - started:.0f} s.\n")


def usable_python() -> tuple[tuple[int, ...], bool]:
    """The version of the Python that Burnish will run with, and whether the environment was moved here.

    The environment keeps its Python while that runs and suits; otherwise it is made again with this one.
    """
    found = python_version(venv_python(VENV))
    moved = read_stamp(VENV)[0].get(PLACE, str(ROOT)) != str(ROOT)
    fits = MIN_PYTHON <= found[:2] <= MAX_PYTHON and not moved
    return (found if fits else tuple(sys.version_info[:3])), moved


def run(arguments: list[str]) -> int:
    """Become `burnish`; -P keeps files in the user's folder from being taken for modules."""
    command = [str(venv_python(VENV)), "-P", "-m", "burnish_engine.cli.main", *(arguments or ["--help"])]
    return become(command, child_env(os.environ, VENV))


def test(arguments: list[str]) -> int:
    """Run linters and tests, or pytest with these arguments; returns the first failure's exit code."""
    return run_checks(ROOT, str(venv_python(VENV)), child_env(os.environ, VENV), arguments)
