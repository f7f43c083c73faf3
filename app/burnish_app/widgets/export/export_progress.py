"""The card of a running export: progress bar, stages, and a cancel button."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QGridLayout, QLabel

from burnish_app.look.language import tr
from burnish_app.look.theme import UNIT
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.status_dot import show_stage
from burnish_app.widgets.basic.text import body, caption
from burnish_app.widgets.page.banner import BusyLine
from burnish_app.wording.export_stages import job_stages
from burnish_engine.contract.serve.replies import ExportJob


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
        fill(
            self.body,
            self.busy,
            self._stages,
            caption(tr("It continues when this window closes. Nothing unfinished is left if it is stopped.")),
        )

    def show_job(self, job: ExportJob, *, importance: bool) -> None:
        """Show the progress of a job.

        Args:
            job: job of the export.
            importance: whether the export computes an importance matrix.
        """
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
