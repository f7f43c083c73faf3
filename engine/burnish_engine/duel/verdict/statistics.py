"""Student's t interval of paired differences, without SciPy.

The t interval is used because a bootstrap interval of three differences spans no more than the three, and covers the
true mean far less often than it says (Hesterberg 2015, "What Teachers Should Know About the Bootstrap", section 3.2).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

_TINY = 1e-300
_DIGITS = 1e-14


@dataclass(frozen=True)
class ConfidenceInterval:
    """A confidence interval of a mean difference.

    Attributes:
        mean: mean of the differences.
        low: lower end.
        high: upper end.
        spread: standard deviation of the differences that was used.
        count: number of differences.
    """

    mean: float
    low: float
    high: float
    spread: float
    count: int

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval lies on one side of zero."""
        return self.low > 0 or self.high < 0


def paired_interval(differences: Sequence[float], level: float = 0.95, least_spread: float = 0.0) -> ConfidenceInterval:
    """Compute the t interval of the mean of paired differences ("Student" 1908, Biometrika 6:1).

    Args:
        differences: finite values, at least two.
        level: confidence level, such as 0.95.
        least_spread: lower bound on the standard deviation, from the measure's resolution: otherwise three equal
            readings would make an interval of no width.

    Raises:
        ValueError: Fewer than two differences, or one that is not finite.
    """
    if len(differences) < 2 or not all(map(math.isfinite, differences)):
        raise ValueError(f"a t interval needs two or more finite differences, not {list(differences)}")
    count, mean = len(differences), statistics.fmean(differences)
    spread = max(statistics.stdev(differences), least_spread)
    half = t_quantile(0.5 + level / 2, count - 1) * spread / math.sqrt(count)
    return ConfidenceInterval(mean, mean - half, mean + half, spread, count)


def t_cdf(t: float, freedom: float) -> float:
    """Compute the probability that Student's t is at most `t` (Abramowitz and Stegun 26.7.1)."""
    tail = 0.5 * incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))
    return 1.0 - tail if t > 0 else tail


@lru_cache(maxsize=64)
def t_quantile(probability: float, freedom: float) -> float:
    """Find by bisection the value that Student's t is at most with this probability, between 0 and 1."""
    if not 0.0 < probability < 1.0:
        raise ValueError(f"a probability lies between 0 and 1, not at {probability}")
    if probability < 0.5:
        return -t_quantile(1.0 - probability, freedom)
    low, high = 0.0, 1.0
    while t_cdf(high, freedom) < probability:
        high *= 2
    while high - low > _DIGITS * max(high, 1.0) * 8:
        middle = (low + high) / 2
        low, high = (middle, high) if t_cdf(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Compute the regularized incomplete beta function I_x(a, b) by its continued fraction (DLMF 8.17.22, 8.17.4)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, 1.0 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """Compute the continued fraction by the modified Lentz method (Thompson and Barnett 1986)."""
    c, d = 1.0, 1.0 / _off_zero(1.0 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 500):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _off_zero(1.0 + term * d)
            c = _off_zero(1.0 + term / c)
            value *= c * d
        if abs(c * d - 1.0) < _DIGITS:
            break
    return value


def _off_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
