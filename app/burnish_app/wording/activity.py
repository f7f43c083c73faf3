"""Text about runs, exports, duels and downloads that go on beside the page that is shown, in a line each. No Qt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from burnish_app.look.language import tr
from burnish_app.wording.numbers import duration_text, percent
from burnish_engine.contract.units import file_size

if TYPE_CHECKING:  # the window is shown before these, and pydantic with them, are loaded
    from burnish_engine.contract.facts.downloads import Download
    from burnish_engine.contract.run.duels import DuelFacts
    from burnish_engine.contract.run.state import ObservedStatus
    from burnish_engine.contract.serve.replies import RunSummary

_ACTIVE: dict[ObservedStatus, str] = {"running": tr("Training"), "paused": tr("Paused"), "queued": tr("Waiting")}


@dataclass(frozen=True)
class Activity:
    """A run, an export or a duel that goes on.

    Attributes:
        page: key of the page that shows it.
        folder: folder of the run or duel.
        name: name of the run, or of the duel's sides.
        what: what is being done, in a word.
        share: how far it is, 0 to 1.
        moves: whether it goes on now; else it is paused, or waits.
    """

    page: str
    folder: str
    name: str
    what: str
    share: float
    moves: bool = True

    @property
    def title(self) -> str:
        """Progress and name, for the window's title; where it does not move, why."""
        parts = [percent(self.share), self.name] if self.moves or self.share else [self.name]
        return " - ".join(parts if self.moves else [self.what, *parts])


def activities_of(runs: Sequence[RunSummary], duels: Sequence[DuelFacts] = ()) -> list[Activity]:
    """List the runs that go on or wait, the exports and the duels that go on, newest first."""
    found = []
    for run in runs:
        name = run_title(run)
        if run.standing in _ACTIVE:
            share = run.state.step / run.state.total_steps if run.state.total_steps else 0.0
            moves = run.standing == "running"
            found.append(Activity("train", run.folder, name, _ACTIVE[run.standing], min(share, 1.0), moves))
        if run.export is not None and run.export.status == "running":
            found.append(Activity("export", run.folder, name, tr("Exporting"), min(max(run.export.share, 0.0), 1.0)))
    for duel in duels:
        if duel.status == "running":
            found.append(Activity("duel", duel.folder, duel_name(duel), tr("Duel"), _duel_share(duel)))
    return found


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


def download_progress(download: Download) -> str:
    """Return what is being done, in a word or two: "Waiting", "Fetching 42 %"."""
    if download.status == "queued":
        return tr("Waiting its turn")
    if not download.total:
        return tr("Fetching ...")
    return tr("Fetching {share}").format(share=percent(min(download.done / download.total, 1.0)))


def download_detail(download: Download) -> str:
    """Return size, speed and time left, or why the download does not go on."""
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
        return [download.what[:1].upper() + download.what[1:]]
    left = download.seconds_left
    speed = tr("{megabytes:,.1f} MB/s").format(megabytes=download.bytes_per_s / 1e6)
    return [speed, tr("{time} left").format(time=duration_text(left))] if left is not None else [speed]
