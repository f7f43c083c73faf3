"""The time to the end of a run: predicted at first, then as measured."""

import pytest

from burnish_engine.contract.facts.advice import RunPlan, TimePart
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_evaluation import EvaluationSection
from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.contract.run.events import (
    CheckpointSaved,
    EvaluationDone,
    GeneralTextDone,
    GuardReported,
    PhaseChanged,
)
from burnish_engine.train.lifecycle.time_left import MEASURED_STEPS, TimeLeft

STEPS = 20


def plan(**seconds):
    """A plan whose parts take these seconds each."""
    times = [TimePart(name=name, count=1, seconds=one) for name, one in seconds.items()]
    return RunPlan(
        device="CPU", memory=[], memory_bytes=1, memory_free_bytes=1, memory_total_bytes=1, disk_bytes=1,
        disk_free_bytes=1, fits=True, trainable_parameters=1, tokens_per_s=1.0, times=times,
    )  # fmt: skip


def left(made, *, every=0, prompts=()):
    evaluation = EvaluationSection(every=every, prompts=list(prompts))
    train = TrainSection(checkpoint_every=0, checkpoint_minutes=0)
    return TimeLeft(Recipe(train=train, evaluation=evaluation), made, STEPS)


def test_measured_steps_take_over_after_five():
    time_left = left(plan(steps=10.0))
    for step in range(1, MEASURED_STEPS):
        assert time_left.after(step, 1.0) == pytest.approx(10.0 * (STEPS - step))
    assert time_left.after(MEASURED_STEPS, 1.0) == pytest.approx(STEPS - MEASURED_STEPS)


def test_without_a_plan_the_first_step_is_the_measure():
    assert left(None).after(1, 2.0) == pytest.approx(2.0 * (STEPS - 1))


def test_each_occasion_counts_with_the_time_that_the_newest_one_took():
    time_left = left(plan(steps=1.0, evaluations=100.0, saves=50.0, checks=7.0, general_text=30.0), every=10)
    assert time_left.after(1, 1.0) == pytest.approx(19 + 2 * 100 + 50 + 3 * 7 + 30)
    time_left.observe(EvaluationDone(step=0, loss=1.0, tokens=1, seconds=4.0))
    time_left.observe(GeneralTextDone(step=0, loss=1.0, tokens=1, seconds=6.0))
    time_left.observe(CheckpointSaved(step=1, path="", seconds=2.0))
    time_left.observe(GuardReported(step=0, when="before", verdict="training", sentence="Fine.", seconds=3.0))
    assert time_left.after(2, 1.0) == pytest.approx(18 + 2 * 4 + 2 + 2 * 3 + 6)
    time_left.observe(GuardReported(step=3, when="after_warmup", verdict="training", sentence="Fine.", seconds=5.0))
    assert time_left.after(11, 1.0) == pytest.approx(9 + 4 + 2 + 5 + 6)


def test_replies_take_what_passes_until_the_next_phase():
    time_left = left(plan(steps=1.0), prompts=["Why?"])
    time_left.observe(PhaseChanged(phase="sampling", t=100.0))
    time_left.observe(PhaseChanged(phase="training", t=130.0))
    time_left.observe(PhaseChanged(phase="saving", t=190.0))
    assert time_left.after(1, 1.0) == pytest.approx(19 + 30)
