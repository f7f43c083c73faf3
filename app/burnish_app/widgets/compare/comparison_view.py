"""Several runs beside each other: curves, outcomes and differences, replies. It follows runs that go on."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from burnish_app.comparison.replies import replies_side_by_side
from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.runs_follower import RunsFollower
from burnish_app.look.tokens import GAP_PX
from burnish_app.widgets.compare.differences_card import DifferencesCard
from burnish_app.widgets.compare.overlay_charts import OverlayCharts
from burnish_app.widgets.compare.replies_card import RepliesCard
from burnish_engine.contract.run.comparison import RunsComparison
from burnish_engine.contract.run.fold import RunState
from burnish_engine.contract.serve.protocol import CompareRequest, Failure, Result

_AGAIN_MS = 2000  # least time between two comparisons of runs that go on


class ComparisonView(QWidget):
    """Compares runs.

    Args:
        client: connection to the engine.

    Attributes:
        compared: signal with a `RunsComparison` when the engine compared the runs.
        failed: signal with a `Failure` when it could not.
        drawing_failed: signal with a sentence that says why a picture could not be written.
    """

    compared = Signal(object)
    failed = Signal(object)
    drawing_failed = Signal(str)

    def __init__(self, client: EngineClient) -> None:
        super().__init__()
        self._client = client
        self._folders: tuple[str, ...] = ()
        self._titles: tuple[str, ...] = ()
        self._request = ""
        self._page_px = 0
        self._follower = RunsFollower(self)
        self._follower.advanced.connect(self._advanced)
        self._again = QTimer(self, singleShot=True, interval=_AGAIN_MS)
        self._again.timeout.connect(self._compare)
        self.charts = OverlayCharts([])
        self.differences, self.replies = DifferencesCard(), RepliesCard()
        self.differences.hide()
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(GAP_PX)
        for widget in (self.charts, self.differences, self.replies):
            self._column.addWidget(widget)

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of the runs that are compared."""
        return self._folders

    def show_runs(self, folders: Sequence[str], titles: Sequence[str]) -> None:
        """Compare runs; the same ones go on being compared.

        Args:
            folders: folders of the runs; empty: none.
            titles: title of each run.
        """
        if (tuple(folders), tuple(titles)) == (self._folders, self._titles):
            return
        self._folders, self._titles = tuple(folders), tuple(titles)
        before = self.charts
        self.charts = OverlayCharts(titles)
        self.charts.failed.connect(self.drawing_failed)
        self.charts.fit_height(self._page_px)
        self._column.replaceWidget(before, self.charts)
        before.hide()
        before.deleteLater()
        self.differences.hide()
        self.replies.show_replies((), ())
        self._follower.follow(self._folders)
        self._compare()

    def stop(self) -> None:
        """Stop following; `show_runs` begins anew."""
        self._follower.stop()
        self._again.stop()
        self._folders = self._titles = ()

    def fit_height(self, page_px: int) -> None:
        """Set the heights of the charts for a page of this height, device-independent pixels."""
        self._page_px = page_px
        self.charts.fit_height(page_px)

    def _advanced(self, states: dict[str, RunState]) -> None:
        if tuple(states) != self._folders:
            return  # the follower's last word about other runs
        found = [states[folder] for folder in self._folders]
        self.charts.show_states(found)
        self.replies.show_replies(self._titles, replies_side_by_side(found))
        if not self._again.isActive():
            self._again.start()

    def _compare(self) -> None:
        if not self._folders or self._client.is_open(self._request):
            return
        folders = self._folders
        self._request = self._client.send(
            CompareRequest,
            runs=list(folders),
            on_result=lambda result: self._found(folders, result),
            on_failure=self._not_found,
            owner=self,
        )

    def _found(self, folders: tuple[str, ...], result: Result) -> None:
        if folders != self._folders:
            self._compare()
        elif result.comparison is not None:
            self._show(result.comparison)

    def _show(self, found: RunsComparison) -> None:
        self.differences.show()
        self.differences.show_comparison(self._titles, found)
        self.compared.emit(found)

    def _not_found(self, failure: Failure) -> None:
        self.failed.emit(failure)
