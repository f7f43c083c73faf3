"""The card of a running export: progress bar, stages, and a cancel button."""

from __future__ import annotations

import time

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QGridLayout, QLabel

from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.state.time_left import ShareClock
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.status_dot import show_stage
from burnish_app.widgets.basic.text import body, caption
from burnish_app.widgets.page.banner import BusyLine
from burnish_app.wording.export_stages import job_stages
from burnish_app.wording.numbers import times_text
from burnish_app.wording.run_text import slower_text
from burnish_engine.contract.serve.replies import ExportJob

_LOOK_MS = 1000


class ExportProgress(Card):
    """Shows the progress of an export job.

    Attributes:
        cancel: signal without arguments, emitted when the person cancels the export.
    """

    cancel = Signal()

    def __init__(self) -> None:
        super().__init__(tr("Making and checking files"), icon_name="box")
        self.busy = BusyLine(tr("Exporting ..."), can_cancel=True)
        self.busy.cancel.connect(self.cancel)
        self._stages = QGridLayout()
        self._stages.setVerticalSpacing(UNIT)
        self._stages.setHorizontalSpacing(UNIT + 4)
        self._stages.setColumnStretch(1, 1)
        self._labels: list[tuple[QLabel, QLabel]] = []
        self.time, self.slower = caption(""), body("", "warning")
        self.slower.hide()
        self._job: ExportJob | None = None
        self._clock = ShareClock()
        self._timer = QTimer(self, interval=_LOOK_MS)
        self._timer.timeout.connect(self._show_time)
        fill(
            self.body,
            self.busy,
            self.time,
            self.slower,
            self._stages,
            caption(tr("It continues when this window closes. Nothing unfinished is left if it is stopped.")),
        )

    def show_job(self, job: ExportJob, *, importance: bool) -> None:
        """Show the progress of a job.

        Args:
            job: job of the export.
            importance: whether the export computes an importance matrix.
        """
        if self._job is None or job.started != self._job.started:
            self._clock = ShareClock()
        self._job = job
        self._show_time()
        self.busy.set_progress(job.what or tr("Starting ..."), round(job.share * 1000), 1000)
        found = job_stages(job, importance=importance)
        if len(found) != len(self._labels):
            clear(self._stages)
            self._labels = [(body(""), body("")) for _ in found]
            for line, labels in enumerate(self._labels):
                for place, label in enumerate(labels):
                    self._stages.addWidget(label, line, place)
        for (sign, text), stage in zip(self._labels, found, strict=True):
            show_stage(sign, text, stage.text, stage.status)

    def show_stopping(self) -> None:
        """Show that the export was asked to stop."""
        self.busy.set_progress(tr("Stopping ..."))

    def showEvent(self, event: QShowEvent) -> None:
        """Tell the time while it is seen."""
        super().showEvent(event)
        self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        """Tell nothing that is not seen."""
        super().hideEvent(event)
        self._timer.stop()

    def _show_time(self) -> None:
        """Show for how long the export runs and how long it still takes, also while its share does not grow."""
        job = self._job
        if job is None:
            return
        left = self._clock.note(time.monotonic(), job.share)
        times = times_text(time.time() - job.started if job.started else 0.0, left)
        self.time.setText(times)
        self.time.setVisible(bool(times))
        why = slower_text(left)
        self.slower.setText(why)
        self.slower.setVisible(bool(why))
