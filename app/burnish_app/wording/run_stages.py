"""The stages of a run before its first step, each with its time, so that the first minute shows work. No Qt."""

from __future__ import annotations

from dataclasses import dataclass

from burnish_app.look.language import say, tr
from burnish_app.state.step_status import StageStatus
from burnish_app.state.time_left import stage_seconds
from burnish_app.wording.numbers import count_text, duration_text, percent
from burnish_engine.contract.run.fold import RunState
from burnish_engine.contract.units import memory_size
from burnish_engine.contract.wording.sentences import progress_sentence
from burnish_engine.contract.wording.tables import CHECKS, FIRST_STEP, PHASES

_STAGES = {phase: text for phase, text in PHASES.items() if phase not in ("saving", "paused")} | {
    "training": FIRST_STEP
}
_NOT_ALWAYS = ("dry_run", "writing", "evaluating", "scoring", "sampling")
_LEAST_S = 1.0


@dataclass(frozen=True)
class RunStage:
    """One stage.

    Attributes:
        text: name of the stage.
        status: whether it is done, is running or is to come.
        time: time it took or takes, as text, and before it the predicted one; empty where that is not known.
        detail: how far the running stage is and what is being done in it, in a line; may be empty.
    """

    text: str
    status: StageStatus
    time: str = ""
    detail: str = ""


def run_stages(state: RunState, now: float) -> list[RunStage]:
    """List the stages of a run that has not made a step yet.

    Args:
        state: state folded from the run's events so far.
        now: current time, seconds since the epoch.
    """
    began = state.beginnings
    if not began:
        return [RunStage(tr(text), "waiting") for phase, text in _STAGES.items() if phase not in _NOT_ALWAYS]
    times: dict[str, float] = {}
    for at, event in enumerate(began):
        end = began[at + 1].t if at + 1 < len(began) else now
        times[event.phase] = times.get(event.phase, 0.0) + max(end - event.t, 0.0)
    current = began[-1].phase
    found = []
    for phase, text in _STAGES.items():
        if phase == current:
            found.append(RunStage(tr(text), "now", duration_text(times[phase]), _detail(state)))
        elif phase in times:
            found.append(RunStage(tr(text), "done", duration_text(times[phase])))
        elif not (current in _STAGES and _before(phase, current)):
            predicted_s = stage_seconds(state, phase)
            if phase not in _NOT_ALWAYS or predicted_s > 0:
                about = tr("about {time}").format(time=duration_text(predicted_s)) if predicted_s >= _LEAST_S else ""
                found.append(RunStage(tr(text), "waiting", about))
    return found


def run_facts(state: RunState) -> list[tuple[str, str]]:
    """List what is known of a run before its first step, as (name, value)."""
    data, plan = state.data, state.plan
    found = []
    if data is not None:
        rows = tr("{train:,} to learn from, {held_out:,} held out")
        found.append((tr("Rows"), rows.format(train=data.train_rows, held_out=data.validation_rows)))
        if data.truncated_rows or data.dropped_rows:
            odd = tr("{cut:,} cut, {dropped:,} left out").format(cut=data.truncated_rows, dropped=data.dropped_rows)
            found.append((tr("Of these"), odd))
        learned = data.supervised_tokens / max(data.train_tokens, 1)
        tokens = tr("{tokens}, {learned} of them learned")
        found.append((tr("Tokens"), tokens.format(tokens=count_text(data.train_tokens), learned=percent(learned))))
        found.append((tr("Passes"), tr("{fill} full").format(fill=percent(data.fill))))
    if state.total_steps:
        found.append((tr("Steps"), f"{state.total_steps:,}"))
    if plan is not None and plan.run_s > 0:
        found.append((tr("Predicted"), f"{memory_size(plan.memory_bytes)}, {duration_text(plan.run_s)}"))
    return found


def _detail(state: RunState) -> str:
    """Return how far the running stage is, with what the check that is being made shows; empty where not known."""
    if state.progress is None or state.progress.done >= state.progress.total:  # what follows is not counted
        return ""
    check = CHECKS.get(state.progress.what, "") if state.progress.unit == "checks" else ""
    return "  ·  ".join(part for part in (say(progress_sentence(state.progress)), tr(check)) if part)


def _before(phase: str, other: str) -> bool:
    order = list(_STAGES)
    return order.index(phase) < order.index(other)
