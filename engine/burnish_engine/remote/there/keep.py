"""Keeps a copy of a run in a folder that outlives the machine, and takes it back when the job begins again.

The run itself stays on the machine's own disk: services mount their storage over the network, where a run's appends and
locks would be slow or refused.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from burnish_engine.remote.there.job_folder import RESULT_FILES, RESULT_FOLDERS, JobFolder

_STATE_FILES = ("recipe.toml", "events.jsonl", "hardware.jsonl", "state.json")
_MARKER = "COMPLETE"


class KeptCopy:
    """The copy of a job's run in another folder.

    Args:
        job: folder of the job on the machine's disk.
        kept: folder of the copy.

    Attributes:
        folder: the copy as a job's folder.
    """

    def __init__(self, job: JobFolder, kept: Path) -> None:
        self.folder = JobFolder(kept)
        self._run, self._job, self._kept = job.run.root, job, kept / "run"
        self._inbox = kept / "control.jsonl"
        self._counter = kept / "attempt"
        self._taken = 0
        self._saved: frozenset[str] = frozenset()

    def next_attempt(self) -> int:
        """Count this attempt, and return its number from 1 on."""
        number = 1
        with suppress(OSError, ValueError):
            number = int(self._counter.read_text(encoding="utf-8")) + 1
        self._counter.parent.mkdir(parents=True, exist_ok=True)
        self._counter.write_text(f"{number}\n", encoding="utf-8")
        return number

    def restore(self) -> bool:
        """Take the run back where there is a copy; return whether there was one."""
        if not (self._kept / "state.json").is_file():
            return False
        shutil.copytree(self._kept, self._run, dirs_exist_ok=True)
        self._job.run.control.touch()
        with suppress(OSError):
            self._taken = self._inbox.stat().st_size  # they were for the attempt before
        return True

    def save_checkpoints(self) -> None:
        """Copy the run as it stands where it has another checkpoint than before."""
        complete = frozenset(path.parent.name for path in (self._run / "checkpoints").glob(f"*/{_MARKER}"))
        if complete != self._saved:
            self.save()
            self._saved = complete

    def save(self) -> None:
        """Copy the run: folders first, what points to them last."""
        self._kept.mkdir(parents=True, exist_ok=True)
        for name in RESULT_FOLDERS:
            with suppress(FileNotFoundError):  # a checkpoint that was replaced meanwhile: the next copy has the newer
                _copy_folder(self._run / name, self._kept / name)
        for name in (*RESULT_FILES, *_STATE_FILES):
            with suppress(FileNotFoundError):
                _copy(self._run / name, self._kept / name)

    def deliver_commands(self) -> None:
        """Append new whole lines of the inbox to the run's own commands."""
        with suppress(OSError):
            data = self._inbox.read_bytes()[self._taken :]
            whole = data[: data.rfind(b"\n") + 1]
            if whole and self._job.run.control.is_file():
                with self._job.run.control.open("ab", buffering=0) as file:
                    file.write(whole)
                self._taken += len(whole)


def _copy_folder(source: Path, target: Path) -> None:
    """Make the target equal: what the source no longer has goes last, as a checkpoint that others replaced.

    The run works meanwhile, so that anything may vanish; a checkpoint's marker is copied last and vouches for the rest.
    """
    if not source.is_dir():
        return
    names = set()
    for entry in sorted(source.iterdir(), key=lambda entry: (entry.name == _MARKER, entry.name)):
        if entry.name.startswith("."):
            continue  # being written
        names.add(entry.name)
        if entry.is_dir():
            _copy_folder(entry, target / entry.name)
        else:
            _copy(entry, target / entry.name)
    for entry in list(target.iterdir()) if target.is_dir() else ():
        if entry.name not in names:
            shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    """Copy a file that is not there yet or was changed, so that no half of it is left under its name."""
    there = target.stat() if target.exists() else None
    here = source.stat()
    if there and (there.st_size, int(there.st_mtime)) == (here.st_size, int(here.st_mtime)):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.part")
    shutil.copyfile(source, aside)
    with suppress(OSError):
        os.utime(aside, (here.st_atime, here.st_mtime))
    aside.replace(target)
