"""Several runs beside each other: curves, outcomes and differences, replies. It follows runs that go on."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from burnish_app.comparison.replies import replies_side_by_side
from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.question import Question
from burnish_app.look.tokens import GAP_PX
from burnish_app.widgets.compare.differences_card import DifferencesCard
from burnish_app.widgets.compare.followed_charts import FollowedCharts
from burnish_app.widgets.compare.overlay_charts import OverlaidRun
from burnish_app.widgets.compare.replies_card import RepliesCard
from burnish_engine.contract.run.comparison import RunsComparison
from burnish_engine.contract.run.fold import RunState
from burnish_engine.contract.serve.messages import Result
from burnish_engine.contract.serve.replies import RunSummary
from burnish_engine.contract.serve.run_requests import CompareRequest

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
        self._titles: tuple[str, ...] = ()
        self._question = Question(client, self, self._found, self.failed.emit)
        self._again = QTimer(self, singleShot=True, interval=_AGAIN_MS)
        self._again.timeout.connect(self._compare)
        self.curves = FollowedCharts()
        self.curves.advanced.connect(self._advanced)
        self.curves.failed.connect(self.drawing_failed)
        self.differences, self.replies = DifferencesCard(), RepliesCard()
        self.differences.hide()
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(GAP_PX)
        for widget in (self.curves, self.differences, self.replies):
            column.addWidget(widget)

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders of the runs that are compared."""
        return self.curves.folders

    def show_runs(self, runs: Sequence[RunSummary], titles: Sequence[str]) -> None:
        """Compare runs; the same ones go on being compared.

        Args:
            runs: summaries of the runs; empty: none.
            titles: title of each run.
        """
        drawn = [
            OverlaidRun(run.folder, title, style, title, run.objective)
            for style, (run, title) in enumerate(zip(runs, titles, strict=True))
        ]
        if self.curves.follow(drawn):
            self._titles = tuple(titles)
            self.differences.hide()
            self.replies.show_replies((), ())
            self._compare()

    def stop(self) -> None:
        """Stop following; `show_runs` begins anew."""
        self.curves.stop()
        self._again.stop()

    def fit_height(self, page_px: int) -> None:
        """Set the heights of the charts for a page of this height, device-independent pixels."""
        self.curves.fit_height(page_px)

    def _advanced(self, states: list[RunState]) -> None:
        self.replies.show_replies(self._titles, replies_side_by_side(states))
        if not self._again.isActive():
            self._again.start()

    def _compare(self) -> None:
        if not self.folders or self._question.is_waiting:
            return
        self._question.ask(CompareRequest, about=self.folders, runs=list(self.folders))

    def _found(self, result: Result) -> None:
        if self._question.about != self.folders:
            self._compare()
        elif result.comparison is not None:
            self._show(result.comparison)

    def _show(self, found: RunsComparison) -> None:
        self.differences.show()
        self.differences.show_comparison(self._titles, found)
        self.compared.emit(found)
