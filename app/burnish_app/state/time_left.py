"""Estimates when something is done from the work that is done, never from the time that passes. No Qt.

An activity has a share that grows; a run has steps, and before them stages.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the window is shown before these, and pydantic with them, are loaded
    from burnish_engine.contract.run.events import PhaseChanged
    from burnish_engine.contract.run.fold import RunState

NOTABLY = 1.5
"""Times from which work is called slower, and above which the time left rises only with a reason."""
_LEAST_S, _LEAST_SHARE = 5.0, 0.005  # less tells nothing
_WINDOW_S = 300.0  # earlier growth does not count: speed changes from stage to stage
_KNOWN_SHARE, _KNOWN_STEPS = 0.05, 6  # growth from which one figure is told instead of two
_WIDE = 1.5  # times that the true time may be more or less while little is known
_REASON_S = 60.0  # a reason is told for so long

_STAGES: Mapping[str, tuple[str, ...]] = {
    "preparing": ("replay",),
    "weights": ("loading",),
    "checking": ("checks",),
    "writing": ("replies",),
    "evaluating": ("evaluations", "general_text"),
    "scoring": ("task",),
    "sampling": ("prompts",),
    "saving": ("saves",),
}
"""Parts of the plan's time that one stay in a phase takes, by the phase."""
_MOST_WITHOUT_WORD = 0.75  # share that counts as done of a stage which does not say how far it is
_FIRST_STEPS = 5  # from so many on the measured time of steps counts (engine: `train.lifecycle.time_left`)
_NEWEST = 5
_CROWDED = 0.6  # share of its threads' time below which the run lacks processor cores
_FEW_S = 2.0  # stages that take less tell nothing about the machine's pace


@dataclass(frozen=True)
class Remaining:
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
    def about(cls, seconds: float, times: float = 1.0) -> Remaining:
        """Return an estimate that may be so many times less or more."""
        return cls(seconds / times, seconds * times)

    @property
    def middle_s(self) -> float:
        """The likeliest time, seconds."""
        return math.sqrt(self.low_s * self.high_s)


@dataclass
class ShareClock:
    """Estimate of the time that is left of one activity, from how its share grows.

    Attributes:
        seen: (time, share) of each time that the share had grown, seconds and 0 to 1; at first the last time at 0.
    """

    seen: deque[tuple[float, float]] = field(default_factory=deque)
    _former_s: float = 0.0
    _slower: tuple[float, float] = (1.0, 0.0)  # times, and when that was found

    def note(self, now: float, share: float) -> Remaining | None:
        """Note the share and return the time that is left; None while that cannot be told.

        Between two growths the estimate falls by no more than the work of one, and rises where that one is late.

        Args:
            now: current time, seconds.
            share: how far the activity is, 0 to 1; less than before begins anew.
        """
        if self.seen and share < self.seen[-1][1]:
            self.seen.clear()
            self._former_s = 0.0
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
        return self._compare(left_s, now, 1.0 if known else _WIDE)

    def _compare(self, left_s: float, now: float, times: float) -> Remaining:
        """Note an estimate, and say how much slower the work became where it rose by more than half."""
        if self._former_s and left_s > NOTABLY * self._former_s:
            self._slower = left_s / self._former_s, now
        self._former_s = left_s
        slower, since = self._slower
        about = Remaining.about(left_s, times)
        return Remaining(about.low_s, about.high_s, slower if since and now - since < _REASON_S else 1.0)


def run_time_left(state: RunState, now: float) -> Remaining | None:
    """Return the time to the end of a run that is running; None where it is not known.

    Before the first step each stage has its predicted share, scaled by what the finished ones took. Afterwards it is
    the engine's own estimate, less what was done since. It never falls to 0 while there is work.

    Args:
        state: state folded from the run's events so far.
        now: current time, seconds since the epoch.
    """
    last = state.last_step
    if last is not None:
        # The first step may have compiled kernels, so that the engine's estimate is still the plan's.
        pace = max(_begun(state, last.t)[1], 1.0) if len(state.steps) == 1 else 1.0
        left_s = last.eta_s * pace - _done_since(state, now)
        times = 1.0 if len(state.steps) >= _FIRST_STEPS else NOTABLY
    elif state.plan is not None and state.plan.run_s > 0:
        done_s, pace = _begun(state, now)
        left_s = max(state.plan.run_s - done_s, 0.0) * pace
        times = NOTABLY
    else:
        return None
    if not math.isfinite(left_s) or left_s < 0:
        return None
    about = Remaining.about(max(left_s, 1.0), times)
    slower = slowdown(state)
    crowded = last is not None and last.cpu_share is not None and last.cpu_share < _CROWDED
    return Remaining(about.low_s, about.high_s, slower, is_crowded=crowded)


def run_seconds(state: RunState, now: float) -> float | None:
    """Return for how long the run's present process has trained, or its last one did; None where it has not begun."""
    if state.ended is not None:
        return state.ended.seconds
    return max(now - state.beginnings[0].t, 0.0) if state.beginnings else None


def slowdown(state: RunState) -> float:
    """Return how many times as long steps take as was predicted, or as most of this run's did; 1 unless notable."""
    speeds = [speed for speed in state.steps.tokens_per_s.values()[1:] if speed > 0]
    if len(speeds) < 2:
        return 1.0
    usual = median(speeds)
    if state.plan is not None and state.plan.tokens_per_s > 0:
        usual = max(usual, state.plan.tokens_per_s)
    tokens, seconds = (column.values()[-_NEWEST:] for column in (state.steps.tokens, state.steps.step_s))
    times = usual * sum(seconds) / max(sum(tokens), 1)
    return times if times >= NOTABLY else 1.0


def _done_since(state: RunState, now: float) -> float:
    """Return the seconds of work that were done since the newest step, as far as that is known."""
    last = state.last_step
    if last is None or state.phase == "paused":
        return 0.0
    done_s, _, _ = _stages_done(state, state.since_step, now)
    began = max(last.t, state.since_step[-1].t if state.since_step else 0.0)
    return done_s + (min(max(now - began, 0.0), last.step_s) if state.phase == "training" else 0.0)


def _begun(state: RunState, now: float) -> tuple[float, float]:
    """Return the predicted seconds of what was done before the first step, and how many times that took as long."""
    done_s, took_s, predicted_s = _stages_done(state, state.beginnings, now)
    pace = (took_s + _FEW_S) / (predicted_s + _FEW_S)  # little that was done says little
    return done_s, max(pace, 1.0 / NOTABLY)


def _stages_done(state: RunState, phases: Sequence[PhaseChanged], now: float) -> tuple[float, float, float]:
    """Add up stages in order, of which the last one is running.

    Returns:
        Predicted seconds of what is done; the time that this took, and its prediction, where both are known.
    """
    done = took = predicted = 0.0
    for at, event in enumerate(phases):
        stage_s, is_over = stage_seconds(state, event.phase), at + 1 < len(phases)
        passed = max((phases[at + 1].t if is_over else now) - event.t, 0.0)
        share = 1.0 if is_over else _share_of_stage(state, passed, stage_s)
        done += share * stage_s
        # A stage that says how far it is tells its pace; of another one the time counts once it took too long.
        if stage_s > 0 and share > 0 and (is_over or state.progress is not None or passed > stage_s):
            took += passed
            predicted += share * stage_s
    return done, took, predicted


def _share_of_stage(state: RunState, passed: float, stage_s: float) -> float:
    """Return how much of the present stage is done, 0 to 1, by what it counts, else by its predicted time."""
    if state.progress is not None and state.progress.total > 0:
        return min(state.progress.done / state.progress.total, 1.0)
    return min(passed / stage_s, _MOST_WITHOUT_WORD) if stage_s > 0 else 0.0


def stage_seconds(state: RunState, phase: str) -> float:
    """Return the predicted time of one stay in a phase, seconds; 0 where it has none.

    Args:
        state: state folded from the run's events so far.
        phase: phase, as in `PhaseChanged`.
    """
    names = _STAGES.get(phase, ())
    parts = state.plan.times if state.plan is not None else []
    return sum(part.seconds / part.count for part in parts if part.name in names and part.count)
