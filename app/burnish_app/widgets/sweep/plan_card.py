"""The card that says what a sweep would take, before anything is started."""

from __future__ import annotations

from burnish_app.comparison.swept import planned_title
from burnish_app.look.language import tr
from burnish_app.look.tokens import UNIT
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.text import Value, body, caption, headline
from burnish_app.widgets.basic.wrapping import columns_layout
from burnish_app.widgets.page.banner import BusyLine
from burnish_app.wording.numbers import duration_text, plural
from burnish_engine.contract.facts.sweeps import SweepPlan
from burnish_engine.contract.units import file_size, memory_size


class SweepPlanCard(Card):
    """Shows the number of runs, their time, memory and disk."""

    def __init__(self) -> None:
        super().__init__(tr("What it takes"), icon_name="clock")
        self.verdict = headline("")
        self.memory, self.disk = Value(tr("Memory, at most")), Value(tr("Disk"))
        self.note = body("", "muted")
        self.problem = body("", "error")
        self._busy = BusyLine(tr("Predicting the runs ..."))
        self._figures = columns_layout((self.memory, self.disk), 4 * UNIT)
        self._source = caption(tr("One after the other on one device; loading comes on top."))
        for widget in (self._busy, self.verdict):
            self.body.addWidget(widget)
        self.body.addLayout(self._figures)
        for label in (self.problem, self.note, self._source):
            self.body.addWidget(label)
        self.body.addStretch(1)
        self.show_wanting("")

    def show_wanting(self, text: str) -> None:
        """Show what is missing for a plan; empty: one is being made."""
        self._busy.setVisible(not text)
        self.verdict.setText(text)
        self.verdict.setVisible(bool(text))
        self._show_figures(shown=False)

    def show_failure(self, text: str) -> None:
        """Show why there is no plan."""
        self.show_wanting(tr("No plan."))
        self.problem.setText(text)
        self.problem.show()

    def show_plan(self, plan: SweepPlan) -> None:
        """Show a plan."""
        self._busy.hide()
        unfit = [run for run in plan.runs if not run.fits]
        count, seconds = plural(len(plan.runs), "run"), plan.seconds
        about = tr("{runs}, about {time}").format(runs=count, time=duration_text(seconds)) if seconds else count
        self.verdict.setText(about)
        self.verdict.show()
        self.memory.set(memory_size(max(run.memory_bytes for run in plan.runs)))
        disk = sum(run.disk_bytes for run in plan.runs)
        full = disk > plan.disk_free_bytes
        self.disk.set(file_size(disk), tone="warning" if full else "")
        self._show_figures(shown=True)
        if unfit:
            names = tr("{unfit} of {runs} would not fit. {name}: {problem}")
            self.problem.setText(
                names.format(
                    unfit=len(unfit), runs=len(plan.runs), name=planned_title(plan, unfit[0]), problem=unfit[0].problem
                )
            )
        self.problem.setVisible(bool(unfit))
        free = tr("Only {free} of disk space is free; exports of all runs need more.")
        unknown = tr("The time is unknown until the data was looked at on the page Data.")
        note = free.format(free=file_size(plan.disk_free_bytes)) if full else unknown if seconds is None else ""
        self.note.setText(note)
        self.note.setVisible(bool(note))

    def _show_figures(self, *, shown: bool) -> None:
        for value in (self.memory, self.disk, self._source):
            value.setVisible(shown)
        self.problem.hide()
        self.note.hide()
