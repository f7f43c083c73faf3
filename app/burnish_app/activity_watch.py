"""Keeps what is running in view: the button of the sidebar, the list over the page, and the requests that stop it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QWidget

from burnish_app.activity_board import ActivityBoard
from burnish_app.look.language import tr
from burnish_app.page_list import IMPORTING
from burnish_app.sidebar import Sidebar
from burnish_app.sidebar_panel import SidebarPanel
from burnish_app.wording.activity import Activity

if TYPE_CHECKING:
    from burnish_app.engine.engine_client import EngineClient
    from burnish_app.widgets.activity.panel import ActivityPanel
    from burnish_engine.contract.serve.messages import Failure

_GOES_ON = tr("It continues when this window closes.")


class ActivityWatch(SidebarPanel["ActivityPanel"]):
    """Connects the board of what is running with the sidebar and the list.

    Args:
        client: connection to the engine.
        sidebar: sidebar of the window.
        over: widget that the list lies over.

    Attributes:
        board: board that sources report to.
        opened: signal with the `Activity` whose page the person wants.
        failed: signal with the `Failure` of a request to stop something.
    """

    opened = Signal(object)
    failed = Signal(object)

    def __init__(self, client: EngineClient, sidebar: Sidebar, over: QWidget) -> None:
        super().__init__(sidebar, sidebar.activity, over)
        self._client = client
        self.board = ActivityBoard(self)
        self.board.changed.connect(self._show)

    def _make_panel(self) -> ActivityPanel:
        with IMPORTING:
            from burnish_app.widgets.activity.panel import ActivityPanel

        panel = ActivityPanel(self._over)
        panel.opened.connect(self._open_page)
        panel.stopped.connect(self._stop)
        panel.show_activities(self.board.activities)
        return panel

    @property
    def lasting(self) -> list[Activity]:
        """The activities that continue when the window closes."""
        return [one for one in self.board.activities if one.outlives]

    def _show(self) -> None:
        self._sidebar.activity.show_activities(self.board.activities)
        self._sidebar.set_run_note(_GOES_ON if self.lasting else "")
        if self._panel is not None:
            self._panel.show_activities(self.board.activities)
        if not self.board.activities:
            self.close_panel()

    def _open_page(self, activity: Activity) -> None:
        self.close_panel()
        self.opened.emit(activity)

    def _stop(self, activity: Activity) -> None:
        stop_activity(
            self._client,
            activity,
            done=lambda _result: None,
            failed=lambda failure: self._not_stopped(activity, failure),
            owner=self,
        )

    def _not_stopped(self, activity: Activity, failure: Failure) -> None:
        self.panel.show_not_stopped(activity.key)
        self.failed.emit(failure)


def stop_activity(
    client: EngineClient,
    activity: Activity,
    *,
    done: Callable[[object], object],
    failed: Callable[[Failure], object],
    owner: QObject,
) -> None:
    """Ask one activity to stop.

    Args:
        client: connection to the engine.
        activity: activity to stop.
        done: function called with the answer once it was asked.
        failed: function called where it could not be asked.
        owner: object whose end ends the waiting.
    """
    from burnish_engine.contract.serve.duel_requests import StopDuelRequest
    from burnish_engine.contract.serve.export_requests import CancelExportRequest
    from burnish_engine.contract.serve.model_requests import DownloadRequest
    from burnish_engine.contract.serve.run_requests import CommandRequest, StopBenchRequest

    run = activity.folder
    if activity.stop is not None:
        done(activity.stop())
    elif not activity.page:
        client.send(StopBenchRequest, pid=int(run), on_result=done, on_failure=failed, owner=owner)
    elif activity.page == "export":
        client.send(CancelExportRequest, run=run, on_result=done, on_failure=failed, owner=owner)
    elif activity.page == "model":  # what was fetched stays
        client.send(DownloadRequest, name=run, do="pause", on_result=done, on_failure=failed, owner=owner)
    elif activity.page == "duel":
        client.send(StopDuelRequest, folder=run, on_result=done, on_failure=failed, owner=owner)
    else:
        client.send(CommandRequest, run=run, command="stop", on_result=done, on_failure=failed, owner=owner)
