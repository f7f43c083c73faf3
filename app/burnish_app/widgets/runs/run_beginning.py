"""The part of the page Train before the first step: the stages, and where the charts will be."""

from __future__ import annotations

import time

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QSizePolicy, QWidget

from burnish_app.look.tokens import GAP_PX
from burnish_app.widgets.basic.layouts import fill
from burnish_app.widgets.runs.run_stages import ChartsToCome, RunStages
from burnish_app.wording.run_stages import run_facts, run_stages
from burnish_engine.contract.run.fold import RunState

_BESIDE_PX = 690  # width with room for both side by side


class RunBeginning(QWidget):
    """Shows the stages of a run before its first step.

    Attributes:
        stages: card with the stages.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Expanding)
        self.stages, to_come = RunStages(), ChartsToCome()
        self._line = QBoxLayout(QBoxLayout.Direction.LeftToRight, self)
        fill(self._line, (self.stages, 2, Qt.AlignmentFlag.AlignTop), (to_come, 3), spacing_px=GAP_PX)

    def draw(self, state: RunState) -> None:
        """Show how far a run is now.

        Args:
            state: state folded from the run's events so far.
        """
        self.stages.show_stages(run_stages(state, time.time()))
        self.stages.show_facts(run_facts(state))

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Put the charts to come below the stages where there is no room beside them."""
        super().resizeEvent(event)
        directions = QBoxLayout.Direction
        self._line.setDirection(directions.LeftToRight if self.width() >= _BESIDE_PX else directions.TopToBottom)
