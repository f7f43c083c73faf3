"""The overlaid curves of a set of runs, which are followed while they go on."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from burnish_app.engine.runs_follower import RunsFollower
from burnish_app.widgets.compare.overlay_charts import OverlaidRun, OverlayCharts
from burnish_engine.contract.run.fold import RunState


class FollowedCharts(QWidget):
    """Reads the events of runs and draws their curves over each other. Another set of runs has charts of its own.

    Attributes:
        advanced: signal with the list of `RunState` of the runs, in their order, when there are new events.
        failed: signal with a sentence that says why a picture could not be written.
        charts: charts of the runs; None before the first ones are followed.
    """

    advanced = Signal(object)
    failed = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._runs: tuple[OverlaidRun, ...] = ()
        self._page_px = 0
        self._follower = RunsFollower(self)
        self._follower.advanced.connect(self._advanced)
        self.charts: OverlayCharts | None = None
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of the runs that are followed."""
        return tuple(run.folder for run in self._runs)

    def follow(self, runs: Sequence[OverlaidRun]) -> bool:
        """Follow runs; the same ones go on being followed.

        Args:
            runs: runs to draw; empty: none.

        Returns:
            Whether they are others than before.
        """
        if tuple(runs) == self._runs:
            return False
        self._runs = tuple(runs)
        before = self.charts
        self.charts = OverlayCharts(self._runs)
        self.charts.failed.connect(self.failed)
        self.charts.fit_height(self._page_px)
        if before is not None:
            self._column.removeWidget(before)
            before.hide()
            before.deleteLater()
        self._column.addWidget(self.charts)
        self._follower.follow(self.folders)
        return True

    def stop(self) -> None:
        """Stop following; `follow` begins anew."""
        self._follower.stop()
        self._runs = ()

    def fit_height(self, page_px: int) -> None:
        """Set the heights of the charts for a page of this height, device-independent pixels."""
        self._page_px = page_px
        if self.charts is not None:
            self.charts.fit_height(page_px)

    def _advanced(self, states: dict[str, RunState]) -> None:
        # What comes of other runs is the follower's last word about them.
        if self.charts is not None and tuple(states) == self.folders:
            found = list(states.values())
            self.charts.show_states(found)
            self.advanced.emit(found)
