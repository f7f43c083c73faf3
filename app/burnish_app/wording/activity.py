"""Activities beside the page that is shown: runs, exports, duels, benchmarks, and what pages report. No Qt."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from burnish_app.look.language import retold, tr
from burnish_app.state.time_left import Remaining
from burnish_app.wording.numbers import duration_text, left_text, percent, times_text
from burnish_engine.contract.units import file_size
from burnish_engine.contract.wording.tables import DOWNLOAD_STAGES

if TYPE_CHECKING:  # the window is shown before these, and pydantic with them, are loaded
    from burnish_engine.contract.facts.downloads import Download
    from burnish_engine.contract.run.duels import DuelFacts
    from burnish_engine.contract.run.state import ObservedStatus
    from burnish_engine.contract.serve.replies import Bench, RunSummary

_LEAST_IN_MB = 1e5  # bytes per second
_ACTIVE: dict[ObservedStatus, str] = {"running": tr("Training"), "paused": tr("Paused"), "queued": tr("Waiting")}


@dataclass(frozen=True)
class Activity:
    """Something that is running.

    A page reports its own by emitting `Page.activities_changed` with all of them, each time one changes.

    Attributes:
        page: key of the page that shows it; empty: it is a benchmark, which none shows.
        folder: folder of the run or duel, process of the benchmark, or another text that tells those of a page apart.
        name: name of the run, of the duel's sides, or of the file.
        what: what is being done, in a word or two.
        share: how far it is, 0 to 1; None: it cannot be told.
        moves: whether it is running now; else it is paused, or waits.
        stage: what it is at, more exactly; may be empty.
        left: time until it is done; None: the window estimates it from how the share grows.
        began: when it began, seconds since the epoch; 0: not known.
        stop: function that stops it; None: the window asks the engine, by page and folder.
        outlives: whether it continues when the window closes.
    """

    page: str
    folder: str
    name: str
    what: str
    share: float | None
    moves: bool = True
    stage: str = ""
    left: Remaining | None = None
    began: float = 0.0
    stop: Callable[[], object] | None = field(default=None, compare=False)
    outlives: bool = True

    @property
    def key(self) -> tuple[str, str, str]:
        """Page, folder, and what is done to what, which tell it apart from others."""
        return self.page, self.folder, f"{self.what} {self.name}"

    @property
    def can_pause(self) -> bool:
        """Whether stopping it only pauses it: what was fetched of a download stays."""
        return self.page == "model"

    @property
    def progress(self) -> str:
        """Share as text; empty where it cannot be told, or the activity has not begun and waits."""
        return "" if self.share is None or not (self.moves or self.share) else percent(self.share)

    @property
    def title(self) -> str:
        """Progress and name, for the window's title; where it does not move, why."""
        parts = ["" if self.moves else self.what, self.progress, self.name]
        return " - ".join(part for part in parts if part)


def activities_of(runs: Sequence[RunSummary], duels: Sequence[DuelFacts] = ()) -> list[Activity]:
    """List the runs that are running or wait, the exports and the duels that are running, newest first."""
    from burnish_app.wording.export_stages import stage_text

    found = []
    for run in runs:
        name = run_title(run)
        if run.standing in _ACTIVE:
            share = run.state.step / run.state.total_steps if run.state.total_steps else 0.0
            moves = run.standing == "running"
            what, stage = _ACTIVE[run.standing], _steps_text(run)
            left_s = run.state.ends - time.time() if moves else 0.0
            left = Remaining.about(left_s) if left_s > 0 else None
            began = (run.state.process_created or 0.0) if moves else 0.0
            found.append(Activity("train", run.folder, name, what, min(share, 1.0), moves, stage, left, began))
        if run.export is not None and run.export.status == "running":
            share, stage = min(max(run.export.share, 0.0), 1.0), stage_text(run.export)
            found.append(
                Activity("export", run.folder, name, tr("Exporting"), share, stage=stage, began=run.export.started)
            )
    for duel in duels:
        if duel.status == "running":
            found.append(Activity("duel", duel.folder, duel_name(duel), tr("Duel"), _duel_share(duel)))
    return found


def short_text(one: Activity) -> str:
    """Return how far an activity is and its time left; what is done where neither is known."""
    parts = [one.progress, _left_text(one)] if one.moves else [one.what, one.progress]
    return "  ·  ".join(part for part in parts if part) or one.what


def _left_text(one: Activity) -> str:
    return tr("{time} left").format(time=left_text(one.left)) if one.left is not None else ""


def activity_text(one: Activity, *, named: bool = True) -> str:
    """Describe an activity in a line, such as "Training support-desk, 40 %, step 240 of 600, 12 min left".

    Args:
        one: activity.
        named: whether its name stands behind what is done; else its progress does.
    """
    if named:
        return ", ".join(part for part in (f"{one.what} {one.name}", one.progress, one.stage, _left_text(one)) if part)
    times = times_text(time.time() - one.began if one.began and one.moves else 0.0, one.left)
    return "  ·  ".join(part for part in (one.what, one.progress, times, one.stage) if part)


def _steps_text(run: RunSummary) -> str:
    if run.waits_for:
        return tr("after {run}").format(run=awaited_name(run))
    if not run.state.total_steps:
        return ""
    return tr("step {step} of {total}").format(step=f"{run.state.step:,}", total=f"{run.state.total_steps:,}")


def awaited_name(run: RunSummary) -> str:
    """Return the name of the run that a queued one waits for."""
    from burnish_app.state.run_folder import run_name

    return run_name(run.waits_for)


def run_title(run: RunSummary) -> str:
    """Return the name of a run, or that of its folder."""
    return run.state.name or run.state.run


def duel_name(duel: DuelFacts) -> str:
    """Return the names of a duel's sides."""
    return tr(" against ").join(side.name for side in duel.sides)


def _duel_share(duel: DuelFacts) -> float:
    """Return the share of a duel's runs that are made, of the smallest number that it takes."""
    current = duel.current
    part = current.step / current.total_steps if current is not None and current.total_steps else 0.0
    least, most = duel.runs
    made = len(duel.made)
    return min((made + part) / (least if made < least else most), 1.0)


def bench_activity(bench: Bench) -> Activity:
    """Return a running benchmark as an activity."""
    match bench.kind:
        case "kernels":
            name = tr("Kernels: {names}").format(names=bench.about) if bench.about else tr("All kernels")
        case "step":
            name = tr("Training step of {model}").format(model=bench.about)
        case "gguf":
            name = bench.about
    return Activity("", str(bench.pid), name, tr("Measuring"), bench.share)


def download_activity(download: Download) -> Activity:
    """Return a waiting or running download as an activity.

    Args:
        download: the download.
    """
    return Activity(
        "model",
        download.name,
        download.name,
        tr("Downloading") if download.status == "running" else tr("Waiting"),
        download.done / download.total if download.total else None,
        moves=download.status == "running",
        left=Remaining.about(download.seconds_left) if download.seconds_left is not None else None,
    )


def download_progress(download: Download) -> str:
    """Return what is being done, in a word or two: "Waiting", "Fetching 42 %"."""
    if download.status == "queued":
        return tr("Waiting its turn")
    if not download.total:
        return tr("Fetching ...")
    return tr("Fetching {share}").format(share=percent(min(download.done / download.total, 1.0)))


def download_detail(download: Download) -> str:
    """Return size, speed and time left, or why the download does not continue."""
    size = (
        tr("{done} of {total}").format(done=file_size(download.done), total=file_size(download.total))
        if download.total
        else ""
    )
    parts: list[str] = []
    match download.status:
        case "finished":
            parts = [tr("Here, and checked"), file_size(download.total)]
        case "failed":
            parts = [f"{download.message} {download.remedy}".strip()]
        case "paused":
            parts = [f"{download.message} {download.remedy}".strip() or tr("Paused"), size]
        case "queued":
            parts = [tr("Waiting its turn"), size]
        case "running":
            parts = [size, *_speed_and_time(download)]
    return "  ·  ".join(part for part in parts if part)


def _speed_and_time(download: Download) -> list[str]:
    if not download.bytes_per_s:
        return [retold(download.what, DOWNLOAD_STAGES)]
    left = download.seconds_left
    if download.bytes_per_s < _LEAST_IN_MB:
        speed = tr("{kilobytes:,.0f} kB/s").format(kilobytes=download.bytes_per_s / 1e3)
    else:
        speed = tr("{megabytes:,.1f} MB/s").format(megabytes=download.bytes_per_s / 1e6)
    return [speed, tr("{time} left").format(time=duration_text(left))] if left is not None else [speed]
