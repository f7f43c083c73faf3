"""Shows the stages of an export as one share that grows evenly, by the time that each took in the last export here."""

from __future__ import annotations

import json
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from burnish_engine.contract.errors import NoSpaceError
from burnish_engine.contract.files import make_private, read_with_retry, write_atomic
from burnish_engine.contract.paths import past_export_file
from burnish_engine.export.weights.folders import Progress

StageName = Literal["write", "run", "weigh", "answer", "make", "check"]
BeginStage = Callable[[StageName], Progress]
"""Function that begins the next stage, and returns the callback of its share."""

_USUAL: Mapping[StageName, float] = {"write": 2.0, "run": 2.0, "weigh": 2.0, "answer": 2.0, "make": 1.0, "check": 2.0}
"""Rough durations beside each other, until an export told better."""
_MOST_BYTES = 10_000
_log = logging.getLogger(__name__)


class StageBar:
    """Turns the shares of stages into one.

    Args:
        progress: callback given the current activity and the share of the whole, 0 to 1.
        stages: names of all stages, in order.
        clock: function that returns monotonic seconds.
    """

    def __init__(
        self, progress: Progress, stages: Sequence[StageName], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._progress, self._clock = progress, clock
        known = past_times()
        # Stages that are not known yet are scaled like those that are.
        both = [name for name in _USUAL if name in known]
        scale = sum(known[name] for name in both) / sum(_USUAL[name] for name in both) if both else 1.0
        self._weights = {name: known.get(name, _USUAL[name] * scale) for name in _USUAL}
        self._total = sum(self._weights[name] for name in stages)
        self._begun: Counter[StageName] = Counter()
        self._done = 0.0
        self._now: tuple[StageName, float] | None = None
        self._took: dict[StageName, float] = {}

    def begin(self, name: StageName) -> Progress:
        """Begin the next stage and return its callback, whose share becomes a share of the whole."""
        self._end()
        start, weight = self._done, self._weights[name]
        self._done += weight
        self._begun[name] += 1
        self._now = name, self._clock()
        return lambda what, share: self._progress(what, min((start + weight * share) / self._total, 1.0))

    def finish(self) -> None:
        """Keep what each stage took for the next export. Never fails."""
        self._end()
        times = {**past_times(), **{name: took / self._begun[name] for name, took in self._took.items()}}
        path = past_export_file()
        try:
            make_private(path.parent)
            write_atomic(path, json.dumps(times, indent=1) + "\n", durable=False)
        except (OSError, NoSpaceError) as error:
            _log.warning("What the export took could not be kept in %s: %s", path, error)

    def _end(self) -> None:
        if self._now is not None:
            name, since = self._now
            self._took[name] = self._took.get(name, 0.0) + self._clock() - since
            self._now = None


def past_times() -> dict[StageName, float]:
    """Return the seconds that each stage took in the last export here; none where that is not known."""
    path = past_export_file()
    try:
        if path.stat().st_size > _MOST_BYTES:
            return {}
        found = json.loads(read_with_retry(path))
        return {name: took for name in _USUAL if _is_time(took := found.get(name))}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}


def _is_time(took: object) -> bool:
    return isinstance(took, float) and math.isfinite(took) and took > 0
