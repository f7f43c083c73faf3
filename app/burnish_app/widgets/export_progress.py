"""An export that goes on: its bar, its stages, and a way to stop it."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QGridLayout, QLabel

from burnish_app.export_stages import Standing, stages
from burnish_app.theme import UNIT
from burnish_app.widgets.banner import BusyLine
from burnish_app.widgets.card import Card
from burnish_app.widgets.layouts import clear
from burnish_app.widgets.text import Look, body, caption, set_look
from burnish_engine.contract.protocol import ExportJob

_SIGNS: dict[Standing, str] = {"done": "✓", "now": "▸", "waiting": "·"}
_LOOKS: dict[Standing, Look] = {"done": "success", "now": "accent", "waiting": "muted"}


class ExportProgress(Card):
    """Follows a job.

    Attributes:
        cancel: The person wants it stopped.
    """

    cancel = Signal()

    def __init__(self) -> None:
        super().__init__("Making and checking files")
        self.busy = BusyLine("Exporting ...", can_cancel=True)
        self.busy.cancel.connect(self.cancel)
        self._stages = QGridLayout()
        self._stages.setVerticalSpacing(2)
        self._stages.setHorizontalSpacing(UNIT)
        self._stages.setColumnStretch(1, 1)
        self._labels: list[tuple[QLabel, QLabel]] = []
        self.body.addWidget(self.busy)
        self.body.addLayout(self._stages)
        self.body.addWidget(caption("It goes on when this window closes. Nothing unfinished is left if it is stopped."))

    def show_job(self, job: ExportJob, *, importance: bool) -> None:
        """Show where a job is.

        Args:
            job: As it says.
            importance: Whether it computes an importance matrix.
        """
        self.busy.set_progress(job.what or "Starting ...", round(job.share * 1000), 1000)
        found = stages(job, importance=importance)
        if len(found) != len(self._labels):
            clear(self._stages)
            self._labels = [(body(""), body("")) for _ in found]
            for line, labels in enumerate(self._labels):
                for place, label in enumerate(labels):
                    self._stages.addWidget(label, line, place)
        for (sign, words), stage in zip(self._labels, found, strict=True):
            sign.setText(_SIGNS[stage.standing])
            words.setText(stage.words)
            for label in (sign, words):
                set_look(label, _LOOKS[stage.standing])

    def say_stopping(self) -> None:
        """It was asked to stop."""
        self.busy.set_progress("Stopping ...")
