"""Text about the training guard, rollbacks and early stopping, from a run's folded events. Pure, no Qt."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from burnish_app.look.language import say, tr
from burnish_app.state.run_folder import frozen_section
from burnish_app.wording.numbers import plural
from burnish_engine.contract.run.fold import RunState
from burnish_engine.contract.run.forgetting import Forgetting
from burnish_engine.contract.wording.sentences import best_sentence
from burnish_engine.contract.wording.tables import CHECKS

VerdictStatus = Literal["success", "warning", "error"]


@dataclass(frozen=True)
class GuardVerdict:
    """A verdict of the training guard, as text.

    Attributes:
        status: status of the training.
        sentence: verdict as one sentence.
        cause: cause of the trouble; empty if nothing is wrong.
        remedy: advice on what to do; empty if nothing is wrong.
        checked: statements of the checks that passed.
    """

    status: VerdictStatus
    sentence: str
    cause: str
    remedy: str
    checked: tuple[str, ...]


@dataclass(frozen=True)
class EarlyStoppingSettings:
    """A run's settings for early stopping, from its frozen recipe.

    Attributes:
        patience: number of evaluations without a better loss after which the run stops; 0: it does not stop early.
        min_improvement: amount by which a loss has to be lower to count as better, nats.
    """

    patience: int = 0
    min_improvement: float = 0.0


def guard_verdict(state: RunState, *, over: bool = False) -> GuardVerdict | None:
    """Return the guard's newest verdict; None before the first one and if the guard is off.

    Args:
        state: state folded from the run's events so far.
        over: whether the run's process has ended.
    """
    guard = state.guard
    if guard is None:
        return None
    status: VerdictStatus = "success"
    if guard.verdict != "training":
        status = "warning" if guard.verdict == "suspicious" else "error"
    checked = tuple(tr(CHECKS.get(name, name.replace("_", " "))) for name in guard.passed)
    if status != "success":
        return GuardVerdict(status, guard.sentence, guard.cause, guard.remedy, checked)
    going = tr("It was training") if over else tr("It is training")
    text = {"before": tr("Nothing speaks against training"), "end": tr("It trained")}.get(guard.when, going)
    reached = tr(" The adapter reaches {coverage}.").format(coverage=guard.coverage) if guard.coverage else ""
    sentence = tr("{text}: {plural} found nothing wrong.{reached}").format(
        text=text, plural=plural(len(checked), "check"), reached=reached
    )
    return GuardVerdict("success", sentence, "", "", checked)


def bad_steps_text(state: RunState) -> str:
    """Return a sentence about unusable steps, without those that a rollback undid; empty if there are none."""
    bad = [step for step in state.bad_steps if not any(back.to_step < step <= back.step for back in state.rollbacks)]
    if not bad:
        return ""
    shown = ", ".join(f"{step:,}" for step in bad[:5])
    more = " ..." if len(bad) > 5 else ""
    return tr("{plural} without a usable gradient (step {shown}{more}); the weights stayed as they were.").format(
        plural=plural(len(bad), "step"), shown=shown, more=more
    )


def forgetting_text(found: Forgetting) -> str:
    """Say how the loss on general text changed, and where it rose much, what that means and what helps."""
    text = tr("Loss on general text, before and after: {figures}.").format(figures=found.figures.replace("->", "→"))
    if not found.is_marked:
        return text
    return tr(
        "{text} The model lost some of what it could do before. Rows that the base writes (replay, 3 % of the rows), a "
        "lower learning rate, or fewer epochs keep more of it."
    ).format(text=text)


def early_stopping_text(state: RunState, stopping: EarlyStoppingSettings) -> str:
    """Return the status or the outcome of early stopping; empty if it is off."""
    best = state.best
    if best is not None:
        kept = say(best_sentence(best))
        if best.stopped_early:
            if state.ended is not None and state.ended.message:
                return ""  # the run's ending already says so
            return tr(
                "It stopped early at step {at_step:,}: the held-out loss did not improve any more. {kept}"
            ).format(at_step=best.at_step, kept=kept)
        return kept
    if not stopping.patience:
        return ""
    step, loss, since = best_so_far(state, stopping)
    limit = plural(stopping.patience, "check")
    if step is None:
        return tr("It stops early once {limit} in a row bring no lower held-out loss.").format(limit=limit)
    text = tr("Best held-out loss so far: {loss:.3f} at step {step:,}.").format(loss=loss, step=step)
    if not since:
        return tr("{text} It stops early after {limit} without a better one.").format(text=text, limit=limit)
    return tr("{text} {since} of {limit} without a better one; then it stops early.").format(
        text=text, since=since, limit=limit
    )


def best_so_far(state: RunState, stopping: EarlyStoppingSettings) -> tuple[int | None, float, int]:
    """Find the best evaluation after the start.

    Returns:
        Its step (None if there is none), its loss in nats, and the number of evaluations since.
    """
    step, best, since = None, math.inf, 0
    pairs = zip(state.evaluations.step.values(), state.evaluations.loss.values(), strict=True)
    for at, loss in pairs:
        if at < 1:
            continue  # before training
        if math.isfinite(loss) and (step is None or loss < best - stopping.min_improvement):
            step, best, since = int(at), loss, 0
        else:
            since += 1
    return step, best, since


def read_early_stopping(folder: str) -> EarlyStoppingSettings:
    """Read a run's settings for early stopping; the defaults (off) if its recipe cannot be read."""
    section = frozen_section(folder, "evaluation")
    return EarlyStoppingSettings(int(section.get("patience", 0)), float(section.get("min_improvement", 0.0)))
