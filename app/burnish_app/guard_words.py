"""Whether a run really trains, and how it stops early, in plain words. Pure: from folded events to words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from burnish_app.run_folder import frozen_section
from burnish_app.run_state import RunState
from burnish_app.words import plural
from burnish_engine.contract.events import RolledBack

Standing = Literal["success", "warning", "error"]

CHECKS = {
    "not_finite": "Loss and gradient are finite",
    "coverage": "The adapter reaches what was planned",
    "no_targets": "Something is learned from every pass",
    "padding": "Only real tokens count",
    "leak": "Documents of a pass do not see each other",
    "labels": "Every label is the next token",
    "learning_rate": "The learning rate is above 0",
    "zero_gradient": "There is a gradient",
    "detached": "Every adapted layer has a gradient",
    "unchanged": "Steps change what is trained",
    "base_changed": "Frozen weights stay as they are",
    "zero_loss": "The loss is above 0",
    "constant_loss": "The loss moves",
    "same_output": "The trained model says something else than its base",
    "end_token": "The end of a reply is learned",
    "overfitting": "The held-out loss does not rise while the training loss falls",
}
"""What holds where a check of the guard finds nothing."""


@dataclass(frozen=True)
class Verdict:
    """What the guard says.

    Attributes:
        standing: How it is.
        sentence: The verdict.
        cause: What is behind it; empty where nothing is wrong.
        remedy: What to do; empty where nothing is wrong.
        checked: What was checked and found right.
    """

    standing: Standing
    sentence: str
    cause: str
    remedy: str
    checked: tuple[str, ...]


@dataclass(frozen=True)
class Stopping:
    """A run's settings for stopping early, of its frozen recipe.

    Attributes:
        patience: Evaluations without a better loss after which it stops; 0: it does not.
        least: By how much a loss has to be lower to be better, nats.
    """

    patience: int = 0
    least: float = 0.0


def verdict(state: RunState) -> Verdict | None:
    """What the guard says; None before its first look, and where it does not look."""
    guard = state.guard
    if guard is None:
        return None
    standing: Standing = "success"
    if guard.verdict != "training":
        standing = "warning" if guard.verdict == "suspicious" else "error"
    checked = tuple(CHECKS.get(name, name.replace("_", " ")) for name in guard.passed)
    if standing != "success":
        return Verdict(standing, guard.sentence, guard.cause, guard.remedy, checked)
    words = {"before": "Nothing speaks against training", "end": "It trained"}.get(guard.when, "It is training")
    reached = f" The adapter reaches {guard.coverage}." if guard.coverage else ""
    sentence = f"{words}: {plural(len(checked), 'check')} found nothing wrong.{reached}"
    return Verdict("success", sentence, "", "", checked)


def rollback_words(back: RolledBack) -> str:
    """Where a run went back and why."""
    where = f"step {back.to_step:,}" if back.to_step else "the beginning"
    share = "half the learning rate" if back.factor == 0.5 else f"{back.factor:g} times the learning rate"
    return f"At step {back.step:,} the run went back to {where} and goes on at {share}. {back.reason}"


def bad_steps_words(state: RunState) -> str:
    """Steps that were no use; empty where there are none but those that the run went back for."""
    bad = [step for step in state.bad_steps if not any(back.to_step < step <= back.step for back in state.rollbacks)]
    if not bad:
        return ""
    shown = ", ".join(f"{step:,}" for step in bad[:5])
    more = " ..." if len(bad) > 5 else ""
    return (
        f"{plural(len(bad), 'step')} without a usable gradient (step {shown}{more}); the weights stayed as they were."
    )


def stopping_words(state: RunState, stopping: Stopping) -> str:
    """How stopping early stands or what came of it; empty where it is not asked for."""
    best = state.best
    if best is not None:
        kept = f"The result is that of step {best.step:,}, whose held-out loss was the lowest ({best.loss:.3f})."
        if best.stopped_early:
            if state.ended is not None and state.ended.message:
                return ""  # it ended with these words
            return f"It stopped early at step {best.at_step:,}: the held-out loss did not improve any more. {kept}"
        return kept
    if not stopping.patience:
        return ""
    step, loss, since = best_so_far(state, stopping)
    limit = plural(stopping.patience, "check")
    if step is None:
        return f"It stops early once {limit} in a row bring no lower held-out loss."
    words = f"Best held-out loss so far: {loss:.3f} at step {step:,}."
    if not since:
        return f"{words} It stops early after {limit} without a better one."
    return f"{words} {since} of {limit} without a better one; then it stops early."


def best_so_far(state: RunState, stopping: Stopping) -> tuple[int | None, float, int]:
    """Step and loss of the best evaluation after the start, and how many came since."""
    step, best, since = None, math.inf, 0
    pairs = zip(state.evaluation_steps.values(), state.evaluation_losses.values(), strict=True)
    for at, loss in pairs:
        if at < 1:
            continue  # before training
        if math.isfinite(loss) and (step is None or loss < best - stopping.least):
            step, best, since = int(at), loss, 0
        else:
            since += 1
    return step, best, since


def read_stopping(folder: str) -> Stopping:
    """A run's settings for stopping early; none where its recipe cannot be read."""
    section = frozen_section(folder, "evaluation")
    return Stopping(int(section.get("patience", 0)), float(section.get("min_improvement", 0.0)))
