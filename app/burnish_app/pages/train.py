"""The page Train: follows one run live, whoever started it, and sends it commands."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from PySide6.QtCore import QTimer, QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication, QResizeEvent

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.run_follower import RunFollower
from burnish_app.look.language import tr
from burnish_app.look.theme import Theme
from burnish_app.page_states.train import page_state
from burnish_app.recipe.smaller import smaller_recipe
from burnish_app.state.failure_details import details_text
from burnish_app.state.preferences import Preferences
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.card import EmptyState
from burnish_app.widgets.basic.to_come import NothingYet
from burnish_app.widgets.hardware.run_hardware import RunHardware
from burnish_app.widgets.page.page import Page
from burnish_app.widgets.rewards.judged_replies_card import JudgedRepliesCard
from burnish_app.widgets.runs.run_beginning import RunBeginning
from burnish_app.widgets.runs.run_charts import RunCharts
from burnish_app.widgets.runs.run_figures import RunFigures
from burnish_app.widgets.runs.run_log import RunLog
from burnish_app.widgets.runs.run_stages import ChartsToCome
from burnish_app.widgets.runs.run_verdict import RunVerdict
from burnish_app.widgets.runs.task_card import TaskCard
from burnish_app.wording.activity import run_title
from burnish_app.wording.causes import needed_first, path_text, run_failure
from burnish_app.wording.guard_text import EarlyStoppingSettings, read_early_stopping
from burnish_app.wording.numbers import first_sentence
from burnish_app.wording.run_text import ACTIVE, RUN_ACTION_BUTTONS
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.commands import CommandName
from burnish_engine.contract.run.events import Warned
from burnish_engine.contract.run.fold import RunState
from burnish_engine.contract.run.hardware_log import HardwareHistory
from burnish_engine.contract.run.state import RunStateFile, observed_status
from burnish_engine.contract.serve.messages import Failure
from burnish_engine.contract.serve.replies import RunSummary
from burnish_engine.contract.serve.run_requests import CommandRequest, ResumeRequest

_DRAW_MS = 200
_ASKED = tr("Asked. The run answers after the step it is at.")


class TrainPage(Page):
    """Shows the workbench's run: status, figures, charts, guard verdict and log."""

    key, title, question = "train", tr("Train"), tr("Is it learning?")
    wants_runs = True

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(client, bench)
        self._summary: RunSummary | None = None
        self._events = RunState()
        self._samples = HardwareHistory()
        self._preferences: Preferences | None = None
        self._dirty = False
        self._is_asked = False  # a command, which is not answered yet
        self.nothing = NothingYet(
            EmptyState(
                "train",
                tr("Nothing is being trained."),
                tr("Go to the recipe"),
                lambda: self.go_to.emit("recipe"),
                detail=tr("Start a run from the recipe, or open an earlier one in Runs."),
            ),
            ChartsToCome(),
        )
        self.figures, self.charts, self.log = RunFigures(), RunCharts(), RunLog()
        self.figures.next_page.connect(self.go_to)
        self.charts.failed.connect(lambda problem: self.banner("error", problem))
        self.verdict = RunVerdict()
        self.figures.body.addWidget(self.verdict)
        self.beginning = RunBeginning()
        self._stopping = EarlyStoppingSettings()
        self.hardware, self.task = RunHardware(), TaskCard()
        self.add_parts(nothing=self.nothing, figures=self.figures, beginning=self.beginning, charts=self.charts)
        self.column.addWidget(self.task)
        self.judged = JudgedRepliesCard()
        self.column.addWidget(self.judged)
        self.column.addWidget(self.hardware)
        self.add_parts(log=self.log)
        self.copy = self.add_secondary(tr("Copy details"), self._copy_details, "copy", "copy")
        self.copy.setToolTip(tr("Cause, exit code, versions, device and last log lines as text, without secrets."))
        self.holder = self.add_secondary(tr("Show that run"), self._show_holder, "train", "holder")
        for action, (text, icon_name, hint) in RUN_ACTION_BUTTONS.items():
            self.add_secondary(text, partial(self._act, action), icon_name, action).setToolTip(hint)
        self.set_primary(tr("Resume"), self._press_primary)
        self._follower = RunFollower(self)
        self._follower.advanced.connect(self._advanced)
        self._follower.state_file.connect(self._state_file)
        self._follower.gone.connect(self._gone)
        self._follower.hardware.connect(self._hardware_came)
        self._timer = QTimer(self, interval=_DRAW_MS)
        self._timer.setObjectName("draw")
        self._timer.timeout.connect(self._draw)
        bench.changed.connect(self._bench_changed)
        self._follow()

    @property
    def summary(self) -> RunSummary | None:
        """The summary of the run; None: there is no run."""
        return self._summary

    @property
    def events(self) -> RunState:
        """The state folded from the run's events so far."""
        return self._events

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Fit the charts to the new height."""
        super().resizeEvent(event)
        self.charts.fit_height(self.height())

    def shown(self) -> None:
        """Start drawing."""
        self.refresh_runs.emit()
        self.hardware.set_price(self._preferences.price_per_kwh if self._preferences else 0.0)
        self._timer.start()
        self._draw()

    def hidden(self) -> None:
        """Stop drawing while the page is hidden."""
        self._timer.stop()

    def take_preferences(self, preferences: Preferences, theme: Theme) -> None:
        """Take the price of electricity, whenever the page is shown: it may change in Settings."""
        self._preferences = preferences

    def closing(self) -> None:
        """Stop following the run, which continues."""
        self._follower.stop()

    def runs_changed(self, runs: list[RunSummary]) -> None:
        """Take over the status of the run. If no run is chosen, choose an active one."""
        if not self.bench.run:
            alive = [run for run in runs if run.standing in ACTIVE]
            if alive:
                self.bench.set_run(alive[0].folder)
        folder = Path(self.bench.run)
        found = [run for run in runs if self.bench.run and Path(run.folder) == folder]
        if found and found[0] != self._summary:
            self._show_summary(found[0])

    def _bench_changed(self, name: str) -> None:
        if name == "run":
            self._follow()

    def _follow(self) -> None:
        self._summary, self._events, self._is_asked = None, RunState(), False
        self._samples = HardwareHistory()
        self.clear_banner()
        self.set_foot_note("")
        self._stopping = read_early_stopping(self.bench.run) if self.bench.run else EarlyStoppingSettings()
        self._follower.follow(self.bench.run)
        self.verdict.draw(self._events, EarlyStoppingSettings())
        self._draw_task()
        self.judged.draw(self._events)
        self.charts.draw(self._events, self._samples)
        self.hardware.show_run(self._samples, self._events.evaluations)
        self._show()
        if self.bench.run:
            self.refresh_runs.emit()

    def _advanced(self, folder: str, events: RunState) -> None:
        if folder != self.bench.run:
            return
        if events.refused is not None and events.refused != self._events.refused:
            self.banner(
                "warning",
                tr("The run refused to {name}: {detail}").format(
                    name=events.refused.name, detail=events.refused.detail
                ),
            )
        if len(events.warnings) > len(self._events.warnings):
            self._offer_less_memory(events.warnings.items()[-1])
        moved = (events.phase, events.ended, events.saved_step) != (
            self._events.phase,
            self._events.ended,
            self._events.saved_step,
        )
        further = events.progress != self._events.progress
        self._events = events
        self._dirty = True
        if moved:
            self.refresh_runs.emit()
        if moved or further:
            self._show()

    def _offer_less_memory(self, warning: Warned) -> None:
        """Offer a smaller plan where the run itself found that its memory spilled, as where nothing counts it."""
        alive = self._summary is not None and self._summary.standing in ("running", "paused")
        if warning.code != "spill" or not alive:
            return
        what, remedy = first_sentence(warning.message)
        use_less = (tr("Use less memory from the next step"), lambda: self._act("smaller_plan"))
        self.banner("warning", what, remedy, [use_less])

    def _hardware_came(self, folder: str, history: HardwareHistory) -> None:
        if folder == self.bench.run:
            self._samples = history
            self._dirty = True

    def _state_file(self, folder: str, state: RunStateFile) -> None:
        """Show the run's own state file until the engine's summary comes."""
        if folder != self.bench.run or self._summary is not None:
            return
        status = observed_status(state, owner_alive=True, now=state.heartbeat)
        self._show_summary(RunSummary(folder=folder, state=state, standing=status))

    def _gone(self, folder: str) -> None:
        if folder == self.bench.run:
            reason = self.bench.lose_run()
            what = tr("The run {path} cannot be opened any more: {reason}.").format(
                path=path_text(folder), reason=reason
            )
            self.banner("warning", what, tr("If it is on a drive, connect it, then open the run again in Runs."))

    def _show_summary(self, summary: RunSummary) -> None:
        before, self._summary = self._summary, summary
        if before is None or before.standing != summary.standing:
            self._is_asked = False
            self.set_foot_note("")
        self._dirty = True
        self._show()

    def _show(self) -> None:
        """Show the status: texts, buttons, and which cards are visible."""
        cure = needed_first(self._summary, self._events) if self._summary is not None else None
        state = page_state(self._summary, self._events, cure, is_asked=self._is_asked)
        self.apply(state)
        if state.description is not None:
            self.figures.show_status(state.description, can_go_on=state.can_go_on)
        self._show_problem(*state.problem)

    def _show_problem(self, what: str, remedy: str) -> None:
        banner = self.shown_banner
        if what and (banner is None or banner.what != what):
            self.banner("error", what, remedy)  # what leads on stands in the foot
        elif not what and self._summary is not None and banner is not None and banner.kind == "error":
            self.clear_banner()

    def _show_holder(self) -> None:
        """Show the run that this one waits for."""
        if self._summary is not None and self._summary.waits_for:
            self.bench.set_run(self._summary.waits_for)

    def _copy_details(self) -> None:
        """Copy what there is to know about the failure as one text."""
        if self._summary is not None:
            QGuiApplication.clipboard().setText(details_text(run_failure(self._summary, self._events)))
            self.set_foot_note(tr("Copied."))

    def _press_primary(self) -> None:
        """Do what the button says: resume, or what has to come before."""
        does, run = self.does, self._summary
        if run is None or not does:
            return
        if does == "resume":
            self._act("resume")
        elif does == "folder":
            QDesktopServices.openUrl(QUrl.fromLocalFile(run.folder))
        elif does == "fit":
            self.draft_from(RunPaths(Path(run.folder)).recipe, run_title(run), smaller_recipe)
        else:
            self.go_to.emit(does)

    def _act(self, action: CommandName) -> None:
        if self._summary is None:
            return
        self.clear_banner()
        self._is_asked = True
        run = self._summary.folder

        def done(_result: object) -> None:
            self.refresh_runs.emit()
            if run == self.bench.run:  # the person may have continued to another run
                self._is_asked = False
                self._show()

        def refused(failure: Failure) -> None:
            if run == self.bench.run:
                self._refused(failure)

        if action == "resume":
            self.client.send(ResumeRequest, run=run, on_result=done, on_failure=refused, owner=self)
        else:
            self.client.send(CommandRequest, run=run, command=action, on_result=done, on_failure=refused, owner=self)
        self.set_foot_note(_ASKED)
        self._show()

    def _refused(self, failure: Failure) -> None:
        self._is_asked = False
        self.set_foot_note("")
        self._show()
        self.failed(failure)

    def _draw_task(self) -> None:
        """Show the score of the task: below the charts while the run continues, above them once it is the result's."""
        is_above = self.column.indexOf(self.task) < self.column.indexOf(self.charts)
        if is_above != (self._events.task is not None):
            self.column.removeWidget(self.task)
            self.column.insertWidget(self.column.indexOf(self.charts) + is_above, self.task)
        self.task.draw(self._events)

    def _draw(self) -> None:
        if self._summary is not None and self.beginning.isVisible():
            self.beginning.draw(self._events)
        if self._summary is None:
            return
        if not self._dirty:
            self.figures.draw_time(self._events, self._summary.standing)
            return
        self._dirty = False
        self.figures.draw(self._events, self._summary)
        if self._events.steps and "charts" not in self.showing.parts:
            self._show()
        self._draw_task()
        self.charts.draw(self._events, self._samples)
        QTimer.singleShot(0, self, self._draw_rest)  # in an event of its own, so that none takes long

    def _draw_rest(self) -> None:
        """Draw what stands around the charts."""
        if self._summary is None:
            return
        self.judged.draw(self._events)
        self.hardware.show_run(self._samples, self._events.evaluations)
        failed = self._summary.standing == "failed"
        self.verdict.draw(
            self._events,
            self._stopping,
            self._summary.state.message if failed else "",
            over=self._summary.standing not in ("running", "paused"),
        )
        self.log.draw(self._events)
