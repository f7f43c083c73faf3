"""The card that says whether a run fits: a verdict, memory by component, time, speed and disk."""

from __future__ import annotations

from PySide6.QtWidgets import QVBoxLayout

from burnish_app.look.language import say, tr
from burnish_app.look.theme import UNIT
from burnish_app.recipe.plan_text import time_text
from burnish_app.widgets.basic.card import Card
from burnish_app.widgets.basic.layouts import clear, fill
from burnish_app.widgets.basic.text import Value, body, caption, headline, set_tone
from burnish_app.widgets.basic.wrapping import columns_layout
from burnish_app.widgets.recipe.last_change import LastChange
from burnish_app.widgets.recipe.memory_bar import MemoryBar, MemorySegment
from burnish_app.wording.machine_text import place_text
from burnish_app.wording.numbers import count_text, duration_text
from burnish_app.wording.plain_words import plain_words
from burnish_engine.contract.facts.advice import RunPlan
from burnish_engine.contract.units import file_size, memory_size
from burnish_engine.contract.wording.sentences import fit_sentence, time_sentence

_DISK_HINT = tr("Checkpoints and what was trained. An export takes more afterwards.")
_ADAPTER_HINT = tr("Those of the adapter. The model itself stays as it is.")
_FULL_HINT = tr("Every weight of the model; there is no adapter.")


class FitCard(Card):
    """Shows the plan of a recipe. Until the next plan comes, the last one stays and is marked as out of date."""

    def __init__(self) -> None:
        super().__init__(tr("What it takes"), icon_name="memory")
        self.verdict = headline(tr("Not known yet."))
        self.memory = caption("")
        fill(self.body, self.verdict, self.memory)
        self._state = caption("")
        self.corner.addWidget(self._state)
        self.bar = MemoryBar()
        fill(self.body, UNIT // 2, self.bar)
        self.time = Value(tr("Time"), large=False)
        self.speed = Value(tr("Speed"), "tokens/s", large=False)
        self.steps = Value(tr("Steps"), "", tr("Each step is one update of what is trained."), large=False)
        self.disk = Value(tr("On disk"), "", _DISK_HINT, large=False)
        self._figures = (self.time, self.speed, self.steps, self.disk)
        figures = columns_layout(self._figures, 2 * UNIT, line_px=UNIT, even=True)
        figures.setContentsMargins(0, UNIT // 2, 0, UNIT // 2)
        self.body.addLayout(figures)
        self.change = LastChange()
        self.body.addWidget(self.change)
        self._messages = fill(QVBoxLayout(), spacing_px=UNIT // 2)
        self.body.addLayout(self._messages)

    def show_stale(self) -> None:
        """Mark the plan as out of date, because the recipe changed."""
        self._state.setText(tr("updating ..."))

    def show_invalid(self) -> None:
        """Take back verdict and figures, because a value of the recipe is invalid and nothing can be predicted."""
        self._show_figures(shown=True)
        self._state.setText("")
        self.verdict.setText(tr("Not known yet."))
        set_tone(self.verdict, "muted")
        self.memory.setText(tr("A value of the recipe has to be mended first."))
        self.bar.show_parts((), 0)
        for value in self._figures:
            value.set("–")
        self.change.forget()
        clear(self._messages)

    def show_elsewhere(self, where: str) -> None:
        """Take back verdict and figures, because another machine trains, which was not asked yet."""
        self.show_invalid()
        self._show_figures(shown=False)
        self.verdict.setText(tr("Not known here."))
        self.memory.setText(
            tr("{place} is asked when training starts. Nothing is sent before the run fits there.").format(
                place=place_text(where)
            )
        )

    def _show_figures(self, *, shown: bool) -> None:
        for widget in (self.bar, *self._figures):
            widget.setVisible(shown)

    def show_failure(self, text: str) -> None:
        """Show why there is no plan."""
        self._state.setText("")
        self.verdict.setText(tr("Not known."))
        set_tone(self.verdict, "")
        self.change.forget()
        clear(self._messages)
        self._messages.addWidget(body(plain_words(text), "error"))

    def show_plan(self, plan: RunPlan, *, full_fine_tuning: bool = False, where: str = "") -> None:
        """Show a plan.

        Args:
            plan: predicted memory, time and disk of the recipe.
            full_fine_tuning: whether the recipe trains every weight, without an adapter.
            where: what to call the other machine that the plan is for; empty: this one.
        """
        self._show_figures(shown=True)
        self._state.setText(where or plan.speed_source)
        self._state.setToolTip(plan.speed_source)
        self.verdict.setText(say(fit_sentence(plan)))
        set_tone(self.verdict, "" if plan.fits else "error")
        free = memory_size(plan.memory_free_bytes)
        text = tr("{memory_bytes} of {free} free.") if plan.fits else tr("{memory_bytes} needed, {free} free.")
        memory = text.format(memory_bytes=memory_size(plan.memory_bytes), free=free)
        device = tr("{device} of {where}.").format(device=plan.device, where=where) if where else plan.device
        self.memory.setText(f"{memory} {device}" if where else memory)
        self.memory.setToolTip(device)
        parts = [MemorySegment(part.name[:1].upper() + part.name[1:], part.bytes, part.note) for part in plan.memory]
        self.bar.show_parts(parts, plan.memory_free_bytes)
        self.time.set(duration_text(plan.total_seconds) if plan.total_seconds is not None else "–")
        self.time.setToolTip(time_text(plan))
        self.speed.set(count_text(plan.tokens_per_s))
        self.steps.set(f"{plan.steps:,}" if plan.steps is not None else "–")
        self.disk.set(
            file_size(plan.disk_bytes),
            "",
            tone="error" if plan.disk_bytes > plan.disk_free_bytes else "",
        )
        self.disk.setToolTip(
            tr("{disk_hint} {disk_free_bytes} are free.").format(
                disk_hint=_DISK_HINT, disk_free_bytes=file_size(plan.disk_free_bytes)
            )
        )
        self.steps.setToolTip(
            tr("Each step is one update of {count} weights. {what}").format(
                count=count_text(plan.trainable_parameters), what=_FULL_HINT if full_fine_tuning else _ADAPTER_HINT
            )
        )
        set_tone(self._state, "muted")
        clear(self._messages)
        for problem in plan.problems:
            self._messages.addWidget(body(f"✕  {plain_words(problem)}", "error"))
        if plan.coverage and plan.coverage.kinds:
            what = tr("Training") if full_fine_tuning else tr("The adapter")
            self._messages.addWidget(caption(tr("{what} reaches {text}.").format(what=what, text=plan.coverage.text)))
        for part in plan.times:
            if part.name == "replies":  # most of the time where rewards are learned from
                self._messages.addWidget(caption(say(time_sentence(part, duration_text))))
        if plan.host_bytes:
            host = tr("+ {host_bytes} system memory").format(host_bytes=memory_size(plan.host_bytes))
            self._messages.addWidget(caption(host))
        for note in plan.notes:
            self._messages.addWidget(caption(plain_words(note)))
