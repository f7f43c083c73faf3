"""Constructed rewards: a run that learns from them, data that offers them, and a trial."""

import math
import random

from app.facts import data_facts
from app.facts.run_events import TOTAL, events, numbered

from burnish_engine.contract.facts.data_report import TaskFit, TaskHint
from burnish_engine.contract.facts.task_score import TaskScore
from burnish_engine.contract.recipe.recipe_task import TaskSection
from burnish_engine.contract.run.events import JudgedGroup, JudgedReply, RewardsGiven, StepDone, TaskScored
from burnish_engine.contract.serve.reward_trial import RewardTrial, TriedRow

NUMBERS = TaskHint(metric="number", rows=60, says="The rows' replies are numbers, such as 42.", reply_tokens=4)


def sums(**changes):
    """Facts about prompts whose replies are numbers."""
    fit = TaskFit(section=TaskSection(), rows=0, usable_rows=60)
    report = data_facts.dataset_report(findings=[], task=NUMBERS, task_fit=fit)
    return data_facts.dataset(shape="prompt_completion", report=report, **changes)


def trial(rows=4):
    """A trial in which each reply is nearer than the one before."""
    found = []
    for number in range(rows):
        near = number / max(rows - 1, 1)
        reply = f"{17 + number} + 25 is {42 + number if number == rows - 1 else 3 * number}"
        found.append(
            TriedRow(
                prompt=f"What is {17 + number} + 25?", wanted=str(42 + number), reply=reply, ended=number != 1,
                tokens=9, rewards={"task": float(near == 1), "distance": near}, sum=float(near == 1) + 0.5 * near,
            )
        )  # fmt: skip
    return RewardTrial(rows=found)


def given(step, chance):
    """Return a plausible round of replies."""
    learned = 1 - math.exp(-step / 120)
    distance, task = 0.3 + 0.6 * learned + chance.gauss(0, 0.03), 0.08 + 0.7 * learned + chance.gauss(0, 0.04)
    best = [JudgedReply(prompt="", reply=text, reward=reward) for text, reward in (("60", 1.5), ("It is 60.", 1.5),
            ("59", 0.49))]  # fmt: skip
    worst = [JudgedReply(prompt="", reply=text, reward=reward) for text, reward in (("123", 0.31), ("I add them.",
             0.0))]  # fmt: skip
    return RewardsGiven(
        step=step, reward=task + 0.5 * distance, spread=0.4, parts={"task": task, "distance": distance}, replies=64,
        groups=8, dropped_groups=int(1 + 4 * learned + chance.random()), reply_tokens=22 - 14 * learned,
        cut_replies=int(9 * (1 - learned)), entropy=1.4 - 0.9 * learned + chance.gauss(0, 0.03), kl=0.05 * learned,
        written_s=1.9, judged_s=0.01, best=best[0], worst=worst[-1],
        best_group=JudgedGroup(prompt="What is 35 + 25?", reward=1.21, replies=best),
        worst_group=JudgedGroup(prompt="What is 48 + 87?", reward=0.12, replies=worst),
    )  # fmt: skip


def rewarded(steps=240, *, ended=None):
    """Return the events of a plausible run that learns from rewards."""
    chance, made = random.Random(11), []
    for event in events(steps, ended=ended):
        made.append(event)
        if isinstance(event, StepDone):
            made[-1] = event.model_copy(update={"loss": chance.gauss(0, 0.02)})
            made.append(given(event.step, chance))
    before = TaskScore(metric="number", passed=[n % 9 == 0 for n in range(50)])
    made.insert(7, TaskScored(step=0, score=before, seconds=8))
    if ended:
        after = TaskScore(metric="number", passed=[n % 4 != 1 for n in range(50)])
        made.insert(-1, TaskScored(step=TOTAL, score=after, seconds=3))
    return numbered(made)
