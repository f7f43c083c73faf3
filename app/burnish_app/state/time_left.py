"""Estimates when something is done from how its share grows. No Qt."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

_LEAST_S, _LEAST_SHARE = 5.0, 0.005  # less tells nothing
_WINDOW_S = 300.0  # earlier growth does not count: speed changes from stage to stage


@dataclass
class ShareClock:
    """Estimate of the time that is left of one activity.

    Attributes:
        seen: (time, share) of each time that the share had grown, seconds and 0 to 1; at first the last time at 0.
    """

    seen: deque[tuple[float, float]] = field(default_factory=deque)

    def note(self, now: float, share: float) -> float | None:
        """Note the share and return the time that is left, seconds; None while that cannot be told.

        Args:
            now: current time, seconds.
            share: how far the activity is, 0 to 1; less than before begins anew.
        """
        if self.seen and share < self.seen[-1][1]:
            self.seen.clear()
        if len(self.seen) == 1 and share == self.seen[0][1] == 0.0:
            self.seen.clear()  # what goes before the first step, such as loading a model, is no pace
        if not self.seen or share > self.seen[-1][1]:
            self.seen.append((now, share))
        while len(self.seen) > 2 and self.seen[0][0] < now - _WINDOW_S:
            self.seen.popleft()
        (first, before), (last, latest) = self.seen[0], self.seen[-1]
        if last - first < _LEAST_S or latest - before < _LEAST_SHARE:
            return None
        left = (1.0 - latest) * (last - first) / (latest - before)
        return max(left - (now - last), 0.0)
