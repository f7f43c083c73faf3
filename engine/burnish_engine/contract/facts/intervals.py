"""Statistics of counts: the interval of a share, and the exact test of paired outcomes. Pure, without SciPy."""

from __future__ import annotations

import math

_Z_95 = 1.959963984540054  # two-sided 95 % of the normal distribution


def sign_test(wins: int, losses: int) -> float:
    """Compute the two-sided p of an equally uneven or worse split under equal odds (exact binomial; no ties).

    Of paired yes-or-no outcomes, where only pairs that differ are counted, it is McNemar's exact test (McNemar 1947,
    Psychometrika 12:2).
    """
    count, few = wins + losses, min(wins, losses)
    tail = sum(math.comb(count, k) for k in range(few + 1)) / 2**count
    return min(1.0, 2 * tail)


def share_interval(count: int, total: int) -> tuple[float, float]:
    """Compute the 95 % interval of a share of independent outcomes (Wilson 1927, J. Am. Stat. Assoc. 22:158).

    Args:
        count: outcomes that count, 0 to `total`.
        total: outcomes in all; of none, nothing is known.
    """
    if not total:
        return 0.0, 1.0
    share, z2 = count / total, _Z_95**2
    middle = (share + z2 / (2 * total)) / (1 + z2 / total)
    half = _Z_95 / (1 + z2 / total) * math.sqrt(share * (1 - share) / total + z2 / (4 * total**2))
    return max(0.0, middle - half) if count else 0.0, min(1.0, middle + half) if count < total else 1.0
