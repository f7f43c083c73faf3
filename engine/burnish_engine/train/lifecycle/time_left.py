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
        self._asking_since: float | None = None
        self._pace, self._samples = _planned_pace(plan), plan.samples if plan else None

    def observe(self, event: Event) -> None:
        """Take the time of an evaluation, save, check or round of replies from the event that ends it."""
        if self._asking_since is not None and isinstance(event, PhaseChanged):
            self._pace = replace(self._pace, prompts_s=max(event.t - self._asking_since, 0.0))
            self._asking_since = None
        match event:
            case PhaseChanged(phase="sampling"):
                self._asking_since = event.t
            case EvaluationDone():
                self._pace = replace(self._pace, evaluation_s=event.seconds)
            case GeneralTextDone():
                self._pace = replace(self._pace, general_text_s=event.seconds)
            case TaskScored():
                self._pace = replace(self._pace, task_s=event.seconds)
            case RewardsGiven():
                self._pace = replace(self._pace, replies_s=event.written_s + event.judged_s)
            case CheckpointSaved():
                self._pace = replace(self._pace, save_s=event.seconds)
            case GuardReported(when="before" | "after_warmup"):
                self._looks = LOOKS - (1 if event.when == "before" else 2)
                if event.seconds and self._pace.look_s:
                    self._pace = replace(self._pace, look_s=event.seconds)
            case _:
                pass

    def after(self, step: int, seconds: float) -> float:
        """Take the time of a step and return the time from its end to the end of the run, seconds."""
        self._steps.append(seconds)
        measured = sum(self._steps) / len(self._steps)
        enough = len(self._steps) >= MEASURED_STEPS or not self._pace.step_s
        pace = replace(self._pace, step_s=measured if enough else self._pace.step_s)
        left = time_parts(self._recipe, pace, done=step, steps=self._total, looks=self._looks, samples=self._samples)
        return sum(part.seconds for part in left)


def _planned_pace(plan: RunPlan | None) -> RunPace:
    """Return the pace that a plan was made with; without a plan nothing is known yet."""
    one = {part.name: part.seconds / part.count for part in plan.times if part.count} if plan else {}
    return RunPace(
        step_s=one.get("steps", 0.0),
        look_s=one.get("checks", 0.0),
        evaluation_s=one.get("evaluations", 0.0),
        prompts_s=one.get("prompts", 0.0),
        save_s=one.get("saves", 0.0),
        general_text_s=one.get("general_text", 0.0),
        task_s=one.get("task", 0.0),
        reference_s=one.get("reference", 0.0),
    )
