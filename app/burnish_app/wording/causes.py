"""Why a run ended badly or cannot be opened, and what leads on: one table from cause to title and action. No Qt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from burnish_app.look.language import retold, tr
from burnish_app.state.failure_details import FailureDetails
from burnish_app.state.run_folder import read_run_folder
from burnish_app.wording.activity import run_title
from burnish_app.wording.numbers import plural
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.duels import DuelFacts
from burnish_engine.contract.run.fold import RunState
from burnish_engine.contract.run.process_end import DeathCause, ProcessEnd, end_text
from burnish_engine.contract.serve.replies import ExportJob, RunSummary
from burnish_engine.contract.wording.tables import EXPORT_STAGES

FailureCause = Literal[
    "memory", "machine_memory", "disk", "driver", "crash", "killed", "asked", "ended", "data", "setup", "recipe",
    "guard", "guard_data", "leased", "bug",
]  # fmt: skip
"""memory: of the device. machine_memory: of the machine, whose kernel killed the process. guard: the run did not train
what it should; guard_data: because of its data. The others are named as exit codes and causes of death are."""

CureAction = Literal["resume", "fit", "folder", "recipe", "data", "model"]
"""resume: continue from the checkpoint. fit: open the recipe with less memory. folder: show the run folder, to free
space. The others are pages."""


@dataclass(frozen=True)
class Cure:
    """A cause's title, and what leads on from it.

    Attributes:
        title: cause in two or three words.
        advice: what to do, in a sentence; empty where the run's own message says it.
        action: primary action.
        text: text of its button.
    """

    title: str
    advice: str
    action: CureAction
    text: str


_RESUME = tr("Resume")
_MOST_NAMED = 3
_LONGEST = 90  # characters of a path that is shown
CURES: dict[FailureCause, Cure] = {
    "memory": Cure(
        tr("Out of memory"), tr("A smaller pass takes less memory, and trains the same tokens."), "fit",
        tr("Make it fit"),
    ),
    "machine_memory": Cure(
        tr("Out of system memory"), tr("Close other programs and resume, or make passes smaller."), "fit",
        tr("Make it fit"),
    ),
    "disk": Cure(
        tr("Disk full"), tr("Free some space on this disk, then resume: everything saved is whole."), "folder",
        tr("Open the folder"),
    ),
    "driver": Cure(
        tr("The GPU driver failed"), tr("Mostly it works again at once. If not, restart the machine."), "resume",
        _RESUME,
    ),
    "crash": Cure(tr("Crashed"), "", "resume", _RESUME),
    "killed": Cure(tr("Killed"), "", "resume", _RESUME),
    "asked": Cure(tr("Ended by the system"), "", "resume", _RESUME),
    "ended": Cure(tr("Ended without a word"), "", "resume", _RESUME),
    "data": Cure(tr("The data does not work"), "", "data", tr("Look at the data")),
    "setup": Cure(tr("Something is missing"), "", "model", tr("Choose the model again")),
    "recipe": Cure(tr("The recipe does not work"), "", "recipe", tr("Change the recipe")),
    "guard": Cure(tr("Training went wrong"), "", "recipe", tr("Change the recipe")),
    "guard_data": Cure(tr("Training went wrong"), "", "data", tr("Look at the data")),
    "leased": Cure(tr("The device is busy"), "", "resume", _RESUME),
    "bug": Cure(
        tr("A bug in Burnish"), tr("Please report it: Copy details has all that is needed."), "resume", _RESUME
    ),
}  # fmt: skip
"""Each cause with its title and what leads on."""

_BY_CODE: dict[int, FailureCause] = {
    ExitCode.BUG: "bug",
    ExitCode.USAGE: "recipe",
    ExitCode.DOES_NOT_FIT: "memory",
    ExitCode.DATA: "data",
    ExitCode.ENVIRONMENT: "setup",
    ExitCode.DIVERGED: "guard",
    ExitCode.NO_SPACE: "disk",
    ExitCode.LEASED: "leased",
    ExitCode.DRIVER: "driver",
}
_BY_DEATH: dict[DeathCause, FailureCause] = {
    "memory": "machine_memory",
    "disk": "disk",
    "crash": "crash",
    "killed": "killed",
    "asked": "asked",
    "ended": "ended",
}
_AFTER_THE_EXAMPLE: tuple[str, CureAction] = (tr("Train on my data"), "data")
"""Button and page after the example run, which has nothing trained to talk to or to export."""
_OF_DATA = ("no_targets", "padding", "end_token")
"""Checks of the guard whose cure lies in the data."""


def failure_cause(summary: RunSummary, events: RunState) -> FailureCause | None:
    """Return why a run ended badly; None where it did not, or nobody saw why.

    Args:
        summary: summary of the run, as the engine lists it.
        events: state folded from the run's events; it may be behind the summary.
    """
    if summary.standing == "interrupted":
        return _BY_DEATH[summary.process_end.cause] if summary.process_end is not None else None
    if summary.standing != "failed":
        return None
    code = summary.state.exit_code
    if code is None and events.ended is not None:
        code = events.ended.exit_code
    cause = _BY_CODE.get(code if code is not None else ExitCode.BUG, "bug")
    if cause == "guard" and events.guard is not None and events.guard.check in _OF_DATA:
        return "guard_data"
    return cause


def needed_first(summary: RunSummary, events: RunState) -> tuple[str, CureAction] | None:
    """Return what has to come before a run can continue, as (text of a button, action); None: it can.

    Args:
        summary: summary of the run, as the engine lists it.
        events: state folded from the run's events.
    """
    if summary.standing == "finished":
        return None if read_run_folder(summary.folder).trained else _AFTER_THE_EXAMPLE
    cause = failure_cause(summary, events)
    if cause is None or CURES[cause].action == "resume":
        return None
    return CURES[cause].text, CURES[cause].action


def run_failure(summary: RunSummary, events: RunState) -> FailureDetails:
    """Collect what there is to know about a run that ended badly or does not respond."""
    cause, started, end = failure_cause(summary, events), events.started, summary.process_end
    paths, state = RunPaths(Path(summary.folder)), summary.state
    device = [started.device, started.engine, started.precision] if started is not None else [state.device]
    total = events.total_steps or state.total_steps
    return FailureDetails(
        what=tr("Run {name} ({status}), model {model}").format(
            name=run_title(summary), status=summary.standing, model=summary.model
        ),
        title=CURES[cause].title if cause is not None else "",
        message=state.message or (events.ended.message if events.ended else "") or (end_text(end) if end else ""),
        exit_code=state.exit_code,
        process_end=_process_text(end),
        step=tr("{step} of {total}").format(step=events.step or state.step, total=total) if total else "",
        device=", ".join(part for part in device if part),
        versions=started.versions if started is not None else {},
        recipe=str(paths.recipe),
        log=paths.stderr_log,
    )


def export_failure(folder: str, job: ExportJob) -> FailureDetails:
    """Collect what there is to know about an export that failed.

    Args:
        folder: folder of the run.
        job: the export.
    """
    paths, end = RunPaths(Path(folder)), job.process_end
    return FailureDetails(
        what=tr("Export of {name} to {to} ({types}), {what}").format(
            name=paths.root.name, to=job.to, types=", ".join(job.quants), what=retold(job.what, EXPORT_STAGES)
        ),
        message=job.message,
        exit_code=job.exit_code,
        process_end=_process_text(end),
        recipe=str(paths.recipe),
        log=paths.export_log,
    )


def _process_text(end: ProcessEnd | None) -> str:
    return f"{end.signal_name or end.exit_status} ({end.cause})" if end is not None else ""


def duel_failure(duel: DuelFacts) -> FailureDetails:
    """Collect what there is to know about a duel that stopped."""
    folder = Path(duel.folder)
    names = ", ".join(f"{side.letter}: {side.name}" for side in duel.sides)
    return FailureDetails(
        what=tr("Duel of {names}, {made} of {least} to {most} runs made").format(
            names=names, made=len(duel.made), least=duel.runs[0], most=duel.runs[1]
        ),
        message=duel.message,
        recipe=str(folder / "recipes"),
        log=folder / "duel.log",
    )


def path_text(path: str) -> str:
    """Return a path as it can be shown: control characters as their codes, and the middle of a long one left out."""
    text = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in path)
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]}...{text[-half:]}"


def unopened_text(unopened: Mapping[str, str]) -> tuple[str, str]:
    """Return what could not be opened, and what to do about it.

    Args:
        unopened: paths with the reason of each, at least one.
    """
    named = [f"{path_text(path)}: {reason}." for path, reason in list(unopened.items())[:_MOST_NAMED]]
    more = len(unopened) - len(named)
    if more:
        named.append(tr("And {more} more.").format(more=plural(more, "path")))
    what = tr("Not all that was chosen last time can be opened.")
    remedy = tr("All of it stays chosen. Connect the drive or check the permissions, then try again.")
    return what, "\n".join([*named, remedy])


def unread_text(reason: str, kept_as: str) -> tuple[str, str]:
    """Return that the file of what was chosen last time could not be read, and where it is now.

    Args:
        reason: reason.
        kept_as: name that the file has now; empty: its former one.
    """
    what = tr("What was chosen last time cannot be read: {reason}.").format(reason=reason)
    kept = tr("Nothing is chosen now. The file is kept as {name} in Burnish's data folder.").format(name=kept_as)
    return what, kept if kept_as else tr("Nothing is chosen now.")
