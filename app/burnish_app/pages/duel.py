"""The page Duel: two recipes are chosen, compared under the same conditions, and judged with intervals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QTimer, QUrl, Signal
from PySide6.QtGui import QDesktopServices, QGuiApplication

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.question import Question
from burnish_app.look.language import tr
from burnish_app.state.failure_details import details_text
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.basic.pill import PillTone
from burnish_app.widgets.compare.former_box import Former, FormerBox
from burnish_app.widgets.compare.overlay_charts import FollowedCharts
from burnish_app.widgets.duel.duel_curves import overlaid
from burnish_app.widgets.duel.planning import DuelPlanning
from burnish_app.widgets.duel.progress_card import DuelProgressCard
from burnish_app.widgets.duel.verdict_card import DuelVerdictCard
from burnish_app.widgets.page.page import Page
from burnish_app.wording.causes import duel_failure
from burnish_app.wording.duel_text import duel_name, in_window
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.duels import DuelFacts
from burnish_engine.contract.serve.duel_requests import DuelsRequest, ResumeDuelRequest, StopDuelRequest
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.replies import RunSummary

_LOOK_MS = 1500
_PILLS: dict[str, tuple[str, PillTone]] = {
    "running": (tr("Running"), "live"),
    "stopped": (tr("Stopped"), "warning"),
    "finished": (tr("Finished"), "success"),
}


class DuelPage(Page):
    """Plans, starts, follows and shows duels.

    Attributes:
        duels_changed: signal with a list of `DuelFacts`, newest first.
    """

    key, title, question = "duel", tr("Duel"), tr("Which recipe is better, chance aside?")
    wants_runs = True

    duels_changed = Signal(list)

    def __init__(self, client: EngineClient, bench: Workbench) -> None:
        super().__init__(client, bench)
        self._duels: list[DuelFacts] = []
        self._knows_duels = False
        self._listing = Question(client, self, self._duels_here, self.failed)
        self._look = QTimer(self, singleShot=True, interval=_LOOK_MS)
        self._look.timeout.connect(self._ask_duels)
        self.former = FormerBox(tr("Show"), tr("Duel that is shown"), tr("A new duel"))
        self.former.chosen.connect(self._show)
        self.planning = DuelPlanning(client, bench)
        self.planning.card.changed.connect(self._offer)
        self.planning.started.connect(self._ask_duels)
        self.planning.card.failed.connect(self.failed)
        self.progress, self.verdict, self.curves = DuelProgressCard(), DuelVerdictCard(), FollowedCharts()
        self.curves.drawing_failed.connect(lambda text: self.banner("error", text))
        self.resized.connect(self.curves.fit_height)
        for widget in (self.former, self.planning, self.verdict, self.progress, self.curves):
            self.column.addWidget(widget)
        self.reveal = self.add_secondary(tr("Show folder"), lambda: self._open_path(self.former.key), "folder")
        self.report = self.add_secondary(tr("Report"), self._open_report, "text")
        self.again = self.add_secondary(tr("New duel"), self._begin_anew, "add")
        self.stop = self.add_secondary(tr("Stop and save"), self._stop, "stop")
        self.copy = self.add_secondary(tr("Copy details"), self._copy_details, "copy")
        self.set_primary(tr("Start the duel"), self._press_primary, "duel")
        bench.changed.connect(self._bench_changed)
        self._show()

    @property
    def duel(self) -> DuelFacts | None:
        """The duel that is shown; None: a new one is being planned."""
        return next((duel for duel in self._duels if duel.folder == self.former.key), None)

    def shown(self) -> None:
        """Request the duels, and a plan."""
        self.refresh_runs.emit()
        self._take_duelists()
        self._ask_duels()
        self._show()

    def hidden(self) -> None:
        """Stop following runs."""
        self.curves.stop()

    def runs_changed(self, runs: list[RunSummary]) -> None:
        """Offer the runs as sides; ask after a duel that is running while the page is not shown."""
        self.planning.show_runs(runs)
        if not self.isVisible() and (self._is_any_running or not self._knows_duels):
            self._ask_duels()

    def show_duel(self, folder: str) -> None:
        """Choose a duel that was begun."""
        self.former.choose(folder)
        self._show()

    @property
    def _is_any_running(self) -> bool:
        return any(duel.status == "running" for duel in self._duels)

    def _bench_changed(self, name: str) -> None:
        if name == "recipe":
            self.planning.show_draft()
        elif name == "choosing":
            self.planning.review()
        elif name == "duelists" and self.isVisible():
            self._take_duelists()

    def _take_duelists(self) -> None:
        if self.planning.take_duelists():
            self._begin_anew()

    def failed(self, failure: Failure) -> None:
        """Show that a request failed, in words of the window."""
        self.banner("error", in_window(failure.what), in_window(failure.remedy))

    def _ask_duels(self, choose: str = "") -> None:
        if choose or not self._listing.is_waiting:
            self._listing.ask(DuelsRequest, about=choose)

    def _duels_here(self, result: Result) -> None:
        self.show_duels(result.duels or [], self._listing.about)

    def show_duels(self, duels: list[DuelFacts], choose: str = "") -> None:
        """Show the former duels.

        Args:
            duels: all duels, newest first.
            choose: folder of the one to show; empty: the one shown before.
        """
        folders = [duel.folder for duel in self._duels]
        first = not self._knows_duels
        self._duels, self._knows_duels = duels, True
        self.duels_changed.emit(duels)
        if [duel.folder for duel in duels] != folders or choose:
            if first and not choose and not self.former.key and not self.bench.duelists:
                choose = next((duel.folder for duel in duels if duel.status == "running"), "")
            former = [Former(duel_name(duel), duel.created, duel.folder) for duel in duels]
            self.former.offer(former, choose or None)
        self._show()
        if self.isVisible() and self._is_any_running:
            self._look.start()

    def _show(self) -> None:
        duel = self.duel
        self.planning.setVisible(duel is None)
        self.former.setVisible(bool(self._duels))
        self.verdict.setVisible(duel is not None and duel.status == "finished")
        self.progress.setVisible(duel is not None)
        if duel is None:
            self.curves.stop()
            self.curves.hide()
            self.planning.review()
        else:
            self.progress.show_duel(duel)
            if duel.status == "finished":
                self.verdict.show_duel(duel)
            if self.isVisible():
                self.curves.follow(overlaid(duel))
                self.curves.setVisible(bool(self.curves.folders))
        self._offer()

    def _begin_anew(self) -> None:
        self.show_duel("")

    def _offer(self) -> None:
        duel = self.duel
        status = duel.status if duel is not None else ""
        name, tone = _PILLS.get(status, ("", "plain"))
        self.set_state(name, tone)
        self.reveal.setVisible(duel is not None)
        self.report.setVisible(duel is not None and bool(duel.report))
        self.again.setVisible(duel is not None)
        self.stop.setVisible(status == "running")
        self.copy.setVisible(status == "stopped" and duel is not None and bool(duel.message))
        planned = self.planning.card.plan is not None
        if self.primary is not None:
            starting = self.planning.card.is_starting
            won = self._winner() is not None
            self.primary.setVisible(duel is None or status == "stopped" or won)
            self.primary.setText(
                tr("Winner as draft")
                if won
                else tr("Resume")
                if status == "stopped"
                else tr("Starting ...")
                if starting
                else tr("Start the duel")
            )
            self.primary.set_icon("copy" if won else "play" if status == "stopped" else "scale")
            self.primary.setEnabled(won or status == "stopped" or self.planning.card.can_start)
        self.set_status("busy" if self._is_any_running else "done" if self._duels else "ready" if planned else "empty")
        self.fit_foot()

    def _press_primary(self) -> None:
        if self._winner() is not None:
            self._winner_as_draft()
        elif self.duel is None:
            self.clear_banner()
            self.planning.card.start()
        else:
            self._send(ResumeDuelRequest)

    def _stop(self) -> None:
        self.stop.setEnabled(False)
        self._send(StopDuelRequest, lambda: self.stop.setEnabled(True))

    def _send(
        self, request: type[StopDuelRequest] | type[ResumeDuelRequest], after: Callable[[], None] = lambda: None
    ) -> None:
        def done(_result: Result) -> None:
            after()
            self._ask_duels()
            self._look.start()

        def failed(failure: Failure) -> None:
            after()
            self.failed(failure)

        self.client.send(request, folder=self.former.key, on_result=done, on_failure=failed, owner=self)

    def _winner(self) -> int | None:
        duel = self.duel
        verdicts = duel.verdicts if duel is not None and not duel.tried else []
        winners = {verdict.winner for verdict in verdicts if duel is not None and verdict.measure == duel.judge}
        return winners.pop() if len(winners) == 1 else None

    def _winner_as_draft(self) -> None:
        duel, winner = self.duel, self._winner()
        if duel is None or winner is None:
            return
        side = duel.sides[winner]
        rates = [run.rate for run in duel.made if run.side == winner and run.phase != "grid"]

        def at_best_rate(recipe: Recipe) -> Recipe:
            best = max(set(rates), key=rates.count) if rates else recipe.train.learning_rate
            return recipe.model_copy(update={"train": recipe.train.model_copy(update={"learning_rate": best})})

        self.draft_from(Path(duel.folder) / "recipes" / f"{side.letter.lower()}.toml", side.name, at_best_rate)

    def _copy_details(self) -> None:
        """Copy what there is to know about why it stopped as one text."""
        if self.duel is not None:
            QGuiApplication.clipboard().setText(details_text(duel_failure(self.duel)))
            self.set_foot_note(tr("Copied."))

    def _open_report(self) -> None:
        if self.duel is not None:
            self._open_path(self.duel.report)

    @staticmethod
    def _open_path(path: str) -> None:
        QDesktopServices.openUrl(QUrl.fromLocalFile(path))
