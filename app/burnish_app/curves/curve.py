"""A curve: values over optimizer steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """Values over optimizer steps.

    Attributes:
        steps: rising positions, in steps; a value taken between two steps has a fraction, [points].
        values: values, [points]; one that is not finite is a gap.
    """

    steps: Numbers
    values: Numbers

    @classmethod
    def of(cls, steps: ArrayLike, values: ArrayLike) -> Curve:
        """Make a curve of any sequences of numbers."""
        return cls(np.asarray(steps, dtype=np.float64), np.asarray(values, dtype=np.float64))

    @classmethod
    def known(cls, steps: ArrayLike, values: ArrayLike) -> Curve:
        """Make a curve of any sequences of numbers; no curve where no value is a number."""
        curve = cls.of(steps, values)
        return curve if np.isfinite(curve.values).any() else NO_CURVE

    def __len__(self) -> int:
        return len(self.steps)

    def at(self, step: float) -> tuple[float, float] | None:
        """Return the newest (step, value) at or before a step; None if there is none."""
        index = int(np.searchsorted(self.steps, step, side="right")) - 1
        return (float(self.steps[index]), float(self.values[index])) if index >= 0 else None


NO_CURVE = Curve.of([], [])
