"""Computes the state of the page Export: choices, progress or results of a run's export. No Qt."""

from __future__ import annotations

from typing import Literal, NamedTuple

from burnish_app.look.language import tr
from burnish_app.page_states.page_state import ButtonState, PageState, seen
from burnish_app.state.run_folder import RunFolder
from burnish_app.state.step_status import StepStatus
from burnish_app.wording.run_text import Tone
from burnish_engine.contract.serve.replies import ExportJob


class ExportNotice(NamedTuple):
    """The words of a banner about an export that came to its end.

    Attributes:
        kind: kind of the banner.
        what: what happened; empty: the export went well, and a banner goes.
        remedy: what to do about it.
    """

    kind: Literal["error", "info"]
    what: str
    remedy: str = ""


def is_running(job: ExportJob | None) -> bool:
    """Whether an export is running."""
    return job is not None and job.status == "running"


def page_state(
    folder: RunFolder,
    job: ExportJob | None,
    *,
    is_complete: bool,
    is_typed: bool,
    knows_job: bool,
    is_starting: bool,
    wants_more: bool,
) -> PageState:
    """Return the state of the page for a run and its export.

    Args:
        folder: what the run's folder holds.
        job: newest export of the run; None: there is none.
        is_complete: whether all that an export needs is chosen.
        is_typed: whether files of the chosen kind have types, whose sizes are shown.
        knows_job: whether `job` is known, which it is once the runs are.
        is_starting: whether an export is being started.
        wants_more: whether the person asked for further files, where an export made some.
    """
    running, ready = is_running(job), folder.trained
    is_made = _has_files(folder) and job is not None and job.status == "finished"
    chooses, goes_on = ready and not running and (wants_more or not is_made), running or is_starting
    if ready and is_made and not chooses and not goes_on:
        button = ButtonState(text=tr("Make other files"), icon="add", does="choose")
    else:
        button = ButtonState(
            text=tr("Exporting ...") if goes_on else tr("Export"),
            icon="export",
            does="export",
            is_enabled=ready and is_complete and knows_job and not goes_on,
        )
    return PageState(
        status=_status(folder, job, goes_on=goes_on),
        name=folder.title if ready else "",
        pill=_pill(job),
        subtitle=tr("Files for other programs, each proven against the trained model.") if chooses else "",
        note=_note(folder, job) if chooses else "",
        fills=running or not ready,
        parts=seen(empty=not ready, choices=chooses, sizes=chooses and is_typed, progress=running, to_come=running)
        | (frozenset() if running else _results(folder, job)),
        primary=button,
    )


def notice(before: ExportJob | None, job: ExportJob | None) -> ExportNotice | None:
    """Return what there is to say once an export is another one than before; None: nothing."""
    if job is None or is_running(job):
        return None
    if job.status == "failed" and not _has_report(job):
        log = tr("What it last said is in export/job.log in the run's folder.")
        return ExportNotice("error", job.message or tr("The export failed."), log)
    if not is_running(before) or job.status == "failed":
        return None
    if job.status == "canceled":
        return ExportNotice("info", tr("The export was stopped."), tr("Nothing unfinished was left behind."))
    return ExportNotice("info", "")


def _results(folder: RunFolder, job: ExportJob | None) -> frozenset[str]:
    return seen(fidelity=_has_report(job), files=_has_files(folder))


def _has_files(folder: RunFolder) -> bool:
    return bool(folder.exported or folder.adapters or folder.ollama or folder.lm_studio)


def _note(folder: RunFolder, job: ExportJob | None) -> str:
    """Say which file is proven and not there, as the example's, which is too large to ship."""
    files = job.report.files if job is not None and job.report is not None else []
    missing = next((file.file for file in files if file.passed and file.file not in folder.exported), "")
    if not missing:
        return ""
    return tr("{file} is proven, but not on this disk: Export writes it from base and adapter.").format(file=missing)


def _has_report(job: ExportJob | None) -> bool:
    return job is not None and job.report is not None and bool(job.report.files)


def _pill(job: ExportJob | None) -> tuple[str, Tone]:
    if is_running(job):
        return tr("Exporting"), "live"
    if job is None or job.report is None or not job.report.files:
        return "", "plain"
    return (tr("Safe to ship"), "success") if job.report.passed else (tr("Not all safe"), "error")


def _status(folder: RunFolder, job: ExportJob | None, *, goes_on: bool) -> StepStatus:
    if goes_on:
        return "busy"
    if job is not None and job.status in ("failed", "finished"):
        return "attention" if job.status == "failed" else "done"
    return "ready" if folder.trained else "empty"
