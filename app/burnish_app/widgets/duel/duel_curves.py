"""The choice of a duel's runs that are drawn: a line for each in the style of its side, one legend entry for a side."""

from __future__ import annotations

from collections.abc import Sequence

from burnish_app.look.language import tr
from burnish_app.widgets.compare.overlay_charts import OverlaidRun
from burnish_engine.contract.run.duels import DuelFacts, DuelRun

_MOST_DRAWN = 16


def overlaid(duel: DuelFacts) -> list[OverlaidRun]:
    """Return the runs that are compared, and the one that is running; before those, the runs that look for a rate."""
    runs = _drawn(duel)
    sides = [run.side for run in runs]
    objectives = _objectives(duel)
    return [
        OverlaidRun(
            run.folder,
            tr("{side}, seed {seed}").format(side=duel.sides[run.side].name, seed=run.seed),
            run.side,
            duel.sides[run.side].name if run.side not in sides[:place] else "",
            objectives[run.side],
        )
        for place, run in enumerate(runs)
    ]


def _objectives(duel: DuelFacts) -> list[str]:
    """Return the objective of each side, empty ones where all sides share it."""
    named = next((one.values for one in duel.differences if one.key == "preference.objective"), None)
    return named or [""] * len(duel.sides)


def _drawn(duel: DuelFacts) -> Sequence[DuelRun]:
    """Choose the runs to draw, those of one side after those of the other."""
    known = [*duel.made, *([duel.current] if duel.current is not None and duel.status != "finished" else [])]
    compared = [run for run in known if run.phase != "grid"] or known
    return sorted(compared[-_MOST_DRAWN:], key=lambda run: (run.side, run.seed, run.rate))
