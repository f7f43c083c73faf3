"""Checks on the figures of preferences, for signs that a run learns something else than what was meant.

None of them says that a run failed: it does what its rows and settings ask, and the person may want others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.contract.run.events import EvaluationDone
from burnish_engine.contract.wording.tables import Check
from burnish_engine.train.base.engine import StepResult
from burnish_engine.train.guard import findings
from burnish_engine.train.guard.findings import GuardFinding

RECENT = 20
"""Steps that a mean is taken over: single steps have few pairs."""
LOW_ACCURACY = 0.4
"""Accuracy below half by 2.5 standard errors of a mean over 20 steps of 8 pairs: chance alone rarely goes so low."""
FALL = 0.2
"""Share of its log-probability at the beginning that a chosen reply may lose on held-out rows: 4 of 20 nats."""
SATURATED = 10.0
"""Beta times kto's divergence from which on its sigmoid is flat: a reply as likely as under the reference has a slope
below 1/5,000 of the steepest."""
FAR = 2.0
"""Divergence from the base, nats a token, that no text of the same kind needs."""


class PreferenceState(BaseModel):
    """State of the watch; part of every checkpoint."""

    model_config = ConfigDict(extra="ignore")

    steps: int = 0
    accuracies: list[float] = []
    first_margins: list[float] = []
    margins: list[float] = []
    chosen: float | None = None
    evaluations: int = 0


@dataclass
class PreferenceWatch:
    """Watches the figures of preferences.

    Attributes:
        section: the recipe's preference section.
        warmup: steps of the warm-up, which do not count.
        state: state after the steps so far.
    """

    section: PreferenceSection
    warmup: int
    state: PreferenceState = field(default_factory=PreferenceState)

    def step(self, result: StepResult) -> list[GuardFinding]:
        """Record a step's figures; return what they show."""
        figures, state = result.preference, self.state
        if figures is None or not result.taken:
            return []
        found = []
        if figures.kl is not None and self.section.beta * figures.kl >= SATURATED:
            found.append(findings.kl_explodes(f"the estimated divergence is {figures.kl:.4g} nats a reply"))
        if result.step <= self.warmup:
            return found
        state.steps += 1
        if figures.accuracy is not None and math.isfinite(figures.accuracy):
            state.accuracies = [*state.accuracies, figures.accuracy][-RECENT:]
        if figures.margin is not None and math.isfinite(figures.margin):
            if len(state.first_margins) < RECENT:
                state.first_margins = [*state.first_margins, figures.margin]
            else:
                state.margins = [*state.margins, figures.margin][-RECENT:]
        return [*found, *self._swapped(), *self._flat()]

    def evaluated(self, event: EvaluationDone) -> list[GuardFinding]:
        """Record an evaluation's figures; return what they show."""
        state, found, chosen = self.state, [], event.chosen_log_prob
        state.evaluations += 1
        if chosen is not None and math.isfinite(chosen):
            if state.chosen is None:
                state.chosen = chosen
            elif state.chosen - chosen > FALL * abs(state.chosen):
                found.append(findings.chosen_falls(state.chosen, chosen, good=self.section.learns_labels))
        if event.kl_to_base is not None and event.kl_to_base > FAR:
            found.append(findings.kl_explodes(f"the divergence from the base is {event.kl_to_base:.3g} nats a token"))
        return found

    def seen(self) -> Iterable[Check]:
        """List the checks for which there were enough steps and evaluations."""
        state = self.state
        least: dict[Check, bool] = {
            "swapped_labels": self.section.objective == "dpo" and len(state.accuracies) == RECENT,
            "flat_margin": len(state.margins) == RECENT,
            "chosen_falls": state.evaluations > 1 and state.chosen is not None,
            "kl_explodes": state.evaluations > 1 or (self.section.estimates_kl and state.steps > 0),
        }
        return [check for check, enough in least.items() if enough]

    def _swapped(self) -> list[GuardFinding]:
        """Check the accuracy; only a reference makes it start at no preference, not at the base's own."""
        recent = self.state.accuracies
        if self.section.objective != "dpo" or len(recent) < RECENT:
            return []
        mean = sum(recent) / len(recent)
        return [findings.swapped_labels(mean, len(recent))] if mean < LOW_ACCURACY else []

    def _flat(self) -> list[GuardFinding]:
        first, recent = self.state.first_margins, self.state.margins
        if len(recent) < RECENT:
            return []
        before, now = sum(first) / len(first), sum(recent) / len(recent)
        return [findings.flat_margin(before, now)] if now <= before else []
