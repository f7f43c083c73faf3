"""The list of what is running, over the page: name, stage, progress, time left, and buttons to open and to stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QVBoxLayout, QWidget

from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.widgets.activity.floating_panel import EDGE_PX, FloatingPanel
from burnish_app.widgets.basic.buttons import quiet
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.text import ElidedLabel, caption, heading
from burnish_app.widgets.page.banner import ProgressBar
from burnish_app.wording.activity import Activity, activity_text

_WIDTH_PX = 460


class ActivityPanel(FloatingPanel):
    """Lists what is running.

    Attributes:
        opened: signal with the `Activity` whose page the person wants.
        stopped: signal with the `Activity` that the person stops.
        rows: row of each activity, by its key.
    """

    opened = Signal(object)
    stopped = Signal(object)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, _WIDTH_PX)
        self.setAccessibleName(tr("In progress"))
        self.rows: dict[tuple[str, str, str], ActivityRow] = {}
        self._stopping: set[tuple[str, str, str]] = set()
        head = fill(QHBoxLayout(), (heading(tr("In progress")), 1), quiet(tr("Close"), self.closed.emit))
        self._list = fill(QVBoxLayout(), spacing_px=2 * UNIT)
        column = fill(
            QVBoxLayout(self.content),
            head,
            self._list,
            spacing_px=UNIT + 4,
            margins_px=(EDGE_PX, EDGE_PX // 2, EDGE_PX, EDGE_PX // 2),
        )
        column.addStretch()

    def show_activities(self, activities: Sequence[Activity]) -> None:
        """Show what is running; rows of what is still there stay, so that a press is never lost."""
        keys = [one.key for one in activities]
        self._stopping &= set(keys)
        if keys != list(self.rows):
            clear(self._list)
            self.rows = {}
            for one in activities:
                row = self.rows[one.key] = ActivityRow(self._opener(one.key), self._stopper(one.key))
                self._list.addWidget(row)
            if self.isVisible():
                self.fit_soon()
        for one in activities:
            self.rows[one.key].show_activity(one, stopping=one.key in self._stopping)

    def show_not_stopped(self, key: tuple[str, str, str]) -> None:
        """Offer to stop an activity again, which could not be asked to."""
        self._stopping.discard(key)
        if key in self.rows:
            self.rows[key].show_activity(self.rows[key].activity, stopping=False)

    def _opener(self, key: tuple[str, str, str]) -> Callable[[], object]:
        return lambda: self.opened.emit(self.rows[key].activity)

    def _stopper(self, key: tuple[str, str, str]) -> Callable[[], object]:
        def stop() -> None:
            row = self.rows[key]
            self._stopping.add(key)
            self.stopped.emit(row.activity)
            row.show_activity(row.activity, stopping=True)

        return stop


class ActivityRow(QWidget):
    """One activity: two lines, a bar and two buttons.

    Args:
        show: function that the button "Open" calls.
        stop: function that the button "Stop" calls.

    Attributes:
        activity: what is shown.
    """

    activity: Activity

    def __init__(self, show: Callable[[], object], stop: Callable[[], object]) -> None:
        super().__init__()
        self.name, self.text, self.bar = ElidedLabel(bold=True), caption(""), ProgressBar()
        self.open_button, self.stop_button = quiet(tr("Open"), show, "open"), quiet(tr("Stop"), stop, "stop")
        top = fill(
            QHBoxLayout(),
            (self.name, 1),
            (self.open_button, 0, Qt.AlignmentFlag.AlignVCenter),
            (self.stop_button, 0, Qt.AlignmentFlag.AlignVCenter),
            spacing_px=UNIT,
        )
        fill(QVBoxLayout(self), top, self.text, self.bar, spacing_px=4)

    def show_activity(self, activity: Activity, *, stopping: bool) -> None:
        """Show how far an activity is.

        Args:
            activity: activity to show.
            stopping: whether it was asked to stop.
        """
        self.activity = activity
        self.name.setText(activity.name)
        self.text.setText(tr("Stopping ...") if stopping else activity_text(activity, named=False))
        stop = tr("Pause") if activity.can_pause else tr("Stop")
        self.stop_button.setText(stop)
        self.stop_button.set_icon("pause" if activity.can_pause else "stop")
        for button, verb in ((self.open_button, tr("Open")), (self.stop_button, stop)):
            button.setAccessibleName(f"{verb}: {activity.name}")
        self.open_button.setVisible(bool(activity.page))
        self.stop_button.setEnabled(not stopping)
        self.bar.setAccessibleName(activity_text(activity))
        self.bar.set_share(activity.share)
        self.bar.set_color("accent" if activity.moves else "faint")
