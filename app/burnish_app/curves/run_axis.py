"""The horizontal axis of a run's charts: optimizer steps, the tokens up to them, or the time up to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from burnish_app.curves.curve import Numbers
from burnish_engine.contract.run.fold import RunState

XKind = Literal["step", "tokens", "time"]
X_KINDS: tuple[XKind, ...] = ("step", "tokens", "time")


@dataclass(frozen=True)
class RunAxis:
    """The position of each step of a run on the axis. All columns begin with the moment before the first step, 0.

    Attributes:
        steps: numbers of the steps that were made, rising, [steps + 1].
        tokens: real tokens up to the end of each step, [steps + 1].
        seconds: time up to the end of each step, [steps + 1].
        clock: wall-clock time at the end of each step, seconds since the epoch, [steps + 1].
        unit: unit of all positions; other than steps only on an axis that runs share.
        shared: whether several runs share the axis, whose positions then are in its unit alone.
    """

    steps: Numbers
    tokens: Numbers
    seconds: Numbers
    clock: Numbers
    unit: XKind = "step"
    shared: bool = False

    def column(self, kind: XKind) -> Numbers:
        """Return the positions of the steps on an axis, [steps + 1]."""
        return {"step": self.steps, "tokens": self.tokens, "time": self.seconds}[kind]

    def x(self, kind: XKind, steps: ArrayLike) -> Numbers:
        """Convert positions in steps to positions on an axis; a fraction of a step lies between its ends."""
        positions: Numbers = np.asarray(steps, dtype=np.float64)
        return positions if kind in ("step", self.unit) else np.interp(positions, self.steps, self.column(kind))

    def step(self, kind: XKind, x: float) -> float:
        """Convert a position on an axis to one in steps."""
        return x if kind in ("step", self.unit) else float(np.interp(x, self.column(kind), self.steps))

    def steps_at(self, clock: ArrayLike) -> Numbers:
        """Convert times of the wall clock, seconds since the epoch, to positions in steps.

        Times before the first step are 0, those after the last one are the last step.
        """
        positions: Numbers = np.interp(np.asarray(clock, dtype=np.float64), self.clock, self.steps)
        return positions

    def nearest(self, step: float) -> float:
        """Return the step that was made and lies nearest to a position in steps."""
        return float(self.steps[int(np.argmin(np.abs(self.steps - step)))])


def shared_axis(positions: Numbers, unit: XKind) -> RunAxis:
    """Make the axis that several runs share.

    Args:
        positions: rising positions of all their points, in the unit.
        unit: unit of the axis.
    """
    return RunAxis(positions, positions, positions, positions, unit, shared=True)


START = RunAxis(np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(1))
"""The axis of a run without a step."""


def run_axis(state: RunState) -> RunAxis:
    """Make the axis of a run.

    Time is that of the run's processes: what lies between two of them, as when a run was suspended over night, and
    what a rollback undid does not count. Evaluations, saving and pauses do.
    """
    history = state.steps
    if not len(history):
        return START
    steps = np.asarray(history.step.values(), dtype=np.float64)
    tokens = np.cumsum(np.asarray(history.tokens.values(), dtype=np.float64))
    clock = np.maximum.accumulate(np.asarray(history.t.values(), dtype=np.float64))
    took = np.asarray(history.step_s.values(), dtype=np.float64)
    took = np.where(np.isfinite(took) & (took > 0), took, 0.0)
    passed = np.diff(clock, prepend=clock[0] - took[0])
    anew = np.searchsorted(steps, np.asarray(state.begins, dtype=np.float64), side="right")
    anew = anew[anew < len(steps)]
    passed[anew] = took[anew]
    return RunAxis(
        np.concatenate(([min(0.0, steps[0] - 1)], steps)),
        np.concatenate(([0.0], tokens)),
        np.concatenate(([0.0], np.cumsum(passed))),
        np.concatenate(([clock[0] - took[0]], clock)),
    )
