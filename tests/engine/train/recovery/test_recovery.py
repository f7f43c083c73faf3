"""Runs that meet a lack of memory at some moment go on with a smaller plan, and learn what they would have learned."""

import random
import weakref
from contextlib import ExitStack

import pytest
import torch

from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.recipe.memory_plan import MemoryPlan, parse_save_levels
from burnish_engine.contract.run.events import (
    CheckpointSaved,
    CommandDone,
    LayersPlaced,
    RunStarted,
    SampleDone,
    StepDone,
    Warned,
)
from burnish_engine.models.decoder.lora_adapter import LoraAdapter
from burnish_engine.runs.control import send
from burnish_engine.runs.store import create_run
from burnish_engine.train import choose_engine, engine_loader, session
from burnish_engine.train.base.stream import BatchStream
from burnish_engine.train.fast import fast_engine
from burnish_engine.train.fast.fast_engine import FastEngine
from burnish_engine.train.fast.fast_trainer import FastTrainer
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep
from burnish_engine.train.lifecycle import checkpoint as checkpoints
from burnish_engine.train.lifecycle import run_setup
from burnish_engine.train.plain import plain_engine
from burnish_engine.train.plain.plain_engine import PlainEngine
from burnish_engine.train.run import run_training
from burnish_kernels.adamw import op as adamw

from support.memory.scarce import counted, scarce
from support.runs.tiny_runs import WATCHED, evaluations, losses, of_kind, tiny_recipe, trained

ENGINES = ["fast", "plain"]
SMALLER = {"fast": "narrow", "plain": "recompute"}
STEPS = 5
PLACES = {
    "fast": {
        "pass": (MicroBatchStep, "_backward"),
        "head": (MicroBatchStep, "_head_chunk"),
        "upload": (FastTrainer, "_pass"),
        "before the update": (FastTrainer, "_update"),
        "evaluation": (fast_engine, "pass_losses"),
        "replies": (fast_engine, "generate_replies"),
        "save": (LoraAdapter, "save"),
        "moments": (FastEngine, "optimizer_tensors"),
        "page-locked memory": (fast_engine, "Prefetcher"),
    },
    "plain": {
        "pass": (plain_engine, "summed_loss"),
        "clipping": (PlainEngine, "_clip"),
        "evaluation": (plain_engine, "held_out_loss"),
        "replies": (plain_engine, "generate_replies"),
        "save": (PlainEngine, "save_adapter"),
        "moments": (PlainEngine, "optimizer_tensors"),
    },
}

ALL_OR_NOTHING = ("before the update", "page-locked memory")  # what comes after them cannot run out of memory


def smaller_plans(paths):
    return [event.message for event in of_kind(paths, Warned) if event.code == "smaller_plan"]


def deeds(paths):
    """What a run did, without its times."""
    steps = [(event.step, event.loss, event.grad_norm, event.tokens, event.epoch) for event in of_kind(paths, StepDone)]
    replies = [(event.step, event.reply) for event in of_kind(paths, SampleDone)]
    saved = [event.step for event in of_kind(paths, CheckpointSaved)]
    return steps, evaluations(paths), replies, saved


@pytest.fixture(autouse=True)
def _unplanned(monkeypatch):
    """Nothing is predicted, so that only the number of steps decides whether there is a dry run."""
    monkeypatch.setattr(run_setup, "check_fit", lambda *_args, **_settings: None)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make a run: (engine, keyword arguments of tiny_recipe) -> its paths. They share one model and its data."""
    folder = tmp_path_factory.mktemp("recovery")
    count = iter(range(999))

    def make(engine="fast", *, layers="auto", extra="", **settings):
        settings = {"max_steps": STEPS, "accumulation": 2, **settings}
        memory = f'\n[memory]\nlayers = "{layers}"\n' if layers != "auto" else ""
        recipe = tiny_recipe(folder, engine=f'"{engine}"', extra=extra + memory, **settings)
        return create_run(recipe, folder / f"run {next(count)}")

    return make


@pytest.fixture(scope="module")
def smaller(made):
    """The run of an engine that began with the smaller plan: its paths."""
    done = {}

    def get(engine):
        if engine not in done:
            begun = {"layers": "narrow"} if engine == "fast" else {"recompute": True}
            done[engine] = made(engine, extra=WATCHED, **begun)
            assert run_training(done[engine]).exit_code == ExitCode.DONE
        return done[engine]

    return get


def assert_like(paths, engine, smaller, plans=1):
    assert deeds(paths) == deeds(smaller(engine))
    assert trained(paths) == trained(smaller(engine))
    assert len(smaller_plans(paths)) == plans


TOGETHER = [
    ("fast", ("pass", "evaluation", "save")),
    ("fast", ("head", "replies", "moments")),
    ("fast", ("upload", "before the update", "page-locked memory")),
    ("plain", tuple(PLACES["plain"])),
]


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


def test_the_thread_that_reads_the_data(made, smaller):
    paths = made(extra=WATCHED)
    with scarce((BatchStream, "__getitem__"), calls=[6], error=MemoryError):
        assert run_training(paths).exit_code == ExitCode.DONE
    assert_like(paths, "fast", smaller)


def test_the_first_pass_of_the_plain_engine(made, smaller):
    paths = made("plain", extra=WATCHED)
    with scarce(PLACES["plain"]["pass"], calls=[1]):
        assert run_training(paths).exit_code == ExitCode.DONE
    assert_like(paths, "plain", smaller)
    assert smaller_plans(paths)[0].startswith("Memory ran out in step 1 (")


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


def test_a_plan_that_cannot_be_taken_up_is_passed_over(made, smaller):
    paths = made(extra=WATCHED)
    with scarce(PLACES["fast"]["pass"], calls=[3]), scarce((fast_engine, "FastTrainer"), calls=[2]):
        assert run_training(paths).exit_code == ExitCode.DONE
    assert_like(paths, "fast", smaller)
    assert "layers keep attention" in smaller_plans(paths)[0]


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


@pytest.mark.parametrize("engine", ENGINES)
def test_other_errors_are_not_taken_for_it(made, engine):
    paths = made(engine)
    with (
        scarce(PLACES[engine]["pass"], calls=[3], error=lambda: RuntimeError("shapes do not fit")),
        pytest.raises(RuntimeError, match="shapes"),
    ):
        run_training(paths)
    assert not smaller_plans(paths)


@pytest.mark.parametrize(
    ("engine", "place", "call"),
    [
        ("fast", (adamw, "step_"), 5),
        ("fast", (adamw, "prepare"), 1),
        ("plain", (torch.optim.AdamW, "step"), 5),
    ],
)
def test_half_an_update_goes_back_to_the_newest_checkpoint(made, smaller, monkeypatch, engine, place, call):
    """What it changed cannot be told from what it did not. The first model is gone before it is loaded again."""
    paths = made(engine, extra=WATCHED)
    loaded, still = [], []
    real = engine_loader.make_engine

    def making(*args, **settings):
        still.extend(engine() for engine in loaded)
        found = real(*args, **settings)
        loaded.append(weakref.ref(found))
        return found

    monkeypatch.setattr(engine_loader, "make_engine", making)
    with scarce(place, calls=[call], after=True):
        assert run_training(paths).exit_code == ExitCode.DONE
    assert still == [None]
    back = {1: 0, 5: 3}[call]
    assert [event.step for event in of_kind(paths, StepDone)] == [*range(1, call), *range(back + 1, STEPS + 1)]
    assert [event.resumed_from_step for event in of_kind(paths, RunStarted)] == [None, back or None]
    assert losses(paths) == losses(smaller(engine))
    assert evaluations(paths) == evaluations(smaller(engine))
    assert trained(paths) == trained(smaller(engine))
    assert len(smaller_plans(paths)) == 1


def test_a_model_that_cannot_be_loaded_again_ends_the_run(made):
    paths = made()
    with scarce((adamw, "step_"), calls=[5]), scarce((choose_engine, "FastEngine"), calls=[2, 3]):
        outcome = run_training(paths)
    assert outcome.exit_code == ExitCode.DOES_NOT_FIT
    assert "CUDA out of memory" in outcome.message
    assert [event.step for event in of_kind(paths, CheckpointSaved)] == [3]


@pytest.mark.parametrize("engine", ENGINES)
def test_loading_is_tried_once_more_with_the_smallest_plan(made, engine):
    owner = {"fast": "FastEngine", "plain": "PlainEngine"}[engine]
    paths = made(engine, max_steps=1)
    with scarce((choose_engine, owner), calls=[1]):
        assert run_training(paths).exit_code == ExitCode.DONE
    assert "loaded again with the smallest plan" in smaller_plans(paths)[0]
    newest, _ = checkpoints.find_checkpoint(paths.checkpoints)
    plan = checkpoints.read_position(newest).plan
    assert plan == "recompute" if engine == "plain" else set(MemoryPlan.model_validate_json(plan).layers) == {"input"}
    lost = made(engine)
    with scarce((choose_engine, owner), calls=[1, 2]):
        assert run_training(lost).exit_code == ExitCode.DOES_NOT_FIT


def test_graphs_that_there_is_no_memory_for_are_no_reason_to_go_on_without(made, smaller):
    paths = made(extra=WATCHED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FastTrainer, "_wants_graphs", property(lambda _: True, lambda *_: None), raising=False)
        patch.setattr(FastTrainer, "_capture", lambda *_, **_kind: None)
        with scarce((FastTrainer, "_capture"), calls=[2]):
            assert run_training(paths).exit_code == ExitCode.DONE
    assert_like(paths, "fast", smaller)


@pytest.mark.parametrize("said", ["CUDA out of memory", "operation not permitted when stream is capturing"])
def test_a_capture_tells_a_lack_of_memory_from_what_cannot_be_captured(monkeypatch, said):
    """Whatever ends a capture after an error raises one of its own."""

    class Program:
        def capture(self, *_, **_kind):
            try:
                raise (torch.OutOfMemoryError if "memory" in said else RuntimeError)(said)
            finally:
                raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    trainer = object.__new__(FastTrainer)
    trainer._pool, trainer.stream, trainer.problem = None, object(), ""
    if "memory" in said:
        with pytest.raises(RuntimeError):
            trainer._capture(Program())
        return
    trainer._capture(Program())
    assert "training goes on without them" in trainer.problem


@pytest.mark.parametrize("engine", ENGINES)
def test_a_resumed_run_begins_with_the_plan_that_it_fell_back_to(made, smaller, engine, monkeypatch):
    paths = made(engine, extra=WATCHED)

    def stop(event):
        if isinstance(event, StepDone) and event.step == 4:
            send(paths, "stop")

    with scarce(PLACES[engine]["pass"], calls=[4]):
        assert run_training(paths, listener=stop).exit_code == ExitCode.STOPPED
    taken_up = []
    real = choose_engine.make_engine

    def making(*args, **settings):
        made_engine = real(*args, **settings)
        taken_up.append(made_engine.memory_plan)
        return made_engine

    monkeypatch.setattr(engine_loader, "make_engine", making)
    assert run_training(paths).exit_code == ExitCode.DONE
    assert SMALLER[engine] in taken_up[0]
    assert losses(paths) == losses(smaller(engine))
    assert trained(paths) == trained(smaller(engine))
    assert len(smaller_plans(paths)) == 1


@pytest.mark.parametrize("tries", [False, True], ids=["training", "dry run"])
def test_where_nothing_smaller_is_left_but_by_loading_it_is_loaded_again(made, smaller, monkeypatch, tries):
    """In the middle of a run, with its moments; here to the plan that it is compared with."""
    narrow = MemoryPlan.model_validate_json(checkpoints.read_position(newest_of(smaller("fast"))).plan)
    monkeypatch.setattr(FastEngine, "shrink", lambda _: "")
    monkeypatch.setattr(
        FastEngine, "loading_plan", property(lambda self: "" if self.plan == narrow else narrow.model_dump_json())
    )
    monkeypatch.setattr(session, "is_worthwhile", lambda *_: tries)
    paths = made(extra=WATCHED)
    with scarce(PLACES["fast"]["pass"], calls=[3 if tries else 8]):
        assert run_training(paths).exit_code == ExitCode.DONE
    assert_like(paths, "fast", smaller)
    assert "loaded again" in smaller_plans(paths)[0]
    assert MemoryPlan.model_validate_json(checkpoints.read_position(newest_of(paths)).plan) == narrow
    assert len(of_kind(paths, RunStarted)) == 1


def test_where_that_cannot_be_loaded_either_the_run_ends(made, monkeypatch):
    monkeypatch.setattr(FastEngine, "shrink", lambda _: "")
    monkeypatch.setattr(FastEngine, "loading_plan", property(lambda self: self.memory_plan))
    paths = made(extra=WATCHED)
    with scarce(PLACES["fast"]["pass"], calls=[8]), scarce((choose_engine, "FastEngine"), calls=[2]):
        outcome = run_training(paths)
    assert (outcome.exit_code, outcome.step) == (ExitCode.DOES_NOT_FIT, 3)
    assert "CUDA out of memory" in outcome.message


def test_half_an_update_goes_back_although_no_plan_could_be_taken_up(made, smaller, monkeypatch):
    """Then the engine has nothing left that trains, until it is loaded again."""
    narrow = MemoryPlan.model_validate_json(checkpoints.read_position(newest_of(smaller("fast"))).plan)
    monkeypatch.setattr(FastEngine, "loading_plan", property(lambda _: narrow.model_dump_json()))
    paths = made(extra=WATCHED)
    with scarce((adamw, "step_"), calls=[5]), scarce((fast_engine, "FastTrainer"), calls=range(2, 6)):
        assert run_training(paths).exit_code == ExitCode.DONE
    assert [event.resumed_from_step for event in of_kind(paths, RunStarted)] == [None, 3]
    assert losses(paths) == losses(smaller("fast"))
    assert trained(paths) == trained(smaller("fast"))


def newest_of(paths):
    return checkpoints.find_checkpoint(paths.checkpoints)[0]
