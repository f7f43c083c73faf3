"""How long a run still takes, from its events as the engine writes them."""

import random

import pytest

from burnish_app.state.time_left import NOTABLY, run_seconds, run_time_left, slowdown
from burnish_engine.contract.facts.advice import RunPlan, TimePart
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_evaluation import EvaluationSection
from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.contract.run.events import (
    CheckpointSaved,
    EvaluationDone,
    GuardReported,
    PhaseChanged,
    PhaseProgress,
    PlanMade,
    RunEnded,
    RunStarted,
    StepDone,
)
from burnish_engine.contract.run.fold import RunState, fold
from burnish_engine.train.lifecycle.time_left import TimeLeft as EngineClock

STEPS, STEP_S, EVERY = 40, 2.0, 10
TOKENS = 1000
BEGAN = 1_000_000.0
TIMES = {"steps": (STEPS, STEP_S), "checks": (3, 5.0), "evaluations": (5, 8.0), "prompts": (5, 6.0), "saves": (1, 1.0)}


def planned():
    times = [TimePart(name=name, count=count, seconds=count * each) for name, (count, each) in TIMES.items()]
    return RunPlan(
        device="CPU", memory=[], memory_bytes=1, memory_free_bytes=1, memory_total_bytes=1, disk_bytes=1,
        disk_free_bytes=1, fits=True, trainable_parameters=1, tokens_per_s=TOKENS / STEP_S, times=times,
    )  # fmt: skip


class Machine:
    """Makes a run as the engine does, so many times slower than predicted; every piece of work takes a bit else.

    Attributes:
        looks: (time, state) at each half second, as a window looks.
    """

    def __init__(self, load, *, slow_from=0, seed=0):
        self._load, self._slow_from, self._draw = load, slow_from, random.Random(seed)
        self._plan = planned()
        evaluation = EvaluationSection(every=EVERY, prompts=["Why?"])
        recipe = Recipe(train=TrainSection(checkpoint_every=0, checkpoint_minutes=0), evaluation=evaluation)
        self._clock = EngineClock(recipe, self._plan, STEPS)
        self.now, self.state, self.looks = BEGAN, RunState(), []

    def emit(self, event):
        event = event.model_copy(update={"t": self.now, "seq": self.state.seq + 1})
        self.state = fold(self.state, event)
        self._clock.observe(event)

    def work(self, seconds, counted=0):
        """Work for a time, and say how far it is where so many pieces are counted."""
        factor = self._load if len(self.state.steps) >= self._slow_from else 1
        took = seconds * factor * self._draw.uniform(0.8, 1.2)
        end, told = self.now + took, 0
        while self.now + 0.5 < end:
            self.now += 0.5
            done = int(counted * (1 - (end - self.now) / took))
            if done > told:
                told = done
                self.emit(PhaseProgress(done=done, total=counted))
            self.looks.append((self.now, self.state))
        self.now = end
        return took

    def _evaluate(self, step):
        self.emit(PhaseChanged(phase="evaluating"))
        self.emit(EvaluationDone(step=step, loss=1.0, tokens=1, seconds=self.work(8.0, counted=40)))
        self.emit(PhaseChanged(phase="sampling"))
        self.work(6.0)

    def run(self):
        self.emit(PhaseChanged(phase="loading"))
        self.emit(
            PlanMade(
                memory_bytes=1, memory_free_bytes=1, tokens_per_s=self._plan.tokens_per_s, seconds=STEPS * STEP_S,
                total_seconds=self._plan.total_seconds, times=self._plan.times, fits=True,
            )
        )  # fmt: skip
        self.emit(
            RunStarted(run="x", pid=1, process_created=1.0, device="CPU", precision="", engine="", total_steps=STEPS)
        )
        self.emit(PhaseChanged(phase="checking"))
        seconds = self.work(5.0, counted=9)
        self.emit(GuardReported(step=0, when="before", verdict="training", sentence="Fine.", seconds=seconds))
        self._evaluate(0)
        self.emit(PhaseChanged(phase="training"))
        for step in range(1, STEPS + 1):
            self._step(step)
        self.emit(PhaseChanged(phase="saving"))
        self.emit(CheckpointSaved(step=STEPS, path="", seconds=self.work(1.0)))
        self.work(5.0)
        self.emit(RunEnded(outcome="finished", exit_code=0, step=STEPS, seconds=self.now - BEGAN))
        return self

    def _step(self, step):
        took = self.work(STEP_S)
        self.emit(
            StepDone(
                step=step, epoch=0, loss=1.0, learning_rate=0, grad_norm=1, tokens=TOKENS, supervised_tokens=TOKENS,
                tokens_per_s=TOKENS / took, supervised_tokens_per_s=TOKENS / took, step_s=took, memory_bytes=0,
                cpu_share=0.95 / self._load, eta_s=self._clock.after(step, took),
            )
        )  # fmt: skip
        if step == 3:
            seconds = self.work(5.0)
            self.emit(GuardReported(step=3, when="after_warmup", verdict="training", sentence="Fine.", seconds=seconds))
        if step % EVERY == 0:
            self._evaluate(step)
            self.emit(PhaseChanged(phase="training"))


@pytest.mark.parametrize("load", [1, 8, 16])
@pytest.mark.parametrize("part", [0.25, 0.5, 0.75])
def test_at_a_steady_load_the_time_left_is_within_a_third(load, part):
    made = Machine(load, seed=load).run()
    whole = made.now - BEGAN
    now, state = next((now, state) for now, state in made.looks if now - BEGAN >= part * whole)
    assert run_time_left(state, now).middle_s == pytest.approx(made.now - now, rel=0.3)


@pytest.mark.parametrize("load", [1, 8, 16])
def test_it_is_never_empty_and_rises_by_more_than_half_only_with_a_reason(load):
    for made in (Machine(load, seed=3).run(), Machine(load, slow_from=15, seed=4).run()):
        told = None
        for now, state in made.looks:
            left = run_time_left(state, now)
            assert left.low_s >= 1.0
            if told is not None and len(state.steps) > 1:
                assert left.middle_s <= NOTABLY * told or left.slower >= NOTABLY
            told = left.middle_s


def test_before_the_first_step_finished_stages_tell_how_busy_the_machine_is():
    for load in (1, 8, 16):
        made = Machine(load, seed=5).run()
        begun = [(now, state) for now, state in made.looks if not len(state.steps) and state.phase == "training"]
        now, state = begun[0]
        assert run_time_left(state, now).middle_s == pytest.approx(made.now - now, rel=0.3)
        left = run_time_left(state, now)
        assert left.high_s > left.low_s


def test_a_processor_that_others_use_is_the_reason_for_slow_steps():
    slow, alone = Machine(8, seed=1).run(), Machine(1, seed=1).run()
    now, state = slow.looks[-1]
    assert slowdown(state) == pytest.approx(8, rel=0.2)
    assert run_time_left(state, now).is_crowded
    now, state = alone.looks[-1]
    assert slowdown(state) == 1.0
    assert not run_time_left(state, now).is_crowded


def test_time_that_passes_without_a_step_empties_nothing():
    now, state = next((now, state) for now, state in Machine(1).run().looks if len(state.steps) == 15)
    assert run_time_left(state, now + 3600).middle_s > 0.8 * run_time_left(state, now).middle_s
    assert run_seconds(state, now + 3600) == now + 3600 - BEGAN


def test_without_a_plan_and_a_step_nothing_is_told():
    assert run_time_left(RunState(), BEGAN) is None
    assert run_seconds(RunState(), BEGAN) is None
