"""Will it fit? The answer in words, memory by component, and what the run will take."""

from __future__ import annotations

from PySide6.QtWidgets import QVBoxLayout

from burnish_app.theme import UNIT
from burnish_app.widgets.card import Card
from burnish_app.widgets.layouts import clear
from burnish_app.widgets.memory_bar import MemoryBar, Part
from burnish_app.widgets.text import Value, body, caption, set_look, title
from burnish_app.widgets.wrapping import in_columns
from burnish_app.words import count_in_words, time_in_words
from burnish_engine.contract.advice import Plan
from burnish_engine.contract.units import file_size, memory_size

_TIGHT = 0.9
"""Share of the free memory from which a plan that fits is called tight: predictions are right to a few percent. Where
the engine makes the most of the memory, it is what that leaves free by default."""

_ADAPTER_HINT = "Those of the adapter. The model itself stays as it is."
_WHOLE_HINT = "Every weight of the model; there is no adapter."


class FitCard(Card):
    """Shows a plan. Until the next one comes, the last stays and is called out of date."""

    def __init__(self) -> None:
        super().__init__("What it takes")
        self.verdict = title("Not known yet.")
        self._memory = body("", "muted")
        self.body.addWidget(self.verdict)
        self.body.addWidget(self._memory)
        self._state = caption("")
        self.corner.addWidget(self._state)
        self.bar = MemoryBar()
        self.body.addWidget(self.bar)
        self.time = Value("Training time")
        self.speed = Value("Speed", "tokens/s")
        self.steps = Value("Steps", "", "Each step is one update of what is trained.")
        self.disk = Value("On disk", "", "Checkpoints, what was trained and the exported files.")
        self.trained = Value("Trained weights", "", _ADAPTER_HINT)
        figures = in_columns((self.time, self.speed, self.steps, self.disk, self.trained))
        figures.setContentsMargins(0, UNIT, 0, UNIT // 2)
        self.body.addLayout(figures)
        self._words = QVBoxLayout()
        self._words.setSpacing(UNIT // 2)
        self.body.addLayout(self._words)

    def show_stale(self) -> None:
        """The recipe changed; the next plan is on its way."""
        self._state.setText("updating ...")

    def show_failure(self, words: str) -> None:
        """There is no plan, and why."""
        self._state.setText("")
        self.verdict.setText("Not known.")
        set_look(self.verdict, "")
        clear(self._words)
        self._words.addWidget(body(words, "error"))

    def show_plan(self, plan: Plan, *, whole: bool = False) -> None:
        """Show what a recipe will take.

        Args:
            plan: Of the recipe.
            whole: It trains every weight of the model, without an adapter.
        """
        self.trained.setToolTip(_WHOLE_HINT if whole else _ADAPTER_HINT)
        self._state.setText(plan.speed_source)
        self.verdict.setText(verdict(plan))
        set_look(self.verdict, "" if plan.fits else "error")
        free = memory_size(plan.memory_free_bytes)
        self._memory.setText(f"{memory_size(plan.memory_bytes)} at most, of {free} free on the {plan.device}.")
        parts = [Part(part.name[:1].upper() + part.name[1:], part.bytes, part.note) for part in plan.memory]
        self.bar.show_parts(parts, plan.memory_free_bytes)
        self.time.set(time_in_words(plan.seconds) if plan.seconds is not None else "–")
        self.speed.set(count_in_words(plan.tokens_per_s))
        self.steps.set(f"{plan.steps:,}" if plan.steps is not None else "–")
        self.disk.set(
            file_size(plan.disk_bytes),
            f"of {file_size(plan.disk_free_bytes)} free",
            look="error" if plan.disk_bytes > plan.disk_free_bytes else "",
        )
        self.trained.set(count_in_words(plan.trainable_parameters))
        set_look(self._state, "muted")
        clear(self._words)
        for problem in plan.problems:
            self._words.addWidget(body(f"✕  {problem}", "error"))
        if plan.coverage and plan.coverage.kinds:
            what = "Training" if whole else "The adapter"
            self._words.addWidget(caption(f"{what} reaches {plan.coverage.text}."))
        if plan.host_bytes:
            host = f"{memory_size(plan.host_bytes)} of {memory_size(plan.host_free_bytes)} free system memory."
            self._words.addWidget(caption(f"Beside it, {host}"))
        for note in plan.notes:
            self._words.addWidget(caption(note))


def verdict(plan: Plan) -> str:
    """Whether it fits, in two or three words."""
    if not plan.fits:
        return "It does not fit."
    room = plan.memory_budget_bytes or _TIGHT * plan.memory_free_bytes
    return "It fits, barely." if plan.memory_bytes > room else "It fits."


def plan_in_a_line(plan: Plan) -> str:
    """The verdict with memory and time, for the foot of the page."""
    memory = f"{memory_size(plan.memory_bytes)} of {memory_size(plan.memory_free_bytes)} free"
    time = f", about {time_in_words(plan.seconds)}" if plan.seconds is not None else ""
    return f"{verdict(plan)} {memory}{time}."
