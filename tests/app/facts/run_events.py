"""Constructed events of one run: a plausible one up to some step, and what can happen to it."""

import math
import random
import time
from functools import cache

from burnish_engine.contract.facts.task_score import TaskReply, TaskScore
from burnish_engine.contract.run.events import (
    CheckpointSaved,
    DataReady,
    EvaluationDone,
    GeneralTextDone,
    GuardReported,
    PhaseChanged,
    PhaseProgress,
    PlanMade,
    RolledBack,
    RunEnded,
    RunStarted,
    SampleDone,
    StepDone,
    TaskScored,
    Warned,
)

TOTAL = 600
PROMPT = "My order has not arrived. What now?"
BEFORE = "I am sorry to hear that! There are many possible reasons why an order"
AFTER = "Cause: the parcel is held at the depot.\nFix: ask for the tracking number and open a trace with the carrier."
NOW = time.time()


def events(steps, *, total=TOTAL, seed=1, ended=None, phase="training", bad=False):
    """Return the events of a plausible run up to step `steps`."""
    chance = random.Random(seed)
    made = [
        PhaseChanged(phase="loading", detail="embedded"),
        PhaseChanged(phase="preparing"),
        Warned(code="data", message="3 of 1,204 rows were longer than 1,024 tokens and were cut."),
        RunStarted(
            run="support-desk", pid=1, process_created=1.0, device="NVIDIA GeForce RTX 4090", precision="bf16",
            engine="plain", total_steps=total,
        ),
        DataReady(
            train_rows=1144, validation_rows=60, dropped_rows=0, truncated_rows=3, train_tokens=310_000,
            supervised_tokens=210_000, micro_batches_per_epoch=300, fill=0.93,
        ),
        PlanMade(
            memory_bytes=6_300_000_000, memory_free_bytes=23_500_000_000, tokens_per_s=18_400, seconds=total * 0.108,
            fits=True,
        ),
        EvaluationDone(step=0, loss=2.61, tokens=9000, seconds=3),
        SampleDone(step=0, prompt=PROMPT, reply=BEFORE, stopped=False),
        PhaseChanged(phase=phase),
    ]  # fmt: skip
    checks = ["no_targets", "labels", "padding", "leak", "zero_gradient", "detached"]
    made.insert(-1, GuardReported(step=0, when="before", verdict="training", sentence="Fine.", passed=checks))
    for step in range(1, steps + 1):
        made.append(a_step(step, total, chance))
        if step == 31:
            after = [*checks, "unchanged", "base_changed"]
            made.append(GuardReported(step=31, when="after_warmup", verdict="training", sentence="Fine.", passed=after))
        if step % 100 == 0:
            made.append(EvaluationDone(step=step, loss=1.18 + 1.4 * math.exp(-step / 110), tokens=9000, seconds=3))
            made.append(CheckpointSaved(step=step, path=f"checkpoints/step-{step:06d}", seconds=0.4))
            made.append(SampleDone(step=step, prompt=PROMPT, reply=AFTER, stopped=True))  # fmt: skip
    if bad:
        made.append(a_step(steps + 1, total, chance).model_copy(update={"loss": math.nan}))
    if ended:
        made += [_at_the_end(ended, after)] if ended.outcome == "finished" and steps > 31 else []
        made.append(ended)
    return numbered(made)


def _at_the_end(ended, passed):
    """Return the guard's last verdict, on a run that finished."""
    return GuardReported(step=ended.step, when="end", verdict="training", sentence="Fine.", passed=passed)


def saved(steps):
    """Return the events of a run that saved at its last step, as one that was stopped or suspended does."""
    path = f"checkpoints/step-{steps:06d}"
    return numbered([*events(steps), CheckpointSaved(step=steps, path=path, seconds=0.4)])


def resumed(steps, start):
    """Return the events of a run that was interrupted and continued from its last checkpoint."""
    last = RunStarted(
        run="support-desk", pid=2, process_created=2.0, device="NVIDIA GeForce RTX 4090", precision="bf16",
        engine="plain", total_steps=TOTAL, resumed_from_step=start,
    )  # fmt: skip
    chance = random.Random(5)
    further = [a_step(step, TOTAL, chance) for step in range(start + 1, steps + 40)]
    return numbered([*events(steps), PhaseChanged(phase="loading"), last, PhaseChanged(phase="training"), *further])


def numbered(lines):
    """Return the events with sequence numbers and times, as a file holds them."""
    return [event.model_copy(update={"seq": n, "t": NOW - len(lines) + n}) for n, event in enumerate(lines)]


def a_step(step, total, chance):
    """Return a plausible step event."""
    loss = 1.05 + 1.55 * math.exp(-step / 90) + chance.gauss(0, 0.09)
    rate = 2e-4 * min(step / (0.05 * total), 0.55 + 0.45 * math.cos(math.pi * step / total))
    speed = 18_400 + chance.gauss(0, 500)
    return StepDone(
        step=step, epoch=2 * step / total, loss=loss, learning_rate=max(rate, 0), grad_norm=0.8 + chance.random() * 0.3,
        tokens=2048, supervised_tokens=1400, tokens_per_s=speed, supervised_tokens_per_s=speed * 0.7, step_s=0.11,
        memory_bytes=int(6.2e9 + min(step, 30) * 1e7), eta_s=(total - step) * 0.11,
    )  # fmt: skip


FAILED = RunEnded(
    outcome="failed", exit_code=13, step=131,
    message="At step 132 the loss is nan and the gradient norm inf; the step was not taken. Start a new run with a "
    "lower train.learning_rate (now 0.002); earlier checkpoints are kept.",
)  # fmt: skip
FINISHED = RunEnded(outcome="finished", exit_code=0, step=TOTAL, seconds=TOTAL * 0.11)
OVERFIT = GuardReported(
    step=240, when="training", verdict="suspicious", check="overfitting",
    sentence="The held-out loss rises while the training loss falls: it went from 1.224 to 1.291 as the training loss "
    "fell from 1.366 to 1.120.",
    cause="The model learns the rows by heart: more passes over them do not make it better on new ones.",
    remedy="Use fewer train.epochs, a lower train.learning_rate or more rows; evaluation.patience stops by itself.",
    passed=["no_targets", "labels", "padding", "leak", "unchanged"],
)  # fmt: skip
_RISING = ((150, 1.224), (200, 1.291))


def troubled():
    """Return the events of a run with unusable steps 130 to 132, a rollback to step 100, and beginning overfitting."""
    made, chance = events(129), random.Random(3)
    for step in (130, 131, 132):
        made.append(a_step(step, TOTAL, chance).model_copy(update={"loss": math.nan, "grad_norm": math.inf}))
    reason = (
        "3 of the last 3 steps were bad; at step 132 the loss was nan and the gradient norm inf, so it was not taken."
    )
    made.append(RolledBack(step=132, to_step=100, factor=0.5, reason=reason))
    made += [a_step(step, TOTAL, chance) for step in range(101, 241)]
    evaluations = [EvaluationDone(step=step, loss=loss, tokens=9000, seconds=3) for step, loss in _RISING]
    return numbered([*made, *evaluations, OVERFIT])


def begun(*further):
    """Return the events of a run that has not made a step, up to some stage."""
    opened = [PhaseChanged(phase="loading", detail="embedded"), PhaseChanged(phase="preparing")]
    if not further:
        return numbered([*opened, PhaseProgress(done=412, total=1204)])
    started, data, plan = events(0)[3:6]
    lines = [*opened, plan.model_copy(update={"total_seconds": 96.0}), PhaseChanged(phase="weights"), started, data]
    return numbered([*lines, *further])


def preferring(steps=240, *, ended=None):
    """Return the events of a plausible run that learns from preference pairs, with forgetting measured at its end."""
    chance, made = random.Random(7), []
    for event in events(steps, ended=None):
        if isinstance(event, StepDone):
            made.append(event.model_copy(update=_preferred(event.step, chance, noise=1.0)))
        elif isinstance(event, EvaluationDone):
            figures = _preferred(event.step, chance, noise=0.2) | {
                "kl_to_base": 0.11 * (1 - math.exp(-event.step / 150))
            }
            made.append(event.model_copy(update=figures))
        else:
            made.append(event)
    made.insert(8, GeneralTextDone(step=0, loss=2.64, tokens=2048, seconds=4))
    if ended:
        made += [GeneralTextDone(step=steps, loss=2.79, tokens=2048, seconds=4), ended]
    return numbered(made)


def _preferred(step, chance, *, noise):
    """Return plausible figures of preference learning at a step."""
    learned = 1 - math.exp(-step / 120)
    margin = 1.9 * learned + chance.gauss(0, 0.25) * noise
    return {
        "loss": math.log(1 + math.exp(-margin)), "margin": margin,
        "accuracy": min(max(0.5 + 0.42 * learned + chance.gauss(0, 0.06) * noise, 0.0), 1.0),
        "chosen_log_prob": -92 + 4 * learned + chance.gauss(0, 2) * noise,
        "rejected_log_prob": -101 - 17 * learned + chance.gauss(0, 2) * noise,
    }  # fmt: skip


def scored(lines):
    """Return the events of a run with a score of its task before the first step and, where it ended, of its result."""
    wrong = TaskReply(
        row=3, asked="Does the parcel count as lost?", wanted='{"kind": "parcel", "lost": true}',
        reply="It depends on how long you have been waiting for it.", why="it is no valid JSON",
    )  # fmt: skip
    before = TaskScore(metric="json", passed=[n % 17 == 0 for n in range(50)], cut=31, failures=[wrong])
    after = TaskScore(metric="json", passed=[n % 17 != 1 for n in range(50)], failures=[wrong])
    first = next(n for n, event in enumerate(lines) if isinstance(event, EvaluationDone)) + 1
    made = [*lines[:first], TaskScored(step=0, score=before, seconds=8), *lines[first:]]
    if isinstance(made[-1], RunEnded):
        made.insert(-1, TaskScored(step=made[-1].step, score=after, seconds=3))
    return numbered(made)


@cache
def swept(seed, *, rate, ended=True, steps=TOTAL, best=1.18):
    """Return the events of a run at a learning rate, with a held-out loss that ends near `best`."""
    chance, made = random.Random(seed), []
    for event in events(steps, seed=seed, ended=FINISHED if ended else None):
        if isinstance(event, StepDone):
            fall = math.exp(-event.step * rate * 60)
            made.append(
                event.model_copy(
                    update={
                        "loss": best - 0.1 + 1.5 * fall + chance.gauss(0, 0.08),
                        "learning_rate": event.learning_rate * rate / 2e-4,
                    }
                )
            )
        elif isinstance(event, EvaluationDone) and event.step:
            made.append(event.model_copy(update={"loss": best + 1.4 * math.exp(-event.step * rate * 55)}))
        elif isinstance(event, SampleDone) and event.step:
            made.append(event.model_copy(update={"reply": REPLIES[seed % len(REPLIES)]}))
        else:
            made.append(event)
    return tuple(numbered(made))


REPLIES = (
    AFTER,
    "Cause: the carrier waits for a customs paper.\nFix: send the invoice and ask for a trace.\nCheck: the status "
    "changes within a day.",
    "Cause: unknown.\nFix: please wait two more days, then write to us again with your order number.",
)
