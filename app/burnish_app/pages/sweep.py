"""The page Sweep: the draft with other settings as a set of runs, what that takes, and what became of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from burnish_app.comparison.swept import SweepRow, ranked, row_title, sweep_rows, unfinished
from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.loss_outlines import LossOutlines
from burnish_app.look.language import tr
from burnish_app.look.tokens import GAP_PX
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.card import EmptyState
from burnish_app.widgets.basic.to_come import CardsToCome, NothingYet
from burnish_app.widgets.basic.wrapping import columns_layout
from burnish_app.widgets.compare.comparison_view import ComparisonView
from burnish_app.widgets.compare.former_box import Former, FormerBox
from burnish_app.widgets.compare.overlay_charts import MOST_RUNS
from burnish_app.widgets.compare.plan_card import PlanCard
from burnish_app.widgets.page.banner import Banner
from burnish_app.widgets.page.page import Page
from burnish_app.widgets.sweep.planned_runs import PlannedRuns, plan_content
from burnish_app.widgets.sweep.runs_card import SweepRunsCard
from burnish_app.widgets.sweep.settings_card import SettingsCard
from burnish_app.wording.numbers import plural
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.facts.sweeps import SweepFile
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.sweep import MAX_RUNS
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.replies import RunSummary
from burnish_engine.contract.serve.run_requests import (
    CommandRequest,
    PlanSweepRequest,
    StartSweepRequest,
    SweepsRequest,
)


class SweepPage(Page):
    """Plans, starts and shows sweeps."""

    key, title, question = "sweep", tr("Sweep"), tr("Which settings are best?")
    wants_runs = True

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(client, bench)
        self._runs: list[RunSummary] = []
        self._sweeps: list[SweepFile] = []
        self._rows: list[SweepRow] = []
        self._queued: object = None
        self._refusal: Banner | None = None
        self._outlines = LossOutlines(self)
        self.nothing = NothingYet(
            EmptyState(
                "sweep",
                tr("There is no data to learn from yet."),
                tr("Add data"),
                lambda: self.go_to.emit("data"),
                detail=tr("A sweep tries the draft of the page Recipe with other settings."),
            ),
            CardsToCome(tr("The runs of a sweep appear here, the best first")),
        )
        self.settings = SettingsCard(
            bench.recipe,
            tr("What to vary"),
            tr("Up to three settings of the draft. There is a run for each combination of their values."),
        )
        self.settings.changed.connect(self._review)
        self.plan = PlanCard(
            client,
            heading_text=tr("What it takes"),
            busy_text=tr("Predicting the runs ..."),
            requests=(PlanSweepRequest, StartSweepRequest),
            choice=self._choice,
            plan_of=lambda result: result.sweep_plan,
            content=plan_content,
            plan_fields=lambda: {"dataset": None if bench.data_was_replaced else bench.dataset},
        )
        self.plan.changed.connect(self._plan_changed)
        self.plan.started.connect(self._started)
        self.plan.failed.connect(self._start_failed)
        self.planned = PlannedRuns()
        self.planned.hide()
        self._to_come = CardsToCome(tr("The runs appear here, in their order"), (1,))
        self.former = FormerBox(tr("Sweeps so far"), tr("Sweep that is shown"))
        self.former.chosen.connect(self._show_chosen)
        self.results: SweepRunsCard | None = None
        self.view = ComparisonView(client)
        self.view.failed.connect(self.failed)
        self.view.drawing_failed.connect(lambda text: self.banner("error", text))
        self.resized.connect(self.view.fit_height)
        self._outlines.changed.connect(self._redraw_curves)
        self._planning = columns_layout((self.settings, self.plan), GAP_PX, line_px=GAP_PX, even=True, fill=True)
        self.settings.setMinimumWidth(420)
        self.plan.setMinimumWidth(320)
        self.column.addWidget(self.nothing)
        self.column.addLayout(self._planning)
        self.column.addWidget(self.planned)
        self.column.addWidget(self._to_come)
        self.column.addWidget(self.former)
        self.column.addWidget(self.view)
        self.stop = self.add_secondary(tr("Stop the rest"), self._stop_rest, "stop")
        self.best = self.add_secondary(tr("Best as draft"), self._best_as_draft, "copy")
        self.set_primary(tr("Queue the runs"), self.start, "rocket")
        bench.changed.connect(self._bench_changed)
        self._show_sweeps([])

    def shown(self) -> None:
        """Request the sweeps, the runs and a plan."""
        self.refresh_runs.emit()
        self.command(SweepsRequest, lambda result: self._show_sweeps(result.sweeps or []))
        self._review()
        self._compare()

    def hidden(self) -> None:
        """Stop following runs."""
        self.view.stop()

    def runs_changed(self, runs: list[RunSummary]) -> None:
        """Show the runs of the sweep as they are now."""
        self._runs = runs
        self._show_rows()

    def start(self, *, anyway: bool = False) -> None:
        """Queue the runs of the sweep.

        Args:
            anyway: whether to queue runs although the plan says that they do not fit.
        """
        if not self._can_start():
            return
        self.clear_banner()
        recipe, self._queued = self.bench.recipe, self.plan.planned_for
        self.plan.start(name=recipe.name or Path(recipe.model.path).name, anyway=anyway)

    def _bench_changed(self, name: str) -> None:
        if name == "recipe":
            self.settings.show_recipe(self.bench.recipe)
        if name in ("recipe", "choosing") and self.isVisible():
            self._review()

    # The plan

    def _choice(self) -> dict[str, Any] | str:
        """Return the fields of the sweep that is chosen, or what is missing for it."""
        if self.bench.is_choosing and self.bench.data_files:
            return tr("Choosing a recipe for machine and data ...")
        settings = self.settings.settings()
        if settings is None or not self.bench.data_files:
            return self.settings.problem
        return {"recipe": self.bench.recipe_toml, "settings": settings}

    def _review(self) -> None:
        has_data = bool(self.bench.data_files)
        self.nothing.setVisible(not has_data)
        for card in (self.settings, self.plan):
            card.setVisible(has_data)
        self.plan.review()

    def _plan_changed(self) -> None:
        if self.plan.plan is None:  # what was queued or refused may be another sweep than what is chosen now
            if not self._is_queued():
                self._queued = None
            if self._refusal is not None and self._refusal is self.shown_banner:
                self.clear_banner()
            self._refusal = None
        else:
            self.planned.show_plan(self.plan.plan)
        self._offer()

    def _started(self, result: Result) -> None:
        self.refresh_runs.emit()
        sweeps = result.sweeps or []
        self._show_sweeps([*sweeps, *self._sweeps], choose_first=True)
        if sweeps:
            what = tr("{runs} are queued.").format(runs=plural(len(sweeps[0].runs), "run"))
            self.banner(
                "success", what, tr("They run one after the other, also when this window closes."), passing=True
            )

    def _start_failed(self, failure: Failure) -> None:
        self._queued = None
        fits = failure.exit_code != ExitCode.DOES_NOT_FIT
        actions = [] if fits else [(tr("Queue them anyway"), lambda: self.start(anyway=True))]
        self._refusal = self.banner("error", failure.what, failure.remedy, actions)

    # The results

    def _show_sweeps(self, sweeps: list[SweepFile], *, choose_first: bool = False) -> None:
        self._sweeps = sweeps
        self.former.offer(
            [Former(sweep.name, sweep.created, str(sweep.created)) for sweep in sweeps], "" if choose_first else None
        )
        self._show_chosen()

    def _show_chosen(self) -> None:
        sweep = next((sweep for sweep in self._sweeps if str(sweep.created) == self.former.key), None)
        if self.results is not None and self.results.sweep != sweep:
            self.column.removeWidget(self.results)
            self.results.hide()
            self.results.deleteLater()
            self.results = None
        if sweep is not None and self.results is None:
            self.results = SweepRunsCard(sweep, self._outlines.of)
            self.results.chosen.connect(self._compare)
            self.results.opened.connect(self._open)
            self.column.insertWidget(self.column.indexOf(self.view), self.results)
        self.former.setVisible(len(self._sweeps) > 1)
        self._show_rows()

    def _show_rows(self) -> None:
        if self.results is not None:
            rows = self._rows = sweep_rows(self.results.sweep, self._runs)
            self.results.show_rows(rows)
            self.results.setVisible(bool(rows))
            if self.isVisible():
                self._outlines.read(row.run.folder for row in rows)
        self._compare()
        self._offer()

    def _compare(self) -> None:
        """Compare the selected runs, or the best ones."""
        rows: list[SweepRow] = []
        if self.results is not None and self.isVisible():
            begun = [row for row in self._rows if row.run.state.step]
            best = ranked(begun)[:MOST_RUNS]
            rows = self.results.selection[:MOST_RUNS] or [row for row in begun if row in best]
        self.view.setVisible(bool(rows))
        titles = [row_title(self.results.sweep, row) for row in rows] if self.results is not None else []
        if self.isVisible():
            self.view.show_runs([row.run for row in rows], titles)

    def _redraw_curves(self) -> None:
        if self.results is not None:
            self.results.redraw_curves()

    def _open(self, folder: str) -> None:
        self.bench.set_run(folder)
        self.go_to.emit("train")

    def _stop_rest(self) -> None:
        for row in unfinished(self.results.rows) if self.results is not None else []:
            self.command(CommandRequest, run=row.run.folder, command="stop")

    def _can_start(self) -> bool:
        """Whether the runs that would be queued stand on the page, and are not queued already."""
        plan = self.plan.plan
        is_possible = plan is not None and len(plan.runs) <= MAX_RUNS
        return is_possible and self.plan.can_start and not self._is_queued()

    def _is_queued(self) -> bool:
        """Whether the runs of these very settings were queued: they would only be made a second time."""
        return self._queued is not None and self._queued == self._choice()

    def _best_row(self) -> SweepRow | None:
        rows = ranked(self.results.rows) if self.results is not None else []
        return rows[0] if rows and rows[0].run.state.evaluation_loss is not None else None

    def _best_as_draft(self) -> None:
        best = self._best_row()
        if best is not None and self.results is not None:
            self.draft_from(RunPaths(Path(best.run.folder)).recipe, row_title(self.results.sweep, best))

    def _offer(self) -> None:
        has_data = bool(self.bench.data_files)
        awaits = has_data and self.plan.plan is None and self.results is None and self.planned.isHidden()
        self._to_come.setVisible(awaits)
        self.set_filling(fills=awaits or not has_data)
        rows = self.results.rows if self.results is not None else []
        left = unfinished(rows)
        self.stop.setVisible(bool(left))
        self.best.setVisible(self._best_row() is not None and not left)
        if self.primary is not None:
            plan = self.plan.plan
            runs = plural(len(plan.runs), "run") if plan is not None else ""
            self.primary.setVisible(has_data)
            self.primary.setEnabled(self._can_start())
            self.primary.setText(
                tr("Starting ...")
                if self.plan.is_starting
                else tr("Queued")
                if self._is_queued()
                else tr("Queue {runs}").format(runs=runs)
                if runs
                else tr("Queue the runs")
            )
        self.planned.setVisible(self.plan.plan is not None and not rows)
        best = self._best_row()
        words = ""
        if best is not None and self.results is not None:
            words = (
                tr("Best so far: {title}, held-out loss {loss}.")
                if left
                else tr("Best: {title}, held-out loss {loss}.")
            )
            words = words.format(
                title=row_title(self.results.sweep, best), loss=f"{best.run.state.evaluation_loss:.3f}"
            )
        self.set_subtitle(words)
        self.set_status("busy" if left else "done" if rows else "ready" if has_data else "empty")
        self.fit_foot()
