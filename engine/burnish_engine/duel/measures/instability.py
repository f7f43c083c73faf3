"""Count the instabilities of a run: spikes of loss and gradient norm, skipped steps, values that are not finite.

A spike is an outlier by the Hampel identifier (Hampel 1974; Davies and Gather 1993, "The Identification of Multiple
Outliers"): more than six robust standard deviations above the median of the preceding steps. Outliers do not move a
median. The standard deviation is that of a step, taken from differences between neighbors (von Neumann et al. 1941,
"The Mean Square Successive Difference"), so that the fall of a loss does not count as noise: 1.4826 times the median of
their sizes, over the root of 2. A minimum height is required too, because the spread of steady values may be close to
zero. Gradient norms are judged by their logarithm: their spread grows with their size. One excursion counts once,
however many steps it lasts.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from pydantic import BaseModel, ConfigDict

WINDOW, RECENT, LEAST_STEPS, DEVIATIONS = 50, 9, 16, 6.0
_OF_A_STEP = 1.4826 / math.sqrt(2)
_LOSS_SHARE, _GRADIENT_FACTOR = 0.1, 2.0

RULE = (
    f"A spike is a step whose loss, or gradient norm before clipping (by its logarithm), lies more than {DEVIATIONS:g} "
    f"robust standard deviations above the median of the {RECENT} steps before it, and by at least "
    f"{_LOSS_SHARE * 100:g} % of that loss or a factor {_GRADIENT_FACTOR:g} of that norm. The standard deviation is "
    f"1.4826 / √2 times the median size of the differences between neighbors, over up to {WINDOW} steps before. The "
    f"first {LEAST_STEPS} steps are not judged, and one excursion counts once."
)


class Instability(BaseModel):
    """Instability events of one run.

    Attributes:
        loss_spikes: number of excursions of the training loss.
        gradient_spikes: number of excursions of the gradient norm before clipping.
        skipped_steps: number of steps that changed nothing, because the gradient was not finite.
        non_finite: number of losses that were not finite.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    loss_spikes: int = 0
    gradient_spikes: int = 0
    skipped_steps: int = 0
    non_finite: int = 0

    @property
    def total(self) -> int:
        """Number of all events."""
        return self.loss_spikes + self.gradient_spikes + self.skipped_steps + self.non_finite


def judge(losses: Sequence[float], gradient_norms: Sequence[float], *, broke_off: bool = False) -> Instability:
    """Count the events of a run.

    Args:
        losses: losses of the run's steps, in order.
        gradient_norms: gradient norms of the same steps.
        broke_off: whether the run ended at a step with a loss or gradient that was not finite, which neither sequence
            holds.
    """
    bad_losses = sum(not math.isfinite(loss) for loss in losses)
    bad_gradients = sum(
        math.isfinite(loss) and not math.isfinite(norm) for loss, norm in zip(losses, gradient_norms, strict=True)
    )
    return Instability(
        loss_spikes=len(loss_spikes(losses)),
        gradient_spikes=len(gradient_spikes(gradient_norms)),
        skipped_steps=bad_gradients,
        non_finite=bad_losses + broke_off,
    )


def event_places(losses: Sequence[float], gradient_norms: Sequence[float]) -> list[int]:
    """List the indices of a run's events in the sequences, ascending; `judge` counts the same events."""
    bad = [
        place
        for place, pair in enumerate(zip(losses, gradient_norms, strict=True))
        if not all(math.isfinite(value) for value in pair)
    ]
    return sorted([*bad, *loss_spikes(losses), *gradient_spikes(gradient_norms)])


def loss_spikes(losses: Iterable[float]) -> list[int]:
    """List the indices at which an excursion of the loss begins."""
    return _excursions(losses, lambda median: _LOSS_SHARE * abs(median))


def gradient_spikes(norms: Iterable[float]) -> list[int]:
    """List the indices at which an excursion of the gradient norm begins."""
    logarithms = (math.log(norm) if math.isfinite(norm) and norm > 0 else math.nan for norm in norms)
    return _excursions(logarithms, lambda _median: math.log(_GRADIENT_FACTOR))


def _excursions(values: Iterable[float], least_height: Callable[[float], float]) -> list[int]:
    before: deque[float] = deque(maxlen=WINDOW)
    found, outside = [], False
    for place, value in enumerate(values):
        if not math.isfinite(value):
            continue
        if len(before) >= LEAST_STEPS:
            recent = statistics.median(list(before)[-RECENT:])
            deviation = _OF_A_STEP * statistics.median(abs(later - earlier) for earlier, later in pairwise(before))
            was_outside, outside = outside, value - recent > max(DEVIATIONS * deviation, least_height(recent))
            if outside and not was_outside:
                found.append(place)
        before.append(value)
    return found
