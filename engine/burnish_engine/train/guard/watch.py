"""Checks on the numbers that every step reports anyway; nothing here waits for the device.

A step is bad when it was not taken, when its loss was not finite, or when the loss spikes. In fp16 steps that are not
taken are usual: the loss scale is halved until gradients are finite. There such a step is bad only with a loss that is
not finite, or at the smallest scale. What a spike is, `contract/run/spikes.py` says.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from itertools import pairwise

from pydantic import BaseModel, ConfigDict

from burnish_engine.contract.recipe.recipe_evaluation import GuardSection
from burnish_engine.contract.run.spikes import KEPT, is_spike
from burnish_engine.contract.wording.tables import Check
from burnish_engine.train.base.engine import StepResult
from burnish_engine.train.guard import findings
from burnish_engine.train.guard.findings import GuardFinding

_ZERO_GRADIENTS, _ZERO_LOSSES, _SAME_LOSSES, _NO_TARGETS, _NO_RATE = 2, 3, 8, 3, 3
_SAME = 1e-6  # relative difference: sums of some thousand numbers in fp32 differ by less
_RISES = 2  # rises of the held-out loss in a row
_RISE = 0.01  # least rise above the best held-out loss, as a share of that


class WatchState(BaseModel):
    """State of the watch after the steps so far; part of every checkpoint."""

    model_config = ConfigDict(extra="ignore")

    losses: list[float] = []
    counts: list[int] = []
    bad: list[int] = []
    taken: int = 0
    rate_seen: bool = False
    zero_gradients: int = 0
    zero_losses: int = 0
    no_targets: int = 0
    same_losses: int = 0
    last_loss: float | None = None
    last_supervised: int = 0
    sum_losses: float = 0.0
    number_losses: int = 0
    evaluations: list[tuple[float, float]] = []
    overfit_told: bool = False


@dataclass(frozen=True)
class Trouble:
    """Too many bad steps within the recipe's window.

    Attributes:
        step: number of the last bad step.
        first: number of the first bad step in the window.
        reason: explanation in a sentence.
    """

    step: int
    first: int
    reason: str


@dataclass
class Watch:
    """Watches the numbers of steps and evaluations.

    Attributes:
        section: the recipe's guard section.
        precision: compute precision, "fp32", "bf16" or "fp16".
        state: state after the steps so far.
    """

    section: GuardSection
    precision: str
    state: WatchState = field(default_factory=WatchState)

    def step(self, result: StepResult) -> Trouble | None:
        """Record a step; return trouble once too many steps were bad."""
        state = self.state
        said = self._why_bad(result)
        if said:
            state.bad = [step for step in state.bad if step > result.step - self.section.window]
            state.bad.append(result.step)
            if len(state.bad) >= self.section.troubles:
                first, count = state.bad[0], len(state.bad)
                text = f"{count} of the last {result.step - first + 1} steps were bad; " if count > 1 else ""
                return Trouble(result.step, first, f"{text[:1].upper()}{text[1:]}at step {result.step} {said}.")
            return None
        if result.taken and math.isfinite(result.loss) and result.supervised:
            self._remember(result)
        return None

    def suspects(self, step: int) -> bool:
        """Return whether recent steps were bad, so that no older checkpoint should be deleted."""
        return any(bad > step - self.section.window for bad in self.state.bad)

    def check(self, result: StepResult, tokens: int, supervised: int) -> list[GuardFinding]:
        """Return the findings of a step.

        Args:
            result: result of the step.
            tokens: real tokens of its micro-batches, counted in their rows.
            supervised: supervised tokens among these.
        """
        return [*self._counts(result, tokens, supervised), *self._runs(result)]

    def evaluated(self, loss: float) -> GuardFinding | None:
        """Record a held-out loss with the mean training loss since the one before; return a finding of overfitting."""
        state = self.state
        if not (state.number_losses and math.isfinite(loss)):
            return None
        state.evaluations.append((loss, state.sum_losses / state.number_losses))
        state.evaluations = state.evaluations[-KEPT:]
        state.sum_losses, state.number_losses = 0.0, 0
        last = state.evaluations[-_RISES - 1 :]
        if len(last) <= _RISES or state.overfit_told:
            return None
        best = min(held for held, _ in state.evaluations)
        pairs = list(pairwise(last))
        rises = all(later[0] > earlier[0] for earlier, later in pairs)
        falls = all(later[1] < earlier[1] for earlier, later in pairs)
        if rises and falls and loss > best * (1 + _RISE):
            state.overfit_told = True
            return findings.overfitting(last[0][0], loss, (last[0][1], last[-1][1]))
        return None

    def no_rate(self) -> GuardFinding | None:
        """Return a finding where no step of the run had a learning rate."""
        state = self.state
        return findings.learning_rate(state.taken) if state.taken and not state.rate_seen else None

    def seen(self) -> list[Check]:
        """List the checks for which there were enough steps and evaluations."""
        state = self.state
        least: dict[Check, bool] = {
            "learning_rate": state.taken > 0,
            "zero_gradient": state.taken >= _ZERO_GRADIENTS,
            "zero_loss": state.taken >= _ZERO_LOSSES,
            "constant_loss": state.taken >= _SAME_LOSSES,
            "overfitting": len(state.evaluations) > _RISES,
        }
        return [check for check, enough in least.items() if enough]

    def _why_bad(self, result: StepResult) -> str:
        """Return why the step is bad, as a clause; empty where it is not."""
        values = f"the loss was {result.loss:.6g} and the gradient norm {result.grad_norm:.6g}"
        usual = self.precision == "fp16" and result.loss_scale > 1.0 and math.isfinite(result.loss)
        if not result.taken:
            return "" if usual else f"{values}, so it was not taken"
        if not math.isfinite(result.loss):
            return values
        losses = self.state.losses
        # Some losses of pairs come near 0 or reach it, and single pairs have ten times others'; rewards' are about 0.
        if result.preference or result.replies:
            return ""
        if is_spike(result.loss, result.supervised, losses, self.state.counts):
            return f"{values}, where the steps before had a median loss of {statistics.median(losses):.6g}"
        return ""

    def _remember(self, result: StepResult) -> None:
        state = self.state
        state.losses = [*state.losses, result.loss][-KEPT:]
        state.counts = [*state.counts, result.supervised][-KEPT:]
        state.sum_losses += result.loss
        state.number_losses += 1

    def _counts(self, result: StepResult, tokens: int, supervised: int) -> list[GuardFinding]:
        state, found = self.state, []
        state.no_targets = 0 if result.supervised else state.no_targets + 1
        if state.no_targets >= _NO_TARGETS and supervised:
            found.append(findings.no_targets(f"the passes of the last {_NO_TARGETS} steps hold"))
        if result.tokens > tokens:
            found.append(findings.padding(result.tokens, tokens, f"step {result.step} counts"))
        elif result.supervised > supervised:
            found.append(findings.padding(result.supervised, supervised, f"step {result.step} learns from"))
        elif 0 < result.supervised < supervised or result.tokens < tokens:
            found.append(findings.fewer_tokens(result.supervised, supervised, result.step))
        return found

    def _same_loss(self, result: StepResult) -> bool:
        """Return whether the loss equals that of the first of the steps with the same loss.

        Over another number of tokens a constant is rounded differently, so that a tolerance applies. Over the same
        number it is not: there the loss of rows that are nearly learned by heart changes by as little, and must not
        count as constant.
        """
        if result.loss == 0.0 or self.state.last_loss is None:
            return False
        tolerance = _SAME if result.supervised != self.state.last_supervised else 0.0
        return math.isclose(result.loss, self.state.last_loss, rel_tol=tolerance)

    def _runs(self, result: StepResult) -> list[GuardFinding]:
        """Return findings on values that repeat from step to step."""
        state, found = self.state, []
        if not (result.taken and result.supervised):
            return []
        state.taken += 1
        state.rate_seen = state.rate_seen or result.learning_rate != 0.0
        if not state.rate_seen and state.taken >= _NO_RATE:
            found.append(findings.learning_rate(state.taken))
        if result.preference or result.replies:
            return found
        state.zero_gradients = state.zero_gradients + 1 if result.grad_norm == 0.0 else 0
        if state.zero_gradients >= _ZERO_GRADIENTS:
            found.append(findings.zero_gradient(f"in {state.zero_gradients} steps in a row"))
        state.zero_losses = state.zero_losses + 1 if result.loss == 0.0 else 0
        if state.zero_losses >= _ZERO_LOSSES:
            found.append(findings.zero_loss(f"in {state.zero_losses} steps in a row"))
        if self._same_loss(result):
            state.same_losses += 1
        else:
            state.same_losses, state.last_supervised = 1, result.supervised
            state.last_loss = result.loss if math.isfinite(result.loss) else None
        if state.same_losses >= _SAME_LOSSES:
            found.append(findings.constant_loss(result.loss, state.same_losses))
        return found
