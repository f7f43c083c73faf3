"""What to tell about a run, and what can be done with it. Pure: from standing, summary and folded events to words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from burnish_app.run_state import RunState
from burnish_app.widgets.status_dot import Status
from burnish_app.words import plural, time_in_words
from burnish_engine.contract.protocol import RunSummary
from burnish_engine.contract.state import Standing
from burnish_engine.contract.units import memory_size

Action = Literal["pause", "resume", "checkpoint", "suspend", "stop", "stop_now"]
Tone = Literal["plain", "live", "success", "warning", "error"]

_PHASE_WORDS = {
    "": "Starting",
    "loading": "Loading the model",
    "preparing": "Preparing the data",
    "dry_run": "Trying the longest pass",
    "training": "Training",
    "evaluating": "Reading held-out rows",
    "saving": "Saving",
    "paused": "Paused",
}
_NO_WORD = "It ended without a word. Its stderr.log may say more."
STANDING_WORDS: dict[Standing, str] = {
    "created": "Starting",
    "queued": "Waiting",
    "running": "Running",
    "paused": "Paused",
    "finished": "Finished",
    "stopped": "Stopped",
    "suspended": "Suspended",
    "failed": "Failed",
    "interrupted": "Interrupted",
    "not responding": "Not responding",
}
TONES: dict[Standing, Tone] = {
    "running": "live",
    "paused": "live",
    "finished": "success",
    "failed": "error",
    "interrupted": "warning",
    "not responding": "warning",
}
_STATUSES: dict[Standing, Status] = {
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
_ACTIONS: dict[Standing, tuple[Action, ...]] = {
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
class RunWords:
    """What to tell about a run.

    Attributes:
        headline: How it stands, in a few words.
        detail: What that means and what is safe, in a sentence or two; may be empty.
        tone: How to color the headline.
        status: How the step stands in the sidebar.
        actions: What can be done with it now.
        problem: Why it failed, and what to do; empty where it did not.
    """

    headline: str
    detail: str
    tone: Tone
    status: Status
    actions: tuple[Action, ...]
    problem: str = ""


def describe(summary: RunSummary, events: RunState) -> RunWords:
    """What to tell about a run.

    Args:
        summary: As the engine lists it.
        events: As folded from its events; may be behind.
    """
    standing = summary.standing
    return RunWords(
        headline=_headline(standing, summary, events),
        detail=_detail(standing, summary, events),
        tone=TONES.get(standing, "plain"),
        status=_STATUSES[standing],
        actions=_ACTIONS.get(standing, ()),
        problem=(_message(summary, events) or _NO_WORD) if standing == "failed" else "",
    )


def plan_in_words(events: RunState) -> str:
    """What was predicted, beside what was measured; empty where nothing was predicted.

    Args:
        events: As folded so far.
    """
    plan = events.plan
    if plan is None:
        return ""
    memory = f"Memory: predicted {memory_size(plan.memory_bytes)}"
    if measured := measured_bytes(events):
        memory += f", measured {memory_size(measured)}"
    words = [memory]
    if plan.seconds > 0:
        took = events.ended.seconds if events.ended is not None and events.starts == 1 else 0.0
        time = f"Time: predicted {time_in_words(plan.seconds)}"
        words.append(f"{time}, took {time_in_words(took)}" if took > 0 else time)
    return "   ·   ".join(words)


def measured_bytes(events: RunState) -> int:
    """Peak of memory so far: of the process where that is known, else of what the engine reports; 0 before any step.

    Args:
        events: As folded so far.
    """
    last = events.last_step.held_bytes if events.last_step is not None else 0
    ended = events.ended.measured if events.ended is not None else None
    return max(last, ended.process_bytes if ended is not None else 0)


def _headline(standing: Standing, summary: RunSummary, events: RunState) -> str:
    if standing == "running":
        return _PHASE_WORDS.get(events.phase or summary.state.phase, "Running")
    if standing == "queued":
        return f"Waiting for {Path(summary.waits_for).name}" if summary.waits_for else "Waiting for its turn"
    return STANDING_WORDS[standing]


def _detail(standing: Standing, summary: RunSummary, events: RunState) -> str:
    words = ""
    match standing:
        case "created":
            words = "The engine is being started."
        case "queued":
            words = "The device is busy. This run starts by itself as soon as it is free."
        case "running":
            words = events.phase_detail or ("" if events.step else "Charts appear with the first step.")
        case "paused":
            words = "It holds its memory and goes on where it is."
        case "finished":
            words = _message(summary, events) or _held_out_words(events)
        case "stopped" | "suspended" | "failed":
            words = _safe_words(events)
        case "interrupted":
            words = f"The process is gone. {_safe_words(events)}"
        case "not responding":
            words = (
                "Its process is there but gave no sign of life for half a minute. It may come back by itself. "
                f"{_safe_words(events)}"
            )
    return words


def _message(summary: RunSummary, events: RunState) -> str:
    return summary.state.message or (events.ended.message if events.ended else "")


def _safe_words(events: RunState) -> str:
    if events.safe_step is None:
        return "No step was saved yet, so it would start from the beginning."
    lost = events.step - events.safe_step
    words = f"Step {events.safe_step:,} is safe."
    return f"{words} {plural(lost, 'later step')} would be repeated." if lost > 0 else words


def _held_out_words(events: RunState) -> str:
    losses = events.evaluation_losses.values()
    if len(losses) < 2 or not (math.isfinite(losses[0]) and math.isfinite(losses[-1])):
        return "What it learned is saved."
    if losses[-1] < losses[0]:
        return f"Held-out loss fell from {losses[0]:.3f} to {losses[-1]:.3f}: it learned what carries over to new rows."
    return (
        f"Held-out loss rose from {losses[0]:.3f} to {losses[-1]:.3f}: it got worse on rows it had not seen. "
        "Fewer epochs or a lower learning rate may help."
    )
