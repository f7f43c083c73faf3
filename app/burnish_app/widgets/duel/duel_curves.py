"""The curves of a duel's runs: a line for each run in the style of its side."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from burnish_app.engine.runs_follower import RunsFollower
from burnish_app.look.language import tr
from burnish_app.widgets.compare.overlay_charts import OverlayCharts
from burnish_engine.contract.run.duels import DuelFacts, DuelRun
from burnish_engine.contract.run.fold import RunState

_MOST_DRAWN = 16


class DuelCurves(QWidget):
    """Follows and draws the runs of a duel.

    Attributes:
        failed: signal with a sentence that says why a picture could not be written.
    """

    failed = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._runs: tuple[tuple[str, int], ...] = ()
        self._page_px = 0
        self._follower = RunsFollower(self)
        self._follower.advanced.connect(self._advanced)
        self.charts = OverlayCharts([])
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.addWidget(self.charts)

    def show_duel(self, duel: DuelFacts) -> None:
        """Draw the runs that are compared, and the one that goes on; before those, the runs that look for a rate."""
        runs = _drawn(duel)
        now = tuple((run.folder, run.side) for run in runs)
        if now == self._runs:
            return
        self._runs = now
        before = self.charts
        first = [place for place, (_, side) in enumerate(now) if side not in [other for _, other in now[:place]]]
        titles = [duel.sides[run.side].name if place in first else "" for place, run in enumerate(runs)]
        hints = [tr("{side}, seed {seed}").format(side=duel.sides[run.side].name, seed=run.seed) for run in runs]
        self.charts = OverlayCharts(hints, [run.side for run in runs], legend=titles)
        self.charts.failed.connect(self.failed)
        self.charts.fit_height(self._page_px)
        self._column.replaceWidget(before, self.charts)
        before.hide()
        before.deleteLater()
        self.setVisible(bool(now))
        self._follower.follow([folder for folder, _ in now])

    def stop(self) -> None:
        """Stop following; `show_duel` begins anew."""
        self._follower.stop()
        self._runs = ()

    def fit_height(self, page_px: int) -> None:
        """Set the heights of the charts for a page of this height, device-independent pixels."""
        self._page_px = page_px
        self.charts.fit_height(page_px)

    def _advanced(self, states: dict[str, RunState]) -> None:
        if tuple(states) == tuple(folder for folder, _ in self._runs):
            self.charts.show_states(list(states.values()))


def _drawn(duel: DuelFacts) -> Sequence[DuelRun]:
    """Choose the runs to draw, those of one side after those of the other."""
    known = [*duel.made, *([duel.current] if duel.current is not None and duel.status != "finished" else [])]
    compared = [run for run in known if run.phase != "grid"] or known
    return sorted(compared[-_MOST_DRAWN:], key=lambda run: (run.side, run.seed, run.rate))
