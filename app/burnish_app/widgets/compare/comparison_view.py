"""Several runs beside each other: curves, outcomes and differences, replies. It follows runs that continue."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QTimer, Signal

from burnish_app.comparison.replies import replies_side_by_side
from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.question import Question
from burnish_app.widgets.compare.differences_card import DifferencesCard
from burnish_app.widgets.compare.overlay_charts import FollowedCharts, OverlaidRun
from burnish_app.widgets.compare.replies_card import RepliesCard
from burnish_engine.contract.run.comparison import RunsComparison
from burnish_engine.contract.run.fold import RunState
from burnish_engine.contract.serve.messages import Result
from burnish_engine.contract.serve.replies import RunSummary
from burnish_engine.contract.serve.run_requests import CompareRequest

_AGAIN_MS = 2000  # least time between two comparisons of runs that continue


class ComparisonView(FollowedCharts):
    """Compares runs.

    Args:
        client: connection to the engine.

    Attributes:
        compared: signal with a `RunsComparison` when the engine compared the runs.
        failed: signal with a `Failure` when it could not.
    """

    compared = Signal(object)
    failed = Signal(object)

    def __init__(self, client: EngineClient) -> None:
        super().__init__()
        self._titles: tuple[str, ...] = ()
        self._question = Question(client, self, self._answered, self.failed.emit)
        self._again = QTimer(self, singleShot=True, interval=_AGAIN_MS)
        self._again.timeout.connect(self._compare)
        self.advanced.connect(self._compare_again)
        self.differences, self.replies = DifferencesCard(), RepliesCard()
        self.differences.hide()
        for card in (self.differences, self.replies):
            self._column.addWidget(card)

    def show_runs(self, runs: Sequence[RunSummary], titles: Sequence[str]) -> None:
        """Compare runs; the same ones are not compared anew.

        Args:
            runs: summaries of the runs; empty: none.
            titles: title of each run.
        """
        drawn = [
            OverlaidRun(run.folder, title, style, title, run.objective)
            for style, (run, title) in enumerate(zip(runs, titles, strict=True))
        ]
        if self.follow(drawn):
            self._titles = tuple(titles)
            self.differences.hide()
            self.replies.show_replies((), ())
            self._compare()

    def stop(self) -> None:
        """Stop following; `show_runs` begins anew."""
        super().stop()
        self._again.stop()

    def _compare_again(self, states: list[RunState]) -> None:
        self.replies.show_replies(self._titles, replies_side_by_side(states))
        if not self._again.isActive():
            self._again.start()

    def _compare(self) -> None:
        if not self.folders or self._question.is_waiting:
            return
        self._question.ask(CompareRequest, about=self.folders, runs=list(self.folders))

    def _answered(self, result: Result) -> None:
        if self._question.about != self.folders:
            self._compare()
        elif result.comparison is not None:
            self.show_comparison(result.comparison)

    def show_comparison(self, comparison: RunsComparison) -> None:
        """Show how the runs differ."""
        self.differences.show()
        self.differences.show_comparison(self._titles, comparison)
        self.compared.emit(comparison)
