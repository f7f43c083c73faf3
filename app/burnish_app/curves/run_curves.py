"""The curves of a run, from the state that its events add up to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from burnish_app.curves.curve import NO_CURVE, Curve
from burnish_app.curves.marks import Mark, run_marks
from burnish_app.curves.run_axis import START, RunAxis, run_axis
from burnish_engine.contract.run.fold import RunState

_GIB = 2**30


@dataclass(frozen=True)
class RunCurves:
    """The curves of a run over its optimizer steps.

    Attributes:
        axis: horizontal axis, shared by all of them.
        loss: mean loss of each step, nats.
        held_out: loss of each evaluation on held-out rows, nats.
        learning_rate: learning rate of each step.
        grad_norm: norm of each step's gradient before clipping.
        tokens_per_s: speed of each step.
        memory: peak of the device's memory so far, GiB.
        predicted_memory: predicted peak, GiB; None: nothing was predicted.
        marks: what happened at single steps.
    """

    axis: RunAxis = START
    loss: Curve = NO_CURVE
    held_out: Curve = NO_CURVE
    learning_rate: Curve = NO_CURVE
    grad_norm: Curve = NO_CURVE
    tokens_per_s: Curve = NO_CURVE
    memory: Curve = NO_CURVE
    predicted_memory: float | None = None
    marks: tuple[Mark, ...] = ()


def run_curves(state: RunState) -> RunCurves:
    """Make the curves of a run.

    Args:
        state: state folded from the run's events so far.
    """
    history = state.steps
    steps = np.asarray(history.step.values(), dtype=np.float64)
    return RunCurves(
        axis=run_axis(state),
        loss=Curve.of(steps, history.loss.values()),
        held_out=Curve.of(state.evaluations.step.values(), state.evaluations.loss.values()),
        learning_rate=Curve.of(steps, history.learning_rate.values()),
        grad_norm=Curve.of(steps, history.grad_norm.values()),
        tokens_per_s=Curve.of(steps, history.tokens_per_s.values()),
        memory=Curve.of(steps, np.asarray(history.held_bytes.values(), dtype=np.float64) / _GIB),
        predicted_memory=state.plan.memory_bytes / _GIB if state.plan is not None else None,
        marks=tuple(run_marks(state)),
    )
