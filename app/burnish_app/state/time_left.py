"""Estimates when something is done from the work that is done, never from the time that passes. No Qt."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

NOTABLY = 1.5
"""Times from which work is called slower, and above which the time left rises only with a reason."""
_LEAST_S, _LEAST_SHARE = 5.0, 0.005  # less tells nothing
_WINDOW_S = 300.0  # earlier growth does not count: speed changes from stage to stage
_KNOWN_SHARE, _KNOWN_STEPS = 0.05, 6  # growth from which one figure is told instead of two
_WIDE = 1.5  # times that the true time may be more or less while little is known
_REASON_S = 60.0  # a reason is told for so long


@dataclass(frozen=True)
class TimeLeft:
    """The time until something is done.

    Attributes:
        low_s: least time that is likely, seconds.
        high_s: most time that is likely, seconds.
        slower: times as long that the work takes now as it did before; 1: as before.
        is_crowded: whether that is because other programs use the processor.
    """

    low_s: float
    high_s: float
    slower: float = 1.0
    is_crowded: bool = False

    @classmethod
    def about(cls, seconds: float, times: float = 1.0) -> TimeLeft:
        """Return an estimate that may be so many times less or more."""
        return cls(seconds / times, seconds * times)

    @property
    def middle_s(self) -> float:
        """The likeliest time, seconds."""
        return (self.low_s * self.high_s) ** 0.5


@dataclass
class ShareClock:
    """Estimate of the time that is left of one activity, from how its share grows.

    Attributes:
        seen: (time, share) of each time that the share had grown, seconds and 0 to 1; at first the last time at 0.
    """

    seen: deque[tuple[float, float]] = field(default_factory=deque)
    _told_s: float = 0.0
    _slower: tuple[float, float] = (1.0, 0.0)  # times, and when that was found

    def note(self, now: float, share: float) -> TimeLeft | None:
        """Note the share and return the time that is left; None while that cannot be told.

        Between two growths the estimate falls by no more than the work of one, and rises where that one is late.

        Args:
            now: current time, seconds.
            share: how far the activity is, 0 to 1; less than before begins anew.
        """
        if self.seen and share < self.seen[-1][1]:
            self.seen.clear()
            self._told_s = 0.0
        if len(self.seen) == 1 and share == self.seen[0][1] == 0.0:
            self.seen.clear()  # what goes before the first step, such as loading a model, is no pace
        if not self.seen or share > self.seen[-1][1]:
            self.seen.append((now, share))
        while len(self.seen) > 2 and self.seen[0][0] < now - _WINDOW_S:
            self.seen.popleft()
        (first, before), (last, latest) = self.seen[0], self.seen[-1]
        spent, gain, waited = last - first, latest - before, now - last
        if spent < _LEAST_S or gain < _LEAST_SHARE:
            return None
        each_s = spent / (len(self.seen) - 1)
        if waited > 2 * each_s:
            spent += waited - each_s
        pace, work = spent / gain, gain / (len(self.seen) - 1)
        rest = max(1.0 - latest, work / 2)  # the end itself takes time
        left_s = rest * pace - min(waited, each_s) * min(1.0, rest / (2 * work))
        known = gain >= _KNOWN_SHARE and len(self.seen) > _KNOWN_STEPS
        return self._tell(left_s, now, 1.0 if known else _WIDE)

    def _tell(self, left_s: float, now: float, times: float) -> TimeLeft:
        """Note an estimate, and say how much slower the work became where it rose by more than half."""
        if self._told_s and left_s > NOTABLY * self._told_s:
            self._slower = left_s / self._told_s, now
        self._told_s = left_s
        slower, since = self._slower
        about = TimeLeft.about(left_s, times)
        return TimeLeft(about.low_s, about.high_s, slower if since and now - since < _REASON_S else 1.0)
