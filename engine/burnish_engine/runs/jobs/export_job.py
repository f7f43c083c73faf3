"""Run exports as jobs: a detached process reports in the run's `export/job.json`, one at a time per run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

from filelock import FileLock, Timeout
from pydantic import ValidationError

from burnish_engine.contract.errors import BurnishError, ExitCode, NoSpaceError, StoppedError, UsageError
from burnish_engine.contract.facts.facts import FidelityReport
from burnish_engine.contract.files import cannot_write, read_with_retry, write_atomic
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.process_end import end_text
from burnish_engine.contract.serve.replies import ExportJob
from burnish_engine.contract.wording.tables import EXPORT_STAGES
from burnish_engine.runs.process import is_alive, own_identity, start_detached
from burnish_engine.runs.store import read_process_end, trained_of

_WRITE_S = 0.25
_ASK_S = 0.2
_START_S = 60.0  # a process that has not reported by then never will: its imports take a few seconds
_INTERRUPTED = "The export was interrupted: its process is gone."
_AGAIN = "Start it again; finished files are whole."


def read_export_job(paths: RunPaths) -> ExportJob | None:
    """Read the newest export of a run; one whose process is gone has failed. None: the run was never exported."""
    job = _read_file(paths)
    if job is None or job.status != "running":
        return job
    if _is_starting(job) or is_alive(job.pid, job.process_created):
        return job
    end = read_process_end(paths.export_end, since=job.started)
    message = f"The export was interrupted. {end_text(end)} {_AGAIN}" if end else f"{_INTERRUPTED} {_AGAIN}"
    return job.model_copy(
        update={
            "status": "failed",
            "message": message,
            "exit_code": int(ExitCode.STOPPED),
            "pid": None,
            "process_end": end,
        }
    )


def _read_file(paths: RunPaths) -> ExportJob | None:
    try:
        return ExportJob.model_validate_json(read_with_retry(paths.export_job))
    except (OSError, ValidationError, UnicodeDecodeError):
        return None


def _is_starting(job: ExportJob | None) -> bool:
    """Whether the process of this export was started and has not reported yet."""
    return job is not None and job.status == "running" and job.pid is None and time.time() - job.started < _START_S


def is_exporting(paths: RunPaths) -> bool:
    """Whether an export of the run is in progress."""
    job = read_export_job(paths)
    return job is not None and job.status == "running"


def start_export(
    paths: RunPaths,
    to: str,
    quants: Sequence[str],
    name: str = "",
    *,
    importance: bool | None = None,
    merge_onto: str | None = None,
    size_limit_mb: float | None = None,
) -> None:
    """Start an export in a detached process.

    Args:
        paths: paths of the run.
        to: kind of export, as for `burnish export --to`.
        quants: GGUF types; empty: the recipe's.
        name: name of the model; empty: the run's name.
        importance: whether to compute an importance matrix; None: as the recipe says.
        merge_onto: weights that an adapter trained on 4-bit weights is added to; None: as the recipe says.
        size_limit_mb: size of the largest acceptable file; None: as the recipe says.

    Raises:
        UsageError: The run has nothing trained yet, or is being exported.
        NoSpaceError: The run folder cannot be written.
    """
    trained_of(paths)
    if is_exporting(paths):
        raise _busy(paths)
    arguments = ["export", str(paths.root), "--to", to]
    for quant in quants:
        arguments += ["--quant", quant]
    if name:
        arguments += ["--name", name]
    if importance is not None:
        arguments.append("--importance" if importance else "--no-importance")
    if merge_onto is not None:
        arguments += ["--merge-onto", merge_onto]
    if size_limit_mb is not None:
        arguments += ["--size-limit", f"{size_limit_mb:g}"]
    try:
        paths.export.mkdir(exist_ok=True)
        paths.export_cancel.unlink(missing_ok=True)
        # Written before the process itself reports, so that no window takes the previous export for the newest.
        starting = ExportJob(
            status="running", to=to, quants=list(quants), what=EXPORT_STAGES["start"], started=time.time()
        )
        write_atomic(paths.export_job, starting.model_dump_json(), durable=False)
        start_detached(arguments, paths.export_log, paths.export_log, paths.export_end)
    except OSError as error:
        raise cannot_write(paths.export, error) from error


def cancel_export(paths: RunPaths) -> None:
    """Ask a running export to stop.

    Raises:
        UsageError: No export is running.
        NoSpaceError: The run folder cannot be written.
    """
    if not is_exporting(paths):
        raise UsageError(f"The run {paths.root.name} is not being exported.")
    try:
        paths.export_cancel.touch()
    except OSError as error:
        raise cannot_write(paths.export_cancel, error) from error


class ExportReporter:
    """Keep `export/job.json` up to date for the process that exports; leaving the context records how it ended.

    Args:
        paths: paths of the run.
        to: kind of export.
        quants: GGUF types.

    Raises:
        UsageError: Another process is exporting the run; raised on entering.
        NoSpaceError: The run folder cannot be written; raised on entering.
    """

    def __init__(self, paths: RunPaths, to: str, quants: Sequence[str]) -> None:
        self._paths = paths
        pid, created = own_identity()
        self._job = ExportJob(
            status="running",
            to=to,
            quants=list(quants),
            what=EXPORT_STAGES["start"],
            started=time.time(),
            pid=pid,
            process_created=created,
        )
        self._lock = FileLock(str(paths.root / ".export.lock"), timeout=0)
        self._written = self._asked = 0.0
        self._cancel = False

    def __enter__(self) -> ExportReporter:
        try:
            self._lock.acquire()
        except Timeout:
            raise _busy(self._paths) from None
        except OSError as error:
            raise cannot_write(self._paths.root, error) from error
        try:
            self._paths.export.mkdir(exist_ok=True)
            if not _is_starting(
                _read_file(self._paths)
            ):  # otherwise it is for this very export, canceled while it started
                self._paths.export_cancel.unlink(missing_ok=True)
            self._write()
        except OSError as error:
            self._lock.release()
            raise cannot_write(self._paths.export, error) from error
        except BurnishError:
            self._lock.release()
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._failed(error)
        self._paths.export_cancel.unlink(missing_ok=True)
        self._lock.release()

    def progress(self, what: str, share: float) -> None:
        """Report the current activity and its share done, 0 to 1."""
        self._job = self._job.model_copy(update={"what": what, "share": min(max(share, 0.0), 1.0)})
        if time.monotonic() - self._written >= _WRITE_S:
            with suppress(NoSpaceError):  # the export itself meets a full disk and reports it
                self._write()

    def canceled(self) -> bool:
        """Whether a client asked to stop."""
        if not self._cancel and time.monotonic() - self._asked >= _ASK_S:
            self._asked = time.monotonic()
            self._cancel = self._paths.export_cancel.exists()
        return self._cancel

    def finished(self, where: str, report: FidelityReport | None = None, *, suggested: str = "", why: str = "") -> None:
        """Report the end.

        Args:
            where: folder of the files.
            report: fidelity report of the files, where there is one.
            suggested: name of the best of several files.
            why: reason for that file, or for none.

        Raises:
            NoSpaceError: The job file cannot be written.
        """
        self._job = self._job.model_copy(update={"suggested": suggested, "why": why, "report": report})
        self._end(status="finished", what=EXPORT_STAGES["done"], share=1.0, message=where, exit_code=int(ExitCode.DONE))

    def attach(self, report: FidelityReport | None) -> None:
        """Store a report also where the export is about to fail."""
        self._job = self._job.model_copy(update={"report": report})

    def _failed(self, error: BaseException) -> None:
        stopped = isinstance(error, StoppedError | KeyboardInterrupt)
        code = error.exit_code if isinstance(error, BurnishError) else ExitCode.BUG
        text = str(error) if isinstance(error, BurnishError) else f"{type(error).__name__}: {error}"
        with suppress(NoSpaceError):  # the current error matters more; a reader sees that the process is gone
            self._end(
                status="canceled" if stopped else "failed",
                message="" if stopped else text,
                exit_code=int(ExitCode.STOPPED if stopped else code),
            )

    def _end(self, **changes: object) -> None:
        self._job = self._job.model_copy(update={**changes, "pid": None, "process_created": None})
        self._write(durable=True)

    def _write(self, *, durable: bool = False) -> None:
        self._written = time.monotonic()
        write_atomic(self._paths.export_job, self._job.model_dump_json(), durable=durable)


def _busy(paths: RunPaths) -> UsageError:
    return UsageError(f"The run {paths.root.name} is being exported already.", "Wait for it, or cancel it.")
