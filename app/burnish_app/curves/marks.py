"""Marks of a run's charts: events that belong to a single step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from burnish_app.curves.curve import Numbers
from burnish_engine.contract.run.fold import RunState
from burnish_engine.contract.run.spikes import KEPT, LEAST, NATS, SHARE, is_spike

MarkKind = Literal["checkpoint", "best", "spike", "bad", "rollback"]
_BEFORE = 8  # steps before whose lowest loss a candidate for a spike is compared with
_MAX_CANDIDATES = 500


@dataclass(frozen=True)
class Mark:
    """A mark of a chart.

    Attributes:
        kind: what happened: a checkpoint was saved, the held-out loss was the best, the loss was a spike, the step
            could not be used (bad), or the run went back to this step (rollback).
        step: number of the step.
        value: loss that the mark belongs to; None: none.
    """

    kind: MarkKind
    step: int
    value: float | None = None


def run_marks(state: RunState) -> list[Mark]:
    """List the marks of a run.

    Args:
        state: state folded from the run's events so far.
    """
    marks = [Mark("checkpoint", step) for step in state.checkpoints.values()]
    marks += [Mark("bad", step) for step in state.bad_steps]
    marks += [Mark("rollback", back.to_step) for back in state.rollbacks]
    marks += spikes(state)
    best = best_evaluation(state)
    return [*marks, best] if best else marks


def best_evaluation(state: RunState) -> Mark | None:
    """Return the evaluation with the lowest held-out loss, or the one whose weights were kept; None before the second.

    Args:
        state: state folded from the run's events so far.
    """
    if state.best is not None:
        return Mark("best", state.best.step, state.best.loss)
    steps, losses = state.evaluations.step.values(), np.asarray(state.evaluations.loss.values())
    if len(losses) < 2 or not np.isfinite(losses).any():
        return None
    at = int(np.nanargmin(np.where(np.isfinite(losses), losses, np.nan)))
    return Mark("best", steps[at], float(losses[at]))


def spikes(state: RunState) -> list[Mark]:
    """List the steps with a loss far above those before, by the guard's rule.

    Args:
        state: state folded from the run's events so far.
    """
    losses = np.asarray(state.steps.loss.values(), dtype=np.float64)
    counts = np.asarray(state.steps.supervised_tokens.values())
    steps = state.steps.step.values()
    found: list[int] = []
    for at in _candidates(losses):
        before = [place for place in range(max(at - 2 * KEPT, 0), at) if np.isfinite(losses[place])]
        before = [place for place in before if place not in found][-KEPT:]
        if is_spike(float(losses[at]), int(counts[at]), losses[before].tolist(), counts[before].tolist()):
            found.append(at)
    return [Mark("spike", steps[at], float(losses[at])) for at in found]


def _candidates(losses: Numbers) -> list[int]:
    """List places that can hold a spike, far above the lowest of a few losses before; quick for a long run."""
    if len(losses) <= LEAST:
        return []
    padded = np.concatenate((np.full(_BEFORE, np.inf), np.where(np.isfinite(losses), losses, np.inf)))
    lowest = np.min([padded[at : at + len(losses)] for at in range(_BEFORE)], axis=0)
    with np.errstate(invalid="ignore"):
        above = np.isfinite(losses) & (losses - lowest > np.maximum(SHARE * lowest, NATS))
    return [int(place) for place in np.flatnonzero(above)[-_MAX_CANDIDATES:]]
