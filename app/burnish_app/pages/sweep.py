"""The page Sweep: the draft with other settings as a set of runs, what that takes, and what became of it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from PySide6.QtCore import QTimer
from PySide6.QtGui import QResizeEvent

from burnish_app.comparison.swept import SweepRow, ranked, row_title, sweep_rows, unfinished
from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.loss_outlines import LossOutlines
from burnish_app.engine.question import Question
from burnish_app.look.language import tr
from burnish_app.look.tokens import GAP_PX
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.buttons import row
from burnish_app.widgets.basic.card import EmptyState
from burnish_app.widgets.basic.text import ShorteningBox, body
from burnish_app.widgets.basic.to_come import CardsToCome, NothingYet
from burnish_app.widgets.basic.wrapping import columns_layout
from burnish_app.widgets.compare.comparison_view import ComparisonView
from burnish_app.widgets.compare.overlay_charts import MOST_RUNS
from burnish_app.widgets.page.banner import Banner
from burnish_app.widgets.page.page import Page
from burnish_app.widgets.sweep.plan_card import SweepPlanCard
from burnish_app.widgets.sweep.planned_runs import PlannedRuns
from burnish_app.widgets.sweep.runs_card import SweepRunsCard
from burnish_app.widgets.sweep.settings_card import SettingsCard
from burnish_app.wording.numbers import plural
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.facts.sweeps import SweepFile, SweepPlan
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

_PLAN_AFTER_MS = 350


class SweepPage(Page):
    """Plans, starts and shows sweeps."""

    key, title, question = "sweep", tr("Sweep"), tr("Which settings are best?")
    wants_runs = True

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(client, bench)
        self._runs: list[RunSummary] = []
        self._sweeps: list[SweepFile] = []
        self._rows: list[SweepRow] = []
        self._plan: SweepPlan | None = None
        self._planning_question = Question(client, self, self._planned, self._plan_failed)
        self._starting = Question(client, self, self._started, self._start_failed)
        self._planned_for: object = None
        self._queued: object = None
        self._refusal: Banner | None = None
        self._outlines = LossOutlines(self)
        self._timer = QTimer(self, singleShot=True, interval=_PLAN_AFTER_MS)
        self._timer.timeout.connect(self._ask_plan)
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
        self.settings.changed.connect(self._settings_changed)
        self.plan = SweepPlanCard()
        self.planned = PlannedRuns()
        self.planned.hide()
        self._to_come = CardsToCome(tr("The runs appear here, in their order"), (1,))
        self.former = ShorteningBox(by_content=True)
        self.former.setAccessibleName(tr("Sweep that is shown"))
        self.former.setMinimumWidth(220)
        self.former.currentIndexChanged.connect(self._show_chosen)
        self._former_row = row(body(tr("Sweeps so far")), self.former, None, spacing_px=GAP_PX)
        self.results: SweepRunsCard | None = None
        self.view = ComparisonView(client)
        self.view.failed.connect(self.failed)
        self.view.drawing_failed.connect(lambda text: self.banner("error", text))
        self._outlines.changed.connect(self._redraw_curves)
        self._planning = columns_layout((self.settings, self.plan), GAP_PX, line_px=GAP_PX, even=True, fill=True)
        self.settings.setMinimumWidth(420)
        self.plan.setMinimumWidth(320)
        self.column.addWidget(self.nothing)
        self.column.addLayout(self._planning)
        self.column.addWidget(self.planned)
        self.column.addWidget(self._to_come)
        self.column.addWidget(self._former_row)
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
        self._settings_changed()
        self._compare()

    def hidden(self) -> None:
        """Stop following runs."""
        self.view.stop()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Set the heights of the charts."""
        super().resizeEvent(event)
        self.view.fit_height(self.height())

    def runs_changed(self, runs: list[RunSummary]) -> None:
        """Show the runs of the sweep as they are now."""
        self._runs = runs
        self._show_rows()

    def start(self, *, anyway: bool = False) -> None:
        """Queue the runs of the sweep.

        Args:
            anyway: whether to queue runs although the plan says that they do not fit.
        """
        settings = self.settings.settings()
        if settings is None or not self._can_start():
            return
        self.clear_banner()
        recipe, text = self.bench.recipe, self.bench.recipe_toml
        name = recipe.name or Path(recipe.model.path).name
        asked = {"recipe": text, "settings": settings, "name": name, "anyway": anyway}
        self._starting.ask(StartSweepRequest, about=(text, settings), **asked)
        self._offer()

    def _bench_changed(self, name: str) -> None:
        if name == "recipe":
            self.settings.show_recipe(self.bench.recipe)
        if name in ("recipe", "choosing") and self.isVisible():
            self._settings_changed()

    # The plan

    def _settings_changed(self) -> None:
        has_data = bool(self.bench.data_files)
        self.nothing.setVisible(not has_data)
        for card in (self.settings, self.plan):
            card.setVisible(has_data)
        now = (self.bench.recipe_toml, self.settings.settings()) if has_data else None
        choosing = self.bench.is_choosing
        if now is not None and now[1] is not None and not choosing and self._is_planned():
            return
        self._plan = None
        self._planning_question.drop()
        if now != self._queued:
            self._queued = None
            self._forget_refusal()
        if choosing and has_data:
            self._timer.stop()
            self.plan.show_wanting(tr("Choosing a recipe for machine and data ..."))
        elif now is None or now[1] is None:
            self._timer.stop()
            keys = [one.key for one in self.settings.rows]
            twice = len(set(keys)) < len(keys)
            self.plan.show_wanting(tr("One setting is there twice.") if twice else tr("Mend the value in red."))
        else:
            self.plan.show_wanting("")
            self._timer.start()
        self._offer()

    def _ask_plan(self) -> None:
        settings = self.settings.settings()
        if settings is None:
            return
        recipe = self.bench.recipe_toml
        dataset = None if self.bench.data_was_replaced else self.bench.dataset
        self._planning_question.ask(
            PlanSweepRequest, about=(recipe, settings), recipe=recipe, settings=settings, dataset=dataset
        )

    def _planned(self, result: Result) -> None:
        if result.sweep_plan is not None:
            self._plan, self._planned_for = result.sweep_plan, self._planning_question.about
            self.plan.show_plan(result.sweep_plan)
            self.planned.show_plan(result.sweep_plan)
            self._offer()

    def _plan_failed(self, failure: Failure) -> None:
        self.plan.show_failure(f"{failure.what} {failure.remedy}".strip())
        self._offer()

    def _started(self, result: Result) -> None:
        self._queued = self._starting.about
        self.refresh_runs.emit()
        made = result.sweeps or []
        self._show_sweeps([*made, *self._sweeps], choose=0)
        if made:
            what = tr("{runs} are queued.").format(runs=plural(len(made[0].runs), "run"))
            self.banner(
                "success", what, tr("They run one after the other, also when this window closes."), passing=True
            )

    def _start_failed(self, failure: Failure) -> None:
        fits = failure.exit_code != ExitCode.DOES_NOT_FIT
        actions = [] if fits else [(tr("Queue them anyway"), lambda: self.start(anyway=True))]
        self._refusal = self.banner("error", failure.what, failure.remedy, actions)
        self._offer()

    def _forget_refusal(self) -> None:
        """Close what was said of other runs that could not be queued: its button would queue these."""
        if self._refusal is not None and self._refusal is self.shown_banner:
            self.clear_banner()
        self._refusal = None

    # The results

    def _show_sweeps(self, sweeps: list[SweepFile], choose: int | None = None) -> None:
        before = self.former.currentData()
        self._sweeps = sweeps
        changed = self.former.blockSignals(True)
        self.former.clear()
        for sweep in sweeps:
            moment = f"{datetime.fromtimestamp(sweep.created):%Y-%m-%d %H:%M}"
            self.former.addItem(f"{sweep.name}, {moment}", sweep.created)
        at = self.former.findData(before) if choose is None else choose
        self.former.setCurrentIndex(max(at, 0) if sweeps else -1)
        self.former.blockSignals(changed)
        self._show_chosen()

    def _show_chosen(self) -> None:
        at = self.former.currentIndex()
        sweep = self._sweeps[at] if 0 <= at < len(self._sweeps) else None
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
        self._former_row.setVisible(len(self._sweeps) > 1)
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
        found: list[SweepRow] = []
        if self.results is not None and self.isVisible():
            begun = [one for one in self._rows if one.run.state.step]
            best = ranked(begun)[:MOST_RUNS]
            found = self.results.selection[:MOST_RUNS] or [one for one in begun if one in best]
        self.view.setVisible(bool(found))
        titles = [row_title(self.results.sweep, row) for row in found] if self.results is not None else []
        if self.isVisible():
            self.view.show_runs([row.run for row in found], titles)

    def _redraw_curves(self) -> None:
        if self.results is not None:
            self.results.redraw_curves()

    def _open(self, folder: str) -> None:
        self.bench.set_run(folder)
        self.go_to.emit("train")

    def _stop_rest(self) -> None:
        for one in unfinished(self.results.rows) if self.results is not None else []:
            self.command(CommandRequest, run=one.run.folder, command="stop")

    def _is_planned(self) -> bool:
        """Whether the plan that is shown is of the draft and the settings as they are now."""
        return self._plan is not None and self._planned_for == (self.bench.recipe_toml, self.settings.settings())

    def _can_start(self) -> bool:
        """Whether the runs that would be queued stand on the page, and are not queued already."""
        starting = self._starting.is_waiting
        possible = self._is_planned() and self._plan is not None and len(self._plan.runs) <= MAX_RUNS
        return possible and not (starting or self._is_queued() or self.bench.is_choosing)

    def _is_queued(self) -> bool:
        """Whether the runs of these very settings were queued: they would only be made a second time."""
        return self._queued is not None and self._queued == (self.bench.recipe_toml, self.settings.settings())

    def _best_row(self) -> SweepRow | None:
        rows = ranked(self.results.rows) if self.results is not None else []
        return rows[0] if rows and rows[0].run.state.evaluation_loss is not None else None

    def _best_as_draft(self) -> None:
        best = self._best_row()
        if best is not None and self.results is not None:
            self.draft_from(RunPaths(Path(best.run.folder)).recipe, row_title(self.results.sweep, best))

    def _offer(self) -> None:
        has_data = bool(self.bench.data_files)
        awaits = has_data and self._plan is None and self.results is None and self.planned.isHidden()
        self._to_come.setVisible(awaits)
        self.set_filling(fills=awaits or not has_data)
        rows = self.results.rows if self.results is not None else []
        left = unfinished(rows)
        self.stop.setVisible(bool(left))
        self.best.setVisible(self._best_row() is not None and not left)
        if self.primary is not None:
            starting, plan = self._starting.is_waiting, self._plan
            runs = plural(len(plan.runs), "run") if plan is not None else ""
            self.primary.setVisible(bool(self.bench.data_files))
            queued = self._is_queued()
            self.primary.setEnabled(self._can_start())
            self.primary.setText(
                tr("Starting ...")
                if starting
                else tr("Queued")
                if queued
                else tr("Queue {runs}").format(runs=runs)
                if runs
                else tr("Queue the runs")
            )
        self.planned.setVisible(self._plan is not None and not rows)
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
        self.set_status("busy" if left else "done" if rows else "ready" if self.bench.data_files else "empty")
        self.fit_foot()
