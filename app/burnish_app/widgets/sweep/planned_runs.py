"""The card that lists the runs of a sweep before they are started, in the order in which they will be made."""

from __future__ import annotations

from PySide6.QtWidgets import QVBoxLayout, QWidget

from burnish_app.comparison.swept import planned_title
from burnish_app.look.language import tr
from burnish_app.look.tokens import GAP_PX, UNIT
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear
from burnish_app.widgets.basic.text import body, caption
from burnish_app.widgets.basic.wrapping import ColumnsLayout
from burnish_app.wording.numbers import duration_text
from burnish_engine.contract.facts.sweeps import SweepPlan, SweepRunPlan
from burnish_engine.contract.units import memory_size

_RUN_PX = 260


class PlannedRuns(Card):
    """Lists the runs of a plan."""

    def __init__(self) -> None:
        super().__init__(tr("The runs, in this order"), icon_name="runs")
        self._runs = ColumnsLayout(GAP_PX, UNIT + 4, even=True)
        self.body.addLayout(self._runs)

    def show_plan(self, plan: SweepPlan) -> None:
        """Show a plan."""
        clear(self._runs)
        for number, run in enumerate(plan.runs, start=1):
            self._runs.addWidget(_planned(number, plan, run))


def _planned(number: int, plan: SweepPlan, run: SweepRunPlan) -> QWidget:
    takes = [memory_size(run.memory_bytes)]
    if run.seconds is not None:
        takes.insert(0, duration_text(run.seconds))
    holder = QWidget()
    holder.setMinimumWidth(_RUN_PX)
    column = QVBoxLayout(holder)
    column.setContentsMargins(0, 0, 0, 0)
    column.setSpacing(2)
    column.addWidget(body(f"{number}.  {planned_title(plan, run)}"))
    text = "  ·  ".join(takes) if run.fits else tr("does not fit")
    column.addWidget(caption(text, "muted" if run.fits else "error"))
    holder.setToolTip(run.problem)
    return holder
