"""The page Compare: runs beside each other, with their curves, what they did differently, and their replies."""

from __future__ import annotations

from burnish_app.comparison.titles import distinct_titles
from burnish_app.engine.engine_client import EngineClient
from burnish_app.look.language import tr
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.card import EmptyState
from burnish_app.widgets.basic.to_come import NothingYet
from burnish_app.widgets.compare.comparison_view import ComparisonView
from burnish_app.widgets.page.page import Page
from burnish_app.widgets.runs.run_stages import ChartsToCome
from burnish_app.wording.comparison_text import best_place, best_sentence
from burnish_app.wording.numbers import plural
from burnish_engine.contract.run.comparison import RunsComparison
from burnish_engine.contract.serve.replies import RunSummary


class ComparePage(Page):
    """Compares the runs that were chosen on the page Runs."""

    key, title, question = "compare", tr("Compare"), tr("Which run is better, and why?")
    wants_runs = True

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(client, bench)
        self._runs: list[RunSummary] = []
        self._comparison: RunsComparison | None = None
        self._titles: list[str] = []
        self.nothing = NothingYet(
            EmptyState(
                "compare",
                tr("Choose two runs or more."),
                tr("Go to the runs"),
                lambda: self.go_to.emit("runs"),
                detail=tr("Select them in the table, then press Compare."),
            ),
            ChartsToCome(tr("Their curves appear over each other")),
        )
        self.view = ComparisonView(client)
        self.view.compared.connect(self._compared)
        self.view.failed.connect(self.failed)
        self.view.drawing_failed.connect(lambda text: self.banner("error", text))
        self.resized.connect(self.view.fit_height)
        self.view.hide()
        self.column.addWidget(self.nothing)
        self.column.addWidget(self.view)
        self.choose = self.add_secondary(tr("Choose runs"), lambda: self.go_to.emit("runs"), "runs")
        self.duel = self.add_secondary(tr("Duel of these two"), self._duel, "duel")
        self.open = self.set_primary(tr("Open the best"), self._open_best, "open")
        bench.changed.connect(self._bench_changed)
        self._offer()

    def shown(self) -> None:
        """Compare the chosen runs as they are now."""
        self.refresh_runs.emit()
        self._show()

    def hidden(self) -> None:
        """Stop following the runs."""
        self.view.stop()

    def runs_changed(self, runs: list[RunSummary]) -> None:
        """Keep the runs; those that were deleted are no longer compared."""
        self._runs = runs
        if self.isVisible():
            self._show()

    def _bench_changed(self, name: str) -> None:
        if name == "compared" and self.isVisible():
            self._show()

    def _show(self) -> None:
        by_folder = {run.folder: run for run in self._runs}
        runs = [by_folder[folder] for folder in self.bench.compared if folder in by_folder]
        self._titles = distinct_titles(runs)
        several = len(runs) > 1
        self.nothing.setVisible(not several)
        self.set_filling(fills=not several)
        self.view.setVisible(several)
        self.view.show_runs(runs if several else [], self._titles if several else [])
        if self._comparison is not None and tuple(self._comparison.folders) != self.view.folders:
            self._comparison = None
        self.set_status("ready" if several else "empty")
        self._offer()

    def _compared(self, comparison: RunsComparison) -> None:
        self._comparison = comparison
        self._offer()

    def _best(self) -> str:
        """Return the folder of the run with the lowest held-out loss; empty: there is none."""
        if self._comparison is None:
            return ""
        place = best_place(self._comparison)
        return self._comparison.folders[place] if place is not None else ""

    def _offer(self) -> None:
        several = self.view.isVisibleTo(self)
        words = ""
        if several:
            words = plural(len(self._titles), "run")
            if self._comparison is not None:
                words = best_sentence(self._titles, self._comparison) or words
        self.set_subtitle(words)
        self.choose.setVisible(several)
        self.duel.setVisible(several and len(self._titles) == 2)
        self.open.setVisible(several and bool(self._best()))
        self.fit_foot()

    def _duel(self) -> None:
        self.bench.set_duelists(self.view.folders)
        self.go_to.emit("duel")

    def _open_best(self) -> None:
        self.bench.set_run(self._best())
        self.go_to.emit("train")
