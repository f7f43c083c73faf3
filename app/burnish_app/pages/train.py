"""Train: is it learning? Follows one run live, whoever started it, and steers it."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QTimer
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QPushButton

from burnish_app.engine_client import EngineClient
from burnish_app.guard_words import Stopping, read_stopping
from burnish_app.pages.base import Page
from burnish_app.run_follower import RunFollower
from burnish_app.run_state import RunState
from burnish_app.run_words import Action, RunWords, describe
from burnish_app.runs_watch import ALIVE
from burnish_app.widgets.card import Card, EmptyState
from burnish_app.widgets.run_charts import RunCharts
from burnish_app.widgets.run_figures import RunFigures
from burnish_app.widgets.run_log import RunLog
from burnish_app.widgets.run_verdict import RunVerdict
from burnish_app.words import first_sentence
from burnish_app.workbench import Workbench
from burnish_engine.contract.protocol import CommandRequest, Failure, ResumeRequest, RunSummary
from burnish_engine.contract.state import RunStateFile, standing

_DRAW_MS = 200
_ACTION_TEXTS: dict[Action, str] = {
    "pause": "Pause",
    "resume": "Resume",
    "checkpoint": "Checkpoint now",
    "suspend": "Suspend",
    "stop": "Stop and save",
    "stop_now": "End the process",
}
_ACTION_HINTS: dict[Action, str] = {
    "pause": "Hold after this step, keeping memory.",
    "resume": "Go on where it was.",
    "checkpoint": "Save after this step and go on.",
    "suspend": "Save, end the process and free all memory. Resume starts it again.",
    "stop": "Save after this step and end.",
    "stop_now": "End without saving. What was saved before stays.",
}
_ASKED = "Asked. The run answers after the step it is at."


class TrainPage(Page):
    """The run of the workbench, as it stands."""

    key, title, question = "train", "Train", "Is it learning?"
    wants_runs = True

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(client, bench)
        self._summary: RunSummary | None = None
        self._events = RunState()
        self._dirty = False
        self._asked_at: str | None = None
        self.nothing = Card()
        self.nothing.body.addWidget(
            EmptyState(
                "train",
                "Nothing is being trained.",
                "Go to the recipe",
                lambda: self.go_to.emit("recipe"),
                detail="Start a run from the recipe, or open an earlier one in Runs.",
            )
        )
        self.figures, self.charts, self.log = RunFigures(), RunCharts(), RunLog()
        self.verdict = RunVerdict()
        self._stopping = Stopping()
        for widget in (self.nothing, self.figures, self.verdict, self.charts, self.log):
            self.column.addWidget(widget)
        self._buttons = {action: self._action_button(action) for action in _ACTION_TEXTS}
        self.set_primary("Resume", self._press_primary)
        self._follower = RunFollower(self)
        self._follower.advanced.connect(self._advanced)
        self._follower.state_file.connect(self._state_file)
        self._follower.gone.connect(self._gone)
        self._timer = QTimer(self, interval=_DRAW_MS)
        self._timer.setObjectName("draw")
        self._timer.timeout.connect(self._draw)
        bench.changed.connect(self._bench_changed)
        self._follow()

    @property
    def summary(self) -> RunSummary | None:
        """How the run stands; None where there is none."""
        return self._summary

    @property
    def events(self) -> RunState:
        """What the run's events say so far."""
        return self._events

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Charts grow with the window."""
        super().resizeEvent(event)
        self.charts.fit_height(self.height())

    def shown(self) -> None:
        """Draw again from now on."""
        self.ask_runs.emit()
        self._timer.start()
        self._draw()

    def hidden(self) -> None:
        """Draw nothing that nobody sees."""
        self._timer.stop()

    def closing(self) -> None:
        """Follow nothing any more. The run goes on."""
        self._follower.stop()

    def runs_changed(self, runs: list[RunSummary]) -> None:
        """Take over how the run stands. With no run chosen, one that goes on is."""
        if not self.bench.run:
            alive = [run for run in runs if run.standing in ALIVE]
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
        self._summary, self._events, self._asked_at = None, RunState(), None
        self.clear_banner()
        self.set_foot_note("")
        self._stopping = read_stopping(self.bench.run) if self.bench.run else Stopping()
        self._follower.follow(self.bench.run)
        self.verdict.draw(self._events, Stopping())
        self.charts.draw(self._events)
        self._tell()
        if self.bench.run:
            self.ask_runs.emit()

    def _advanced(self, folder: str, events: RunState) -> None:
        if folder != self.bench.run:
            return
        if events.refused is not None and events.refused != self._events.refused:
            self.banner("warning", f"The run refused to {events.refused.name}: {events.refused.detail}")
        moved = (events.phase, events.ended, events.safe_step) != (
            self._events.phase,
            self._events.ended,
            self._events.safe_step,
        )
        self._events = events
        self._dirty = True
        if moved:
            self.ask_runs.emit()
            self._tell()

    def _state_file(self, folder: str, state: RunStateFile) -> None:
        """Until the engine says how the run stands, its own summary has to do."""
        if folder != self.bench.run or self._summary is not None:
            return
        stands = standing(state, owner_alive=True, now=state.heartbeat)
        self._show_summary(RunSummary(folder=folder, state=state, standing=stands))

    def _gone(self, folder: str) -> None:
        if folder == self.bench.run:
            self.bench.set_run("")
            self.banner("info", "That run was deleted.")

    def _show_summary(self, summary: RunSummary) -> None:
        before, self._summary = self._summary, summary
        if before is None or before.standing != summary.standing:
            self._asked_at = None
            self.set_foot_note("")
        self._dirty = True
        self._tell()

    def _tell(self) -> None:
        """Words, buttons and what is visible."""
        summary = self._summary
        self.nothing.setVisible(summary is None)
        for widget in (self.figures, self.log):
            widget.setVisible(summary is not None)
        self.charts.setVisible(summary is not None and len(self._events.steps.step) > 0)
        if summary is None:
            self.set_status("empty")
            self.set_subtitle("")
            self._offer((), "")
            return
        words = describe(summary, self._events)
        self.figures.tell(words)
        self.set_status(words.status)
        self.set_subtitle(self._run_line(summary))
        self._offer(words.actions, summary.standing)
        self._tell_failure(words, summary)

    def _run_line(self, summary: RunSummary) -> str:
        started = self._events.started
        parts = [summary.state.name or summary.state.run, summary.model]
        if started is not None:
            parts += [started.device, started.precision]
        return "  ·  ".join(part for part in parts if part)

    def _tell_failure(self, words: RunWords, summary: RunSummary) -> None:
        banner = self.shown_banner
        if summary.standing == "failed":
            what, remedy = first_sentence(words.problem)
            if banner is None or banner.what != what:
                self.banner("error", what, remedy, [("Change the recipe", lambda: self.go_to.emit("recipe"))])
        elif banner is not None and banner.kind == "error":
            self.clear_banner()

    def _offer(self, actions: tuple[Action, ...], stands: str) -> None:
        """Show the buttons of what can be done. The primary one is the way on: resume, or try the result."""
        going = stands in ("running", "paused", "not responding", "queued")
        for action, button in self._buttons.items():
            button.setVisible(action in actions and (going or action != "resume"))
            button.setEnabled(self._asked_at is None)
        if self.primary is not None:
            resumes = "resume" in actions and not going
            self.primary.setVisible(resumes or stands == "finished")
            self.primary.setText("Resume" if resumes else "Try it")
            self.primary.setEnabled(self._asked_at is None)
        self.fit_foot()

    def _action_button(self, action: Action) -> QPushButton:
        button = self.add_secondary(_ACTION_TEXTS[action], lambda: self._act(action))
        button.setToolTip(_ACTION_HINTS[action])
        return button

    def _press_primary(self) -> None:
        if self._summary is not None and self._summary.standing == "finished":
            self.go_to.emit("try_out")
        else:
            self._act("resume")

    def _act(self, action: Action) -> None:
        if self._summary is None:
            return
        self.clear_banner()
        self._asked_at = self._summary.standing
        run, done = self._summary.folder, self._done

        def refused(failure: Failure) -> None:
            if run == self.bench.run:  # the person may have gone on to another run
                self._refused(failure)

        if action == "resume":
            self.client.send(ResumeRequest, run=run, on_result=done, on_failure=refused, owner=self)
        else:
            self.client.send(CommandRequest, run=run, command=action, on_result=done, on_failure=refused, owner=self)
        self.set_foot_note(_ASKED)
        self._tell()

    def _done(self, _result: object) -> None:
        self._asked_at = None
        self.ask_runs.emit()
        self._tell()

    def _refused(self, failure: Failure) -> None:
        self._asked_at = None
        self.set_foot_note("")
        self._tell()
        self.failed(failure)

    def _draw(self) -> None:
        if not self._dirty or self._summary is None:
            return
        self._dirty = False
        self.figures.draw(self._events, self._summary)
        self.charts.setVisible(len(self._events.steps.step) > 0)
        self.charts.draw(self._events)
        failed = self._summary.standing == "failed"
        self.verdict.draw(self._events, self._stopping, self._summary.state.message if failed else "")
        self.log.draw(self._events)
