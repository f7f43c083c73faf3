"""Says whether a loss is a spike, one rule for the guard and for the charts.

A spike is a loss far above those of the steps before: eight robust standard deviations (1.4826 MAD) above their median,
and at least half of it and one nat. Steps with few supervised tokens are not judged, since their loss says little.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

KEPT, LEAST = 50, 10
"""Most steps before that a loss is compared with, and fewest."""
SHARE, NATS = 0.5, 1.0
"""Least distance of a spike from the median: this share of it, and this much."""
_DEVIATIONS, _NORMAL = 8.0, 1.4826


def is_spike(loss: float, supervised_tokens: int, losses: Sequence[float], counts: Sequence[int]) -> bool:
    """Return whether a finite loss is a spike.

    Args:
        loss: mean loss of the step, nats.
        supervised_tokens: supervised tokens of the step.
        losses: losses of up to `KEPT` usable steps before it.
        counts: supervised tokens of those steps.
    """
    if len(losses) < LEAST or 2 * supervised_tokens < statistics.median(counts):
        return False
    median = statistics.median(losses)
    deviation = _NORMAL * statistics.median(abs(one - median) for one in losses)
    return loss - median > max(_DEVIATIONS * deviation, SHARE * median, NATS)
