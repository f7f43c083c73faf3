"""Predicts the time to the end of a running run: from its plan at first, then from the measured times of its parts."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from burnish_engine.advise.plan.run_time import LOOKS, RunPace, time_parts
from burnish_engine.contract.facts.advice import RunPlan
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.events import (
    CheckpointSaved,
    EvaluationDone,
    Event,
    GeneralTextDone,
    GuardReported,
    PhaseChanged,
    RewardsGiven,
    TaskScored,
)

MEASURED_STEPS = 5
"""Steps after which their measured time replaces the predicted one."""
_MEAN_OF = 20  # newest steps whose mean time is taken
_PHASES = {"weights": "loading", "sampling": "prompts"}  # phases whose time is that of a part


class TimeLeft:
    """Predicts the time to the end of a run; it sees the run's events and the time of its steps.

    Args:
        recipe: recipe of the run.
        plan: plan of the run; None where there is none.
        steps: optimizer steps of the whole run.
    """

    def __init__(self, recipe: Recipe, plan: RunPlan | None, steps: int) -> None:
        self._recipe, self._total = recipe, steps
        self._steps: deque[float] = deque(maxlen=_MEAN_OF)
        self._looks = LOOKS
        self._made = 0
        self._phase = ("", 0.0)
        self._took: dict[str, float] = {}
        self._pace, self._samples = _planned_pace(plan), plan.samples if plan else None

    def observe(self, event: Event) -> None:
        """Take the time of an evaluation, save, check or round of replies from the event that ends it."""
        if isinstance(event, PhaseChanged):
            name, since = self._phase
            if name in _PHASES:
                self._take(_PHASES[name], event.t - since)
            self._phase = event.phase, event.t
        match event:
            case EvaluationDone():
                self._take("evaluations", event.seconds)
            case GeneralTextDone():
                self._take("general_text", event.seconds)
            case TaskScored():
                self._take("task", event.seconds)
            case RewardsGiven():
                self._take("replies", event.written_s + event.judged_s)
            case CheckpointSaved():
                self._take("saves", event.seconds)
            case GuardReported(when="before" | "after_warmup"):
                self._looks = LOOKS - (1 if event.when == "before" else 2)
                if event.seconds and self._pace.look_s:
                    self._take("checks", event.seconds)
            case _:
                pass

    def _take(self, name: str, seconds: float) -> None:
        """Let a measured time replace the predicted one."""
        self._took[name] = max(seconds, 0.0)
        self._pace = self._pace.with_times({name: self._took[name]})

    @property
    def took(self) -> dict[str, float]:
        """Measured seconds of one of each part of the run's time beside the steps, by `TimePart.name`."""
        return self._took

    def after(self, step: int, seconds: float) -> float:
        """Take the time of a step and return the time from its end to the end of the run, seconds."""
        self._made += 1
        if self._made in {2, MEASURED_STEPS}:
            self._steps.clear()  # the first ones compile kernels and capture graphs
        self._steps.append(seconds)
        pace = replace(self._pace, step_s=self._step_s)
        left = time_parts(self._recipe, pace, done=step, steps=self._total, looks=self._looks, samples=self._samples)
        return sum(part.seconds for part in left)

    @property
    def _step_s(self) -> float:
        """The time of a step to come: the measured mean, and before enough were measured no less than was planned.

        A slower machine shows in the quickest of the first steps; a slow one among them may have compiled kernels.
        """
        planned = self._pace.step_s
        if self._made >= MEASURED_STEPS or not planned:
            return sum(self._steps) / len(self._steps)
        return planned if self._made < 2 else max(planned, min(self._steps))


def _planned_pace(plan: RunPlan | None) -> RunPace:
    """Return the pace that a plan was made with; without a plan nothing is known yet."""
    one: dict[str, float] = {part.name: part.seconds / part.count for part in plan.times if part.count} if plan else {}
    return RunPace(step_s=0.0).with_times(one)
