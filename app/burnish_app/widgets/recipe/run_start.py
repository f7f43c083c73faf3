"""Starts a run of the workbench's recipe, in a process of its own."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.engine_there import EngineThere
from burnish_app.engine.question import Question
from burnish_app.look.language import tr
from burnish_app.recipe.place_text import planned_place
from burnish_app.state.workbench import Workbench
from burnish_app.widgets.page.banner import Banner, BannerAction
from burnish_app.widgets.page.page import Page
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.run_requests import StartRequest

_UNFIT = ExitCode.DOES_NOT_FIT


class RunStart(QObject):
    """One run at a time that is being started. The page says why one could not be, and may offer to do so anyway.

    Args:
        client: connection to the engine.
        bench: workbench with the recipe and its plan.
        other: engine of the machine elsewhere that the recipe may name.
        page: page that the run is started from.

    Attributes:
        started: signal with the folder of the run; empty where the engine names none.
        refused: signal without arguments, emitted when a run could not be started.
        wanted_anyway: signal without arguments, emitted when it is wanted although it does not fit.
    """

    started = Signal(str)
    refused = Signal()
    wanted_anyway = Signal()

    def __init__(self, client: EngineClient, bench: Workbench, other: EngineThere, page: Page) -> None:
        super().__init__(page)
        self._bench, self._there, self._page = bench, other, page
        self._question = Question(client, self, self._started, self._failed)
        self._refusal: Banner | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether a run is being started."""
        return self._question.is_waiting

    def start(self, *, anyway: bool) -> None:
        """Start a run, and fail where it does not fit on another machine, which asks nothing by itself.

        Args:
            anyway: whether to start although the plan says that the run does not fit.
        """
        plan, where = self._bench.plan, self._there.where
        if where and plan is not None and not plan.fits and not anyway:
            what = tr("It does not fit on {where}.").format(where=planned_place(where, self._there.offers))
            self._failed(Failure(id="", what=what, remedy=" ".join(plan.problems), exit_code=_UNFIT))
            return
        self._question.ask(StartRequest, recipe=self._bench.recipe_toml, anyway=anyway)

    def forget_refusal(self) -> None:
        """Close what was said of a recipe that is another one now, which its button would start."""
        if self._refusal is not None and self._refusal is self._page.shown_banner:
            self._page.clear_banner()
        self._refusal = None

    def _started(self, result: Result) -> None:
        self.started.emit(result.run or "")

    def _failed(self, failure: Failure) -> None:
        actions: list[BannerAction] = []
        if failure.exit_code in (_UNFIT, ExitCode.NO_SPACE):
            actions = [(tr("Start anyway"), self.wanted_anyway.emit)]
        self._refusal = self._page.banner("error", failure.what, failure.remedy, actions)
        self.refused.emit()
