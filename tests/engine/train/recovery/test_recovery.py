"""Runs that lack memory at some moment continue with a smaller plan, and learn what they would have learned."""

import random
from contextlib import ExitStack

import pytest
import torch

from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.recipe.memory_plan import MemoryPlan, parse_save_levels
from burnish_engine.contract.run.events import CommandDone, LayersPlaced, StepDone
from burnish_engine.runs.control import send
from burnish_engine.train.base.stream import BatchStream
from burnish_engine.train.fast import fast_engine
from burnish_engine.train.lifecycle import checkpoint as checkpoints
from burnish_engine.train.plain.plain_engine import PlainEngine
from burnish_engine.train.run import run_training
from burnish_kernels.adamw import op as adamw

from support.memory.scarce import counted, scarce
from support.runs.recovered import ALL_OR_NOTHING, ENGINES, PLACES, assert_like, newest_of, smaller_plans
from support.runs.tiny_runs import WATCHED, evaluations, losses, of_kind, trained

pytestmark = pytest.mark.usefixtures("unplanned")


TOGETHER = [
    ("fast", ("pass", "evaluation", "save")),
    ("fast", ("head", "replies", "moments")),
    ("fast", ("upload", "before the update", "page-locked memory")),
    ("plain", tuple(PLACES["plain"])),
]


@pytest.mark.full
@pytest.mark.parametrize(("engine", "places"), TOGETHER)
def test_whatever_ran_out_of_memory_is_done_again_with_less(made, smaller, monkeypatch, engine, places):
    """After it did its work where that is possible, so that something of it is there already."""
    if engine == "plain":  # it has one smaller plan; here it takes it up again and again
        real = PlainEngine.shrink
        monkeypatch.setattr(PlainEngine, "shrink", lambda self: real(self) or "once more")
    paths = made(engine, extra=WATCHED)
    with ExitStack() as stack:
        for place in places:
            call = 1 if place == "page-locked memory" else 2
            after = place not in ALL_OR_NOTHING
            stack.enter_context(scarce(PLACES[engine][place], calls=[call], after=after))
        assert run_training(paths).exit_code == ExitCode.DONE
    assert_like(paths, engine, smaller, plans=len(places))


@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
def test_a_smaller_plan_that_was_asked_for_changes_no_number(made, smaller, engine):
    paths = made(engine, extra=WATCHED)

    def ask(event):
        if isinstance(event, StepDone) and event.step in (2, 3):
            send(paths, "smaller_plan")

    assert run_training(paths, listener=ask).exit_code == ExitCode.DONE
    plans = {"fast": 2, "plain": 1}[engine]  # the plain engine has one smaller plan
    assert_like(paths, engine, smaller, plans=plans)
    assert [event.accepted for event in of_kind(paths, CommandDone)] == [True, plans == 2]
    assert not any("Memory ran out" in message for message in smaller_plans(paths))
    told = [parse_save_levels(event.activations) for event in of_kind(paths, LayersPlaced)]
    assert [set(levels) for levels in told] == ([{"products"}, {"narrow"}, {"attention"}] if engine == "fast" else [])
    plan = checkpoints.read_position(newest_of(paths)).plan
    assert (
        plan == "recompute" if engine == "plain" else set(MemoryPlan.model_validate_json(plan).layers) == {"attention"}
    )


@pytest.mark.long
@pytest.mark.parametrize("engine", ENGINES)
def test_fifty_times_at_any_moments(made, smaller, engine):
    """Up to three times in a run, in updates too: losses, evaluations and the adapter are always the same."""
    seed = random.SystemRandom().randrange(2**32)
    chance = random.Random(seed)
    updates = {"fast": {"update": (adamw, "step_")}, "plain": {"update": (torch.optim.AdamW, "step")}}[engine]
    places = PLACES[engine] | updates | {"data": (BatchStream, "__getitem__")}
    with counted(places) as counts:
        assert run_training(made(engine, extra=WATCHED)).exit_code == ExitCode.DONE
    fell_back = 0
    for number in range(25):
        paths = made(engine, extra=WATCHED)
        place, after = chance.choice(sorted(places)), chance.random() < 0.5
        calls = [chance.randint(1, counts[place]) for _ in range(3 if engine == "fast" else 1)]
        told = f"seed {seed}, run {number}: {place} {calls} {after}"
        with scarce(places[place], calls=calls, after=after and place not in ALL_OR_NOTHING):
            assert run_training(paths).exit_code == ExitCode.DONE, told
        assert losses(paths) == losses(smaller(engine)), told
        assert evaluations(paths) == evaluations(smaller(engine)), told
        assert trained(paths) == trained(smaller(engine)), told
        fell_back += bool(smaller_plans(paths))
    assert fell_back > 20, f"seed {seed}"


@pytest.mark.full
def test_the_thread_that_reads_the_data(made, smaller):
    paths = made(extra=WATCHED)
    with scarce((BatchStream, "__getitem__"), calls=[6], error=MemoryError):
        assert run_training(paths).exit_code == ExitCode.DONE
    assert_like(paths, "fast", smaller)


@pytest.mark.full
def test_the_first_pass_of_the_plain_engine(made, smaller):
    paths = made("plain", extra=WATCHED)
    with scarce(PLACES["plain"]["pass"], calls=[1]):
        assert run_training(paths).exit_code == ExitCode.DONE
    assert_like(paths, "plain", smaller)
    assert smaller_plans(paths)[0].startswith("Memory ran out in step 1 (")


@pytest.mark.full
def test_again_and_again_goes_from_plan_to_plan(made, smaller):
    """In the first pass twice in a row; in both looks of the guard, which needs no memory that training has not."""
    paths = made(extra=WATCHED)
    with scarce(PLACES["fast"]["pass"], calls=[1, 3, 4, 11]):
        assert run_training(paths).exit_code == ExitCode.DONE
    assert_like(paths, "fast", smaller, plans=4)
    told = [message.removeprefix("Memory ran out in ").partition(" (")[0] for message in smaller_plans(paths)]
    assert told == ["the first look of the guard", "step 1", "step 1", "the guard's look after warmup"]
    assert [message.rpartition("layers keep ")[2].partition(":")[0] for message in smaller_plans(paths)] == [
        "narrow", "attention", "host", "input",
    ]  # fmt: skip
    newest, _ = checkpoints.find_checkpoint(paths.checkpoints)
    assert set(MemoryPlan.model_validate_json(checkpoints.read_position(newest).plan).layers) == {"input"}


@pytest.mark.full
def test_a_plan_that_cannot_be_taken_up_is_passed_over(made, smaller):
    paths = made(extra=WATCHED)
    with scarce(PLACES["fast"]["pass"], calls=[3]), scarce((fast_engine, "FastTrainer"), calls=[2]):
        assert run_training(paths).exit_code == ExitCode.DONE
    assert_like(paths, "fast", smaller)
    assert "layers keep attention" in smaller_plans(paths)[0]


@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
def test_without_a_smaller_plan_the_run_ends_and_what_was_saved_stays(made, smaller, engine):
    paths = made(engine, extra=WATCHED)
    with scarce(PLACES[engine]["pass"], calls=range({"fast": 11, "plain": 9}[engine], 99)):  # the guard looked twice
        outcome = run_training(paths)
    assert (outcome.exit_code, outcome.step) == (ExitCode.DOES_NOT_FIT, 4)
    assert "Out of memory at step 4 with 256 tokens a pass (CUDA out of memory)" in outcome.message
    assert "train.micro_batch_tokens" in outcome.message
    assert "Tried to allocate 20.00 GiB" in paths.stderr_log.read_text()
    assert "in called" in paths.stderr_log.read_text()  # where it came from
    assert len(smaller_plans(paths)) == {"fast": 4, "plain": 1}[engine]
    assert run_training(paths).exit_code == ExitCode.DONE
    assert losses(paths) == pytest.approx(losses(smaller(engine)), rel=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
def test_other_errors_are_not_taken_for_it(made, engine):
    paths = made(engine)
    with (
        scarce(PLACES[engine]["pass"], calls=[3], error=lambda: RuntimeError("shapes do not fit")),
        pytest.raises(RuntimeError, match="shapes"),
    ):
        run_training(paths)
    assert not smaller_plans(paths)
