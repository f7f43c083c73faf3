"""Curves of several runs over one axis: steps, tokens or time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from burnish_app.curves.curve import Curve, Numbers
from burnish_app.curves.preference_curves import PreferenceCurves, preference_curves
from burnish_app.curves.run_axis import START, RunAxis, XKind, shared_axis
from burnish_app.curves.run_curves import RunCurves, run_curves
from burnish_engine.contract.run.fold import RunState
from burnish_engine.contract.smoothing import default_window, smoothed


@dataclass(frozen=True)
class Overlay:
    """The curves of several runs over one axis. Each curve's positions are in the axis' unit.

    Attributes:
        axis: horizontal axis of all curves.
        held_out: held-out loss of each run, nats.
        accuracy: share of held-out pairs whose chosen reply each run prefers, percent; empty where it learns from none.
        margin: mean difference of the rewards of held-out pairs; empty likewise.
        loss: training loss of each run, smoothed, nats.
        learning_rate: learning rate of each run.
        grad_norm: gradient norm of each run, smoothed.
        tokens_per_s: speed of each run, smoothed.
        memory: memory peak of each run so far, GiB.
    """

    axis: RunAxis = START
    held_out: tuple[Curve, ...] = ()
    accuracy: tuple[Curve, ...] = ()
    margin: tuple[Curve, ...] = ()
    loss: tuple[Curve, ...] = ()
    learning_rate: tuple[Curve, ...] = ()
    grad_norm: tuple[Curve, ...] = ()
    tokens_per_s: tuple[Curve, ...] = ()
    memory: tuple[Curve, ...] = ()


def overlay(states: Sequence[RunState], unit: XKind) -> Overlay:
    """Lay the curves of runs over each other.

    Args:
        states: folded events of the runs.
        unit: unit of the horizontal axis.
    """
    runs = [run_curves(state) for state in states]
    preferences = [preference_curves(state) for state in states]
    parts = [_placed(run, found, unit) for run, found in zip(runs, preferences, strict=True)]
    # All curves of a run but the held-out loss have a point at each of its steps, at most.
    steps = [run.axis.column(unit) for run in runs]
    grid = np.unique(np.concatenate([np.zeros(1), *steps, *(one["held_out"].steps for one in parts)]))
    columns = {name: tuple(one[name] for one in parts) for name in (parts[0] if parts else {})}
    return Overlay(axis=shared_axis(grid, unit), **columns)


def _placed(found: RunCurves, preferences: PreferenceCurves, unit: XKind) -> dict[str, Curve]:
    """Place the curves of a run on an axis, smoothed where steps differ a lot."""
    axis = found.axis
    window = default_window(len(axis.steps) - 1)

    def placed(curve: Curve, *, smooth: bool = False) -> Curve:
        values: Numbers = smoothed(curve.values, window) if smooth and window > 1 else curve.values
        return Curve(axis.x(unit, curve.steps), values)

    return {
        "held_out": placed(found.held_out),
        "accuracy": placed(preferences.held_out_accuracy),
        "margin": placed(preferences.held_out_margin),
        "loss": placed(found.loss, smooth=True),
        "learning_rate": placed(found.learning_rate),
        "grad_norm": placed(found.grad_norm, smooth=True),
        "tokens_per_s": placed(found.tokens_per_s, smooth=True),
        "memory": placed(found.memory),
    }
