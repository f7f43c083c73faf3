"""Cost of a planned sweep, and the card that lists its runs in their order."""

from __future__ import annotations

from PySide6.QtWidgets import QVBoxLayout, QWidget

from burnish_app.comparison.swept import planned_title
from burnish_app.look.language import tr
from burnish_app.look.tokens import GAP_PX, UNIT
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.text import Value, body, caption
from burnish_app.widgets.basic.wrapping import ColumnsLayout, columns_layout
from burnish_app.widgets.compare.plan_card import PlanContent
from burnish_app.wording.numbers import duration_text, plural
from burnish_engine.contract.facts.sweeps import SweepPlan, SweepRunPlan
from burnish_engine.contract.units import file_size, memory_size

_RUN_PX = 260


def plan_content(plan: SweepPlan) -> PlanContent:
    """Make what the plan card shows: the number of runs, their time, memory and disk."""
    count, seconds = plural(len(plan.runs), "run"), plan.seconds
    verdict = tr("{runs}, about {time}").format(runs=count, time=duration_text(seconds)) if seconds else count
    memory, disk = Value(tr("Memory, at most")), Value(tr("Disk"))
    memory.set(memory_size(max(run.memory_bytes for run in plan.runs)))
    disk_bytes, free_bytes = sum(run.disk_bytes for run in plan.runs), plan.disk_free_bytes
    full = disk_bytes > free_bytes
    disk.set(file_size(disk_bytes), tone="warning" if full else "")
    figures = QWidget()
    figures.setLayout(columns_layout((memory, disk), 4 * UNIT))
    unfit = [run for run in plan.runs if not run.fits]
    problem = ""
    if unfit:
        words = tr("{unfit} of {runs} would not fit. {name}: {problem}")
        name = planned_title(plan, unfit[0])
        problem = words.format(unfit=len(unfit), runs=len(plan.runs), name=name, problem=unfit[0].problem)
    below = [caption(tr("One after the other on one device; loading comes on top."))]
    if full:
        free = tr("Only {free} of disk space is free; exports of all runs need more.")
        below.insert(0, body(free.format(free=file_size(free_bytes)), "muted"))
    elif seconds is None:
        below.insert(0, body(tr("The time is unknown until the data was looked at on the page Data."), "muted"))
    return PlanContent(verdict, [figures], problem, below)


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
    text = "  ·  ".join(takes) if run.fits else tr("does not fit")
    fill(
        QVBoxLayout(holder),
        body(f"{number}.  {planned_title(plan, run)}"),
        caption(text, "muted" if run.fits else "error"),
        spacing_px=2,
    )
    holder.setToolTip(run.problem)
    return holder
