"""Starts a run of the workbench's recipe, in a process of its own."""

from __future__ import annotations

from PySide6.QtCore import QObject, Signal

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.engine_there import EngineThere
from burnish_app.look.language import tr
from burnish_app.recipe.place_text import planned_place
from burnish_app.state.workbench import Workbench
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.serve.messages import Failure, Result
from burnish_engine.contract.serve.run_requests import StartRequest

_UNFIT = ExitCode.DOES_NOT_FIT


class RunStart(QObject):
    """One run at a time that is being started.

    Args:
        client: connection to the engine.
        bench: workbench with the recipe and its plan.
        other: engine of the machine elsewhere that the recipe may name.
        parent: page that the run is started from.

    Attributes:
        started: signal with the folder of the run; empty where the engine names none.
        failed: signal with the `Failure`.
    """

    started = Signal(str)
    failed = Signal(object)

    def __init__(self, client: EngineClient, bench: Workbench, other: EngineThere, parent: QObject) -> None:
        super().__init__(parent)
        self._client, self._bench, self._there = client, bench, other
        self._request = ""

    @property
    def is_waiting(self) -> bool:
        """Whether a run is being started."""
        return self._client.is_open(self._request)

    def start(self, *, anyway: bool) -> None:
        """Start a run, and fail where it does not fit on another machine, which asks nothing by itself.

        Args:
            anyway: whether to start although the plan says that the run does not fit.
        """
        plan, where = self._bench.plan, self._there.where
        if where and plan is not None and not plan.fits and not anyway:
            what = tr("It does not fit on {where}.").format(where=planned_place(where, self._there.offers))
            self.failed.emit(Failure(id="", what=what, remedy=" ".join(plan.problems), exit_code=_UNFIT))
            return
        self._request = self._client.send(
            StartRequest,
            recipe=self._bench.recipe_toml,
            anyway=anyway,
            owner=self,
            on_result=self._started,
            on_failure=self.failed.emit,
        )

    def _started(self, result: Result) -> None:
        self.started.emit(result.run or "")
