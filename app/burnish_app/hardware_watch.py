"""Keeps the hardware in view: the strip of the sidebar, the panel over the page, alarms and their remedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from PySide6.QtWidgets import QWidget

from burnish_app.engine.engine_client import EngineClient
from burnish_app.engine.hardware_monitor import HardwareMonitor
from burnish_app.look.language import tr
from burnish_app.page_list import IMPORTING
from burnish_app.sidebar import Sidebar
from burnish_app.sidebar_panel import SidebarPanel
from burnish_app.state.hardware_alarms import Alarm, find_alarms
from burnish_app.wording.hardware_text import alarm_text
from burnish_engine.contract.run.hardware_log import HardwareHistory
from burnish_engine.contract.serve.messages import Failure
from burnish_engine.contract.serve.replies import RunSummary
from burnish_engine.contract.serve.run_requests import CommandRequest

if TYPE_CHECKING:
    from burnish_app.pages.hardware import HardwarePage
    from burnish_app.widgets.hardware.live_view import LiveView
    from burnish_app.widgets.hardware.panel import HardwarePanel

_ANSWER_S = 30.0  # time after which the remedy is offered again where the alarm lasts


class HardwareWatch(SidebarPanel["HardwarePanel"]):
    """Connects the live samples with the sidebar and the panel.

    Args:
        client: connection to the engine.
        sidebar: sidebar of the window.
        over: widget that the panel lies over.
        make_page: function that returns the page Hardware, which is made when the panel is first opened.
    """

    def __init__(
        self, client: EngineClient, sidebar: Sidebar, over: QWidget, make_page: Callable[[], HardwarePage]
    ) -> None:
        super().__init__(sidebar, sidebar.hardware, over)
        self._make_page = make_page
        self._client = client
        self._runs: Sequence[RunSummary] = ()
        self._alarms: list[Alarm] = []
        self._live: LiveView | None = None
        self._asked: dict[tuple[str, int], tuple[float, str]] = {}
        self.monitor = HardwareMonitor(client, self)
        self.monitor.advanced.connect(self._advanced)
        sidebar.remedy.connect(lambda: self._remedy(self._alarms[0]) if self._alarms else None)

    def _make_panel(self) -> HardwarePanel:
        with IMPORTING:
            from burnish_app.widgets.hardware.panel import HardwarePanel

        page = self._make_page()
        self._live = page.live
        self._live.remedy.connect(self._remedy)
        self._live.show_history(self.monitor.history, self._alarms, self._can_help)
        return HardwarePanel(self._over, page)

    def set_seen(self, seen: bool) -> None:
        """Sample only while the window is seen, so that an idle card may sleep."""
        if seen:
            self.monitor.start()
        else:
            self.monitor.stop()

    def runs_changed(self, runs: Sequence[RunSummary]) -> None:
        """Take the new list of runs, to which commands may go."""
        self._runs = runs

    def _advanced(self, history: HardwareHistory) -> None:
        self._alarms = find_alarms(history)
        keys, now = {alarm.key for alarm in self._alarms}, history.t.last or 0.0
        self._asked = {key: (t, text) for key, (t, text) in self._asked.items() if key in keys and now - t < _ANSWER_S}
        self._sidebar.hardware.show_history(history)
        if self._live is not None:
            self._live.show_history(history, self._alarms, self._can_help)
        self._show_alarm()

    def _show_alarm(self) -> None:
        """Show the first alarm in the sidebar."""
        if not self._alarms:
            self._sidebar.set_alarm("")
            return
        first = self._alarms[0]
        _, asked = self._asked.get(first.key, (0.0, ""))
        remedy = tr("Use less memory") if self._can_help(first) and not asked else ""
        self._sidebar.set_alarm(asked or alarm_text(first)[0], remedy)

    def _run_on(self, gpu: int) -> RunSummary | None:
        """Find the live run on a GPU."""
        alive = [run for run in self._runs if run.standing in ("running", "paused")]
        name = f"cuda-{gpu}"
        return next((run for run in alive if name in (run.state.device, *run.state.further_devices)), None)

    def _can_help(self, alarm: Alarm) -> bool:
        return self._run_on(alarm.gpu) is not None

    def _remedy(self, alarm: Alarm) -> None:
        """Ask the run on the GPU to continue with less memory from its next step."""
        run = self._run_on(alarm.gpu)
        if run is None or alarm.key in self._asked:
            return
        self._answered(alarm, tr("Asked. The run answers after the step it is at."))
        self._client.send(
            CommandRequest,
            run=run.folder,
            command="smaller_plan",
            owner=self,
            on_failure=lambda failure: self._answered(alarm, _words_of(failure)),
        )

    def _answered(self, alarm: Alarm, text: str) -> None:
        """Show for a while, in place of the remedy, what came of asking for it."""
        self._asked[alarm.key] = (self.monitor.history.t.last or 0.0, text)
        self._show_alarm()


def _words_of(failure: Failure) -> str:
    return f"{failure.what} {failure.remedy}".strip()
