"""Text about a run's status, and the actions that the status allows. Pure: from summary and folded events to text."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from burnish_app.look.language import say, tr
from burnish_app.state.step_status import StepStatus
from burnish_app.state.time_left import NOTABLY, Remaining
from burnish_app.wording.activity import awaited_name
from burnish_app.wording.causes import CURES, failure_cause
from burnish_app.wording.machine_text import place_text
from burnish_app.wording.numbers import duration_text, facts_text, percent, plural
from burnish_app.wording.plain_words import model_text
from burnish_engine.contract.recipe.eight_bit_use import EIGHT_BITS
from burnish_engine.contract.recipe.memory_plan import parse_save_levels, parse_weight_places
from burnish_engine.contract.run.fold import RunState
from burnish_engine.contract.run.process_end import death_text, end_text
from burnish_engine.contract.run.state import ObservedStatus
from burnish_engine.contract.serve.replies import RunSummary
from burnish_engine.contract.units import memory_size
from burnish_engine.contract.wording.sentences import exchange_sentence, memory_sentence, progress_sentence
from burnish_engine.contract.wording.tables import PHASES

RunAction = Literal["pause", "resume", "checkpoint", "suspend", "stop", "stop_now"]
Tone = Literal["plain", "live", "success", "warning", "error"]

_GONE = tr(
    "Its process ended without a word: it was killed, mostly because memory ran out, or the machine went down or slept."
)
_NO_WORD = tr("It ended without a word. Its stderr.log may say more.")
_PLACES: Mapping[str, str] = {
    "card": tr("{n} on the card"),
    "ranks": tr("{n} shared out over the GPUs"),
    "host": tr("{n} in system memory"),
}
_EXCHANGES: Mapping[str, str] = {
    "whole": tr("The run exchanges them once a step, after its backward passes."),
    "sliced": tr("The run exchanges them in slices, while the layers below compute."),
    "bf16": tr("The run exchanges them rounded to bf16, half of these bytes; what that leaves out is added later."),
    "exact": tr("The run adds them up in the order of passes, so each pass has an exchange of its own."),
}
_LEVELS: Mapping[str, tuple[str, str]] = {
    "all": (tr("{n} with all kept"), tr("All activations stay on the card.")),
    "rotated": (
        tr("{n} with outputs kept"),
        tr("Outputs of products and of attention, and rotated queries and keys, stay on the card."),
    ),
    "products": (tr("{n} with outputs kept"), tr("Outputs of products and of attention stay on the card.")),
    "offloaded": (
        tr("{n} with the largest offloaded"),
        tr("Outputs stay, the widest of them in system memory until the backward pass."),
    ),
    "narrow": (
        tr("{n} with the largest recomputed"),
        tr("Outputs stay on the card but for the widest, which are computed again."),
    ),
    "attention": (
        tr("{n} recomputed"),
        tr("The layer's input and attention's output stay on the card; the rest is computed again."),
    ),
    "host": (
        tr("{n} offloaded and recomputed"),
        tr("The layer's input and attention's output wait in system memory; the rest is computed again."),
    ),
    "input": (
        tr("{n} offloaded and recomputed"),
        tr("The layer's input waits in system memory; all else is computed again."),
    ),
}
"""Save level to what its layers do with activations, in short, and in a sentence."""
RUN_STATUS_TEXT: dict[ObservedStatus, str] = {
    "created": tr("Starting"),
    "queued": tr("Waiting"),
    "running": tr("Running"),
    "paused": tr("Paused"),
    "finished": tr("Finished"),
    "stopped": tr("Stopped"),
    "suspended": tr("Suspended"),
    "failed": tr("Failed"),
    "interrupted": tr("Interrupted"),
    "not responding": tr("Not responding"),
}
RUN_TONES: dict[ObservedStatus, Tone] = {
    "running": "live",
    "paused": "live",
    "finished": "success",
    "failed": "error",
    "interrupted": "warning",
    "not responding": "warning",
}
_STEP_STATUS: dict[ObservedStatus, StepStatus] = {
    "created": "busy",
    "queued": "busy",
    "running": "busy",
    "paused": "ready",
    "finished": "done",
    "stopped": "ready",
    "suspended": "ready",
    "failed": "attention",
    "interrupted": "attention",
    "not responding": "attention",
}
RUN_ACTION_BUTTONS: dict[RunAction, tuple[str, str, str]] = {
    "pause": (tr("Pause"), "pause", tr("Save and hold after this step, keeping memory: Resume continues at once.")),
    "resume": (tr("Resume"), "play", tr("Continue where it was.")),
    "checkpoint": (tr("Checkpoint now"), "save", tr("Save after this step and continue.")),
    "suspend": (
        tr("Suspend"),
        "suspend",
        tr("Save after this step, end the process and free all memory: Resume starts it again."),
    ),
    "stop": (tr("Stop and save"), "stop", tr("Save after this step and end.")),
    "stop_now": (tr("End the process"), "close", tr("End without saving. What was saved before stays.")),
}
"""Text, icon and hint of each action's button."""
ACTIVE = ("running", "paused", "queued")
"""Statuses of runs that continue, or will start, without any action of the person."""
LEAVE_QUEUE = tr("Leave the queue")
"""Text of the button that stops a run which waits for its turn: it has nothing to save."""
RUN_ACTIONS: dict[ObservedStatus, tuple[RunAction, ...]] = {
    "queued": ("stop",),
    "running": ("pause", "checkpoint", "suspend", "stop"),
    "paused": ("resume", "checkpoint", "suspend", "stop"),
    "stopped": ("resume",),
    "suspended": ("resume",),
    "failed": ("resume",),
    "interrupted": ("resume",),
    "not responding": ("stop_now",),
}


@dataclass(frozen=True)
class RunDescription:
    """A run's status as text, with the actions that it allows.

    Attributes:
        headline: status in a few words.
        detail: one or two sentences on what the status means and which step is saved; may be empty.
        tone: tone that decides the headline's color.
        status: status of the step Train in the sidebar.
        actions: actions that the run accepts now.
        problem: reason of the failure and advice; empty if the run did not fail.
    """

    headline: str
    detail: str
    tone: Tone
    status: StepStatus
    actions: tuple[RunAction, ...]
    problem: str = ""


def describe_run(summary: RunSummary, events: RunState) -> RunDescription:
    """Describe a run's status and the actions that it allows.

    Args:
        summary: summary of the run, as the engine lists it.
        events: state folded from the run's events; it may be behind the summary.
    """
    run_status = summary.standing
    return RunDescription(
        headline=_headline(run_status, summary, events),
        detail=_detail(run_status, summary, events),
        tone=RUN_TONES.get(run_status, "plain"),
        status=_STEP_STATUS[run_status],
        actions=RUN_ACTIONS.get(run_status, ()),
        problem=(_message(summary, events) or _NO_WORD) if run_status == "failed" else "",
    )


def run_line(summary: RunSummary, events: RunState) -> str:
    """Return a run's model, device, precision and place in one line."""
    started = events.started
    parts = [model_text(summary.model)]
    if started is not None:
        eight = tr("8-bit products") if started.products in EIGHT_BITS else ""
        parts += [started.device, started.precision, eight]
    return facts_text(*parts, place_text(summary.state.where) if summary.state.where else "")


def plan_text(events: RunState) -> str:
    """Return predicted and measured memory and time; empty if nothing was predicted.

    Args:
        events: state folded from the run's events so far.
    """
    plan, memory = events.plan, memory_sentence(events)
    if plan is None or memory is None:
        return ""
    text = [say(memory)]
    if plan.run_s > 0:
        took = events.ended.seconds if events.ended is not None and len(events.starts) == 1 else 0.0
        time = tr("Time: predicted {seconds}").format(seconds=duration_text(plan.run_s))
        text.append(tr("{time}, took {took}").format(time=time, took=duration_text(took)) if took > 0 else time)
    return "   ·   ".join(text)


def layers_text(events: RunState) -> tuple[str, str]:
    """Say in a line how many layers keep what where, and in further lines what that means.

    Args:
        events: state folded from the run's events so far.

    Returns:
        Line and explanation, both empty where the plan is not known or is one of a later version, and on the CPU, which
        has one memory for all.
    """
    placed = events.layers
    if placed is None or (events.started is not None and events.started.device == "CPU"):
        return "", ""
    try:
        levels = parse_save_levels(placed.activations)
        places = parse_weight_places(placed.weights, len(levels))
    except ValueError:
        return "", ""
    weights = tr("Weights of layers: {places}").format(places=_counted(_PLACES[place] for place in places))
    activations = tr("Activations of layers: {levels}").format(levels=_counted(_LEVELS[level][0] for level in levels))
    meant = [f"{level}: {_LEVELS[level][1]}" for level in _LEVELS if level in levels]
    pinned = tr("From the first layer: {levels}").format(levels=placed.activations)
    return f"{weights}   ·   {activations}", "\n".join((*meant, pinned))


def exchange_text(events: RunState) -> tuple[str, str]:
    """Say in a line what an exchange of gradients takes, beside its prediction, and in two more how it is made.

    Args:
        events: state folded from the run's events so far.

    Returns:
        Line and explanation, both empty where one process trains.
    """
    exchange = events.exchange
    if exchange is None:
        return "", ""
    line = say(exchange_sentence(exchange))
    if exchange.form != "exact" and events.last_step is not None:
        line += tr(", {share} of a step").format(
            share=percent(exchange.measured_ms / 1000 / events.last_step.step_s, 1)
        )
    size = tr("{size} in fp32, measured before the first step.").format(size=memory_size(exchange.gradient_bytes))
    return line, f"{size}\n{_EXCHANGES[exchange.form]}"


def _counted(forms: Iterable[str]) -> str:
    """Put into each form the number of layers that it is of, in the order in which they come."""
    return ", ".join(form.format(n=count) for form, count in Counter(forms).items())


def slower_text(left: Remaining | None) -> str:
    """Say how much slower the work is than it was, or was predicted; empty where it is not."""
    if left is None or left.slower < NOTABLY:
        return ""
    times = f"{left.slower:.0f}" if left.slower >= 1.95 else f"{left.slower:.1f}"
    words = tr("{times} times slower than usual.")
    if left.is_crowded:
        words = tr("The processor is busy with other programs: {times} times slower than usual.")
    return words.format(times=times)


def _headline(run_status: ObservedStatus, summary: RunSummary, events: RunState) -> str:
    if run_status == "running" and _waits_there(summary, events):
        return tr("Not begun yet")
    if run_status == "running":
        return tr(PHASES.get(events.phase or summary.state.phase, "Running"))
    if run_status == "queued":
        return (
            tr("Waiting for {name}").format(name=awaited_name(summary))
            if summary.waits_for
            else tr("Waiting for its turn")
        )
    cause = failure_cause(summary, events)
    return CURES[cause].title if cause is not None else RUN_STATUS_TEXT[run_status]


def _detail(run_status: ObservedStatus, summary: RunSummary, events: RunState) -> str:
    text = ""
    match run_status:
        case "created":
            text = tr("The engine is being started.")
        case "queued":
            text = tr("The device is busy. This run starts by itself as soon as it is free.")
        case "running":
            text = summary.state.message or events.phase_detail or _progress_text(events)
        case "paused":
            text = tr("It keeps its memory, so that Resume continues at once.")
        case "finished":
            text = _message(summary, events) or _held_out_text(events)
        case "stopped" | "suspended":
            before = summary.state.message if _waits_there(summary, events) else ""
            free = tr("Its memory is free.") if run_status == "suspended" and not before else ""
            text = " ".join(part for part in (before, free, _saved_step_text(events)) if part)
        case "failed":
            text = f"{_advice(summary, events)} {_saved_step_text(events)}".strip()
        case "interrupted":
            end = summary.process_end
            advice = _advice(summary, events)
            died = summary.state.message or _GONE  # a run on another machine may continue, though nobody follows it
            if end is not None:
                died = f"{end_text(end)} {advice}" if advice else " ".join(death_text(end))
            text = f"{died} {_saved_step_text(events)}"
        case "not responding":
            text = tr(
                "Its process is there but gave no sign of life for half a minute. It may come back by itself. {events}"
            ).format(events=_saved_step_text(events))
    return text


def _waits_there(summary: RunSummary, events: RunState) -> bool:
    """Whether a run on another machine has not begun there: it is being sent or prepared, or waits in a queue."""
    return bool(summary.state.where) and not (events.phase or summary.state.phase or events.step)


def _advice(summary: RunSummary, events: RunState) -> str:
    cause = failure_cause(summary, events)
    return CURES[cause].advice if cause is not None else ""


def _progress_text(events: RunState) -> str:
    """Return how far an evaluation between steps is; before the first step the stages say it."""
    return say(progress_sentence(events.progress)) if events.progress is not None and events.step else ""


def _message(summary: RunSummary, events: RunState) -> str:
    return summary.state.message or (events.ended.message if events.ended else "")


def _saved_step_text(events: RunState) -> str:
    if events.saved_step is None:
        return tr("No step was saved yet, so it would start from the beginning.")
    lost = events.step - events.saved_step
    text = tr("Step {saved_step:,} is safe.").format(saved_step=events.saved_step)
    return (
        tr("{text} {lost} would be repeated.").format(text=text, lost=plural(lost, tr("later step")))
        if lost > 0
        else text
    )


def _held_out_text(events: RunState) -> str:
    losses = events.evaluations.loss.values()
    if len(losses) < 2 or not (math.isfinite(losses[0]) and math.isfinite(losses[-1])):
        return tr("What it learned is saved.")
    if losses[-1] < losses[0]:
        return tr(
            "Held-out loss fell from {first:.3f} to {last:.3f}: it learned what carries over to new rows."
        ).format(first=losses[0], last=losses[-1])
    return tr(
        "Held-out loss rose from {first:.3f} to {last:.3f}: it got worse on rows it had not "
        "seen. Fewer epochs or a lower learning rate may help."
    ).format(first=losses[0], last=losses[-1])
