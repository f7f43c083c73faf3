"""A job on another machine: `python -m burnish_engine.remote.there.job FOLDER [--relay] [--keep FOLDER]`.

It checks what arrived, trains the run or continues with it, and writes down how it ended. A termination, as a cluster
sends before it takes a machine back, is handed on to the run, which saves.
"""

from __future__ import annotations

import argparse
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from burnish_engine.contract.errors import BurnishError, ExitCode, NoSpaceError, UsageError
from burnish_engine.contract.model_places import model_dir
from burnish_engine.contract.paths import is_model_name
from burnish_engine.contract.recipe.recipe_file import load_recipe
from burnish_engine.remote.there.job_folder import BundleManifest, JobEnd, JobFolder, JobRecord, result_files
from burnish_engine.remote.there.keep import KeptCopy
from burnish_engine.remote.there.relay import POLL_S, Relay
from burnish_engine.runs.file_hashes import sha256_file
from burnish_engine.runs.process import own_identity
from burnish_engine.runs.store import read_state

_BEAT_S = 5.0
_SAVE_BEFORE_S = 120.0  # time to save in before a service ends the job
_LAST_LINES, _LAST_CHARACTERS = 6, 1200
_COMMAND = (sys.executable, "-P", "-m", "burnish_engine.cli.main")


class JobAttempt:
    """One attempt of a job.

    Args:
        folder: folder of the job.
        sends: whether it reports on standard output, for services that only offer a job's log.
        kept: folder that outlives the machine; None: the job's folder does.
    """

    def __init__(self, folder: JobFolder, *, sends: bool, kept: Path | None) -> None:
        self._folder = folder
        self._kept = KeptCopy(folder, kept) if kept else None
        self._relay = Relay(folder, _print) if sends else None
        self._child: subprocess.Popen[bytes] | None = None
        self._asked = False
        self._record = JobRecord(host="", pid=0, process_created=0.0)
        self._began = time.monotonic()

    def run(self) -> int:
        """Train to the end; return the exit code."""
        attempt = 1
        if self._kept is not None:
            attempt = self._kept.next_attempt()
            self._kept.restore()
            self._kept.folder.write_end(None)
        self._folder.write_end(None)
        host, (pid, created) = socket.gethostname(), own_identity()
        self._record = JobRecord(host=host, pid=pid, process_created=created, attempt=attempt)
        self._folder.write_record(self._record)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._hand_on)
        with self._beating():
            return self._work(attempt)

    def _work(self, attempt: int) -> int:
        if self._relay is not None:
            self._relay.attempt = attempt
            self._relay.begin()
        message = ""
        try:
            manifest = self._folder.manifest()
            self._folder.verify(manifest)
            code = self._prepare() or self._train(manifest)
        except BurnishError as error:
            code, message = int(error.exit_code), str(error)
        return self._finish(code, message)

    def _prepare(self) -> int:
        """Get the model where the recipe names one that is not here; return the exit code."""
        name = load_recipe(self._folder.recipe).model.path
        if not is_model_name(name) or model_dir(name).is_dir():
            return 0
        return self._run_command(["models", "fetch", name])

    def _train(self, manifest: BundleManifest) -> int:
        """Begin the run, or continue with it; return the exit code."""
        run = self._folder.run
        options = ["--force", *(["--anyway"] if manifest.anyway else [])]
        options += ["--gpus", str(manifest.gpus)] if manifest.gpus else []
        arguments = ["train", str(self._folder.recipe), "--run-dir", str(run.root), *options]
        if run.state.is_file():
            arguments = ["runs", "resume", str(run.root), *options]
        return self._run_command(arguments, timeout_s=manifest.timeout_s)

    def _run_command(self, arguments: list[str], *, timeout_s: int = 0) -> int:
        """Run a command of Burnish's to its end, with everything that runs beside it; return its exit code."""
        if self._asked:
            return ExitCode.STOPPED
        # Services show a job's own output; with a relay the run's would only hide the lines between.
        log = None if self._relay is None else self._folder.log.open("ab")
        try:
            child = subprocess.Popen([*_COMMAND, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        finally:
            if log is not None:
                log.close()
        self._child = child
        while True:
            with suppress(subprocess.TimeoutExpired):
                code = child.wait(POLL_S)
                self._child = None
                return code if code >= 0 else 128 - code
            with suppress(OSError, NoSpaceError):  # what runs beside a run must not end it; it is tried again
                self._beside()
            if timeout_s and not self._asked and time.monotonic() - self._began > timeout_s - _margin_s(timeout_s):
                self._hand_on()

    @contextmanager
    def _beating(self) -> Iterator[None]:
        """Let the job's counter move inside, also while files are hashed, which takes minutes for a whole model."""
        done = threading.Event()

        def beat() -> None:
            while not done.wait(_BEAT_S):
                self._record = self._record.model_copy(update={"beat": self._record.beat + 1})
                with suppress(OSError, NoSpaceError):
                    self._folder.write_record(self._record)

        thread = threading.Thread(target=beat, name="beat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _beside(self) -> None:
        if self._relay is not None:
            self._relay.step()
        if self._kept is not None:
            self._kept.deliver_commands()
            self._kept.save_checkpoints()

    def _hand_on(self, *_: object) -> None:
        """Ask the run to save and end."""
        self._asked = True
        if self._child is not None:
            self._child.terminate()

    def _finish(self, code: int, message: str) -> int:
        """Write down how it ended, with the hashes of the result."""
        run = self._folder.run
        if code and not message and not run.state.is_file():  # it was refused before it became a run
            message = self._last_words()
        files = {path.relative_to(run.root).as_posix(): sha256_file(path) for path in result_files(run)}
        status = ""
        with suppress(UsageError):
            status = read_state(run).status
        end = JobEnd(exit_code=code, status=status, message=message, files=files)
        if self._kept is not None:
            self._kept.save()
            self._kept.folder.write_end(end)
        self._folder.write_end(end)
        if self._relay is None:
            return code
        self._relay.end(end)
        return 0  # a service tries again what failed; what ended by itself would only fail again, and cost

    def _last_words(self) -> str:
        with suppress(OSError):
            text = self._folder.log.read_text(encoding="utf-8", errors="replace")
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            return " ".join(lines[-_LAST_LINES:])[-_LAST_CHARACTERS:]
        return ""


def _margin_s(timeout_s: int) -> float:
    """Time before the end at which the run is asked to save."""
    return min(_SAVE_BEFORE_S, timeout_s / 4)


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Carry the job out; return its exit code."""
    parser = argparse.ArgumentParser(prog="job")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--relay", action="store_true")
    parser.add_argument("--keep", type=Path)
    asked = parser.parse_args(arguments)
    return JobAttempt(JobFolder(asked.folder), sends=asked.relay, kept=asked.keep).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
