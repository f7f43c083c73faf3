"""Text about runs, exports and duels that go on beside the page that is shown, in a line each. No Qt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from burnish_app.look.language import tr
from burnish_app.wording.numbers import percent

if TYPE_CHECKING:  # the window is shown before these, and pydantic with them, are loaded
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
