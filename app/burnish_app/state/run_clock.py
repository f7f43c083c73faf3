"""Tells the time that is left of a run from the work that it did, and why that grew. No Qt."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from burnish_app.state.time_left import NOTABLY, TimeLeft
from burnish_engine.contract.run.events import PhaseChanged
from burnish_engine.contract.run.fold import RunState

_STAGES: Mapping[str, tuple[str, ...]] = {
    "weights": ("loading",),
    "checking": ("checks",),
    "evaluating": ("evaluations", "general_text"),
    "scoring": ("task",),
    "sampling": ("prompts",),
    "saving": ("saves",),
}
"""Parts of the plan's time that one stay in a phase takes, by the phase."""
_MOST_WITHOUT_WORD = 0.75  # of a stage that does not say how far it is; the rest is due when it ends
_FIRST_STEPS = 5  # from so many on the measured time of steps counts (engine: `train.lifecycle.time_left`)
_NEWEST = 5
_CROWDED = 0.6  # share of its threads' time below which the run lacks processor cores
_FEW_S = 2.0  # stages that take less tell nothing about the machine's pace


def run_time_left(state: RunState, now: float) -> TimeLeft | None:
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
    about = TimeLeft.about(max(left_s, 1.0), times)
    slower = slowdown(state)
    crowded = last is not None and last.cpu_share is not None and last.cpu_share < _CROWDED
    return TimeLeft(about.low_s, about.high_s, slower, is_crowded=crowded)


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
