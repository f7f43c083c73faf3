"""Sweeps: several runs of one recipe with other settings, queued together as ordinary runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from burnish_engine.contract.errors import BurnishError, UsageError
from burnish_engine.contract.facts.sweeps import SWEEP_VERSION, SweepFile, SweptRun
from burnish_engine.contract.files import cannot_write, is_file, make_private, write_atomic
from burnish_engine.contract.paths import RunPaths, safe_name, sweeps_dir
from burnish_engine.contract.plain_text import one_line
from burnish_engine.contract.recipe.sweep import SweepCell, SweepSetting
from burnish_engine.runs.jobs import lease, trash
from burnish_engine.runs.store import create_run
from burnish_engine.runs.versioned import read_versioned

_LONGEST_NAME = 100


def sweep_name(given: str, default: str) -> str:
    """Return the name of a sweep, a line of up to 100 letters as a run's is.

    Args:
        given: name that a person chose; empty: none.
        default: text to name it by where none was chosen.

    Raises:
        UsageError: The chosen name is blank, too long or more than a line.
    """
    if not given:
        return one_line(default)[:_LONGEST_NAME]
    if not given.strip() or len(given) > _LONGEST_NAME or one_line(given) != given:
        raise UsageError(
            f"The name of the sweep is {given[:40]!r}, of {len(given):,} letters.",
            f"Give one line of up to {_LONGEST_NAME} letters.",
        )
    return given


def queue_sweep(
    name: str, settings: Sequence[SweepSetting], cells: Sequence[SweepCell], devices: Sequence[str], *, anyway: bool
) -> SweepFile:
    """Create the runs of a sweep, put them into the queue in order, and start the first if its device is free.

    Where one cannot be created, those before it are taken back.

    Args:
        name: name of the sweep.
        settings: settings that vary.
        cells: recipe of each run, with absolute paths.
        devices: device that each waits for, such as "cuda-0" or "cpu".
        anyway: whether to start runs although the plan says that they do not fit.

    Raises:
        UsageError: The recipe names no training files.
        NoSpaceError: A file cannot be written.
    """
    if not all(cell.recipe.data.files for cell in cells):
        raise UsageError("The recipe names no training files (data.files is empty).", "Choose a dataset.")
    made: list[RunPaths] = []
    try:
        for cell in cells:
            made.append(create_run(cell.recipe))
        runs = [SweptRun(folder=str(paths.root), values=cell.values) for paths, cell in zip(made, cells, strict=True)]
        sweep = SweepFile(name=name, created=time.time(), settings=list(settings), runs=runs)
        _write(sweep)
        for paths, device in zip(made, devices, strict=True):
            lease.enqueue(paths, device, anyway=anyway)
    except BurnishError:
        for paths in made:
            with suppress(BurnishError):
                trash.purge(trash.discard(paths).root)
        raise
    lease.start_waiting()
    return sweep


def list_sweeps() -> list[SweepFile]:
    """List the sweeps, newest first, without those whose runs are all gone and files that cannot be read."""
    found = []
    folder = sweeps_dir()
    for file in folder.glob("*.json") if folder.is_dir() else ():
        with suppress(UsageError, FileNotFoundError):
            sweep = read_versioned(file, SweepFile, SWEEP_VERSION, what=f"The sweep {file}", remedy="Delete the file.")
            there = [run for run in sweep.runs if is_file(RunPaths(Path(run.folder)).state)]
            if there:
                found.append(sweep.model_copy(update={"runs": there}))
    return sorted(found, key=lambda sweep: sweep.created, reverse=True)


def _write(sweep: SweepFile) -> None:
    folder = sweeps_dir()
    try:
        make_private(folder)
    except OSError as error:
        raise cannot_write(folder, error) from error
    moment = f"{datetime.fromtimestamp(sweep.created):%Y%m%d-%H%M%S-%f}"
    write_atomic(folder / f"{moment}-{safe_name(sweep.name, 'sweep')}.json", sweep.model_dump_json(indent=1) + "\n")
