"""A run from start to end in this process: what it writes, how it is commanded, how it fails."""

import gc
import hashlib
import json
import math
import os
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from burnish_engine.advise.plan import plan
from burnish_engine.contract.errors import DataError, ExitCode, UsageError
from burnish_engine.contract.garbage import collect_seldom
from burnish_engine.contract.recipe.recipe_file import dump_recipe
from burnish_engine.contract.run.events import (
    CheckpointSaved,
    CommandDone,
    DataReady,
    EvaluationDone,
    GuardReported,
    PhaseChanged,
    PhaseProgress,
    PlanMade,
    RunEnded,
    RunStarted,
    SampleDone,
    StepDone,
    Warned,
)
from burnish_engine.contract.run.hardware_log import read_history
from burnish_engine.data.prepare import prepare
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.checkpoint.tokenizer import load_tokenizer
from burnish_engine.runs import recorder
from burnish_engine.runs.card import read_card
from burnish_engine.runs.control import send
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.held_out import load_held_out
from burnish_engine.runs.jobs import lease
from burnish_engine.runs.store import create_run, read_recipe, read_state, summarize
from burnish_engine.train import run as train_run
from burnish_engine.train.base.schedule import learning_rate
from burnish_engine.train.fast import fast_engine
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep
from burnish_engine.train.guard.fast_probe import FastProbe
from burnish_engine.train.guard.plain_probe import PlainProbe
from burnish_engine.train.lifecycle import progress, run_setup
from burnish_engine.train.plain.plain_engine import PlainEngine
from burnish_engine.train.recovery import checkpoint_writer
from burnish_engine.train.recovery.checkpoint_writer import CheckpointWriter
from burnish_engine.train.run import run_training

from support.runs import evaluations, losses, of_kind, tiny_recipe
from support.tiny import conversations

ENGINES = [pytest.param('"fast"', id="fast"), pytest.param('"plain"', id="plain")]


def commanding(paths, at_step, *names):
    """A listener that sends commands after a step, as a client would."""

    def listen(event):
        if isinstance(event, StepDone) and event.step == at_step:
            for name in names:
                send(paths, name)

    return listen


@pytest.fixture
def made(tmp_path):
    """Make a run: (changes of the adapter section, keyword arguments of tiny_recipe) -> its paths."""
    count = iter(range(99))

    def make(adapter=None, **settings):
        recipe = tiny_recipe(tmp_path, **settings)
        recipe = recipe.model_copy(update={"adapter": recipe.adapter.model_copy(update=adapter or {})})
        return create_run(recipe, tmp_path / f"run {next(count)} ü")

    return make


def test_a_whole_run_tells_everything(made):
    paths = made(extra='[evaluation]\nevery = 4\nprompts = ["My lamp is broken?"]\nsample_tokens = 5\n', max_steps=10)
    outcome = run_training(paths)
    assert (outcome.exit_code, outcome.step) == (ExitCode.DONE, 10)
    events = list(read_events(paths.events))
    assert [event.seq for event in events] == list(range(len(events)))
    started = of_kind(paths, RunStarted)[0]
    assert (started.total_steps, started.engine, started.resumed_from_step) == (10, "fast", None)
    steps = of_kind(paths, StepDone)
    assert [event.step for event in steps] == list(range(1, 11))
    for event in steps:
        assert math.isfinite(event.loss)
        assert event.grad_norm > 0
        assert 0 < event.supervised_tokens < event.tokens <= 256
        assert event.tokens_per_s == pytest.approx(event.tokens / event.step_s)
        assert event.supervised_tokens_per_s == pytest.approx(event.supervised_tokens / event.step_s)
        assert event.memory_bytes > 1_000_000
    assert 0 < steps[-1].eta_s < steps[0].eta_s, "an evaluation and the last save follow"
    section = tiny_recipe(paths.root.parent, max_steps=10).train
    assert [event.learning_rate for event in steps] == [learning_rate(section, step, 10) for step in range(1, 11)]
    assert [event.step for event in of_kind(paths, EvaluationDone)] == [0, 4, 8, 10]
    assert evaluations(paths)[10] < evaluations(paths)[0]
    recipe = read_recipe(paths)
    held_out = prepare(recipe, load_tokenizer(open_model(recipe.model.path))).validation
    learned = sum(document.supervised_tokens for document in held_out)
    assert {event.tokens for event in of_kind(paths, EvaluationDone)} == {learned}
    assert {event.prompt for event in of_kind(paths, SampleDone)} == {"My lamp is broken?"}
    assert [event.step for event in of_kind(paths, CheckpointSaved)] == [3, 6, 9, 10]
    data = of_kind(paths, DataReady)[0]
    assert (data.train_rows, data.validation_rows, data.dropped_rows) == (40, 8, 0)
    assert 0.5 < data.fill <= 1
    assert isinstance(events[-1], RunEnded)
    ids, chats = load_held_out(paths)
    assert len(ids) == 8
    assert chats[0] == conversations(1, offset=1000)[0]["messages"][:1]
    state = read_state(paths)
    assert (state.status, state.exit_code, state.step, state.pid) == ("finished", 0, 10, None)
    assert state.loss == steps[-1].loss
    assert (paths.adapter / "adapter_model.safetensors").is_file()
    recording = read_history(paths.hardware)
    assert recording.start.pid == os.getpid()
    assert recording.last.process_bytes > 0
    assert lease.holder_of("cpu") is None


def test_a_terminal_that_goes_away_does_not_take_the_run_along(made):
    paths = made(max_steps=3)

    def closed(_event):
        raise SystemExit(1)

    assert run_training(paths, listener=closed).exit_code == ExitCode.DONE


@pytest.mark.parametrize("engine", ENGINES)
def test_accumulation_does_not_change_the_loss(made, engine):
    """One pass of 512 tokens or two passes over the same rows: the mean over supervised tokens is the same."""
    same = {"adapter": {"dropout": 0.0}, "engine": engine, "max_steps": 1, "rows": 12, "epochs": 1.0}
    first = made(micro_batch_tokens=100000, **same)
    second = made(micro_batch_tokens=160, accumulation=50, **same)
    for paths in (first, second):
        assert run_training(paths).exit_code == 0
    one, many = (of_kind(paths, StepDone)[0] for paths in (first, second))
    assert one.tokens == many.tokens
    assert one.loss == pytest.approx(many.loss, rel=1e-5)
    assert one.grad_norm == pytest.approx(many.grad_norm, rel=1e-4)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_seed_gives_the_same_bits_and_another_does_not(made, engine):
    runs = [made(max_steps=3, checkpoint_every=0, engine=engine, seed=seed) for seed in (0, 0, 1)]
    for paths in runs:
        run_training(paths)
    assert losses(runs[0]) == losses(runs[1])
    assert losses(runs[0]) != losses(runs[2])


@pytest.mark.parametrize("engine", ENGINES)
def test_every_step_draws_its_own_dropout(made, engine):
    """Nothing is learned and every step has the same rows, so that gradients differ by the masks alone."""
    same = {"learning_rate": 1e-12, "rows": 4, "epochs": 4.0, "micro_batch_tokens": 1024, "engine": engine}
    dropping, fixed = made(**same), made({"dropout": 0.0}, **same)
    for paths in (dropping, fixed):
        assert run_training(paths).exit_code == ExitCode.DONE
    drawn, still = ([event.grad_norm for event in of_kind(paths, StepDone)] for paths in (dropping, fixed))
    assert len(still) == len(drawn) == 4
    assert still == pytest.approx([still[0]] * 4, rel=1e-4)
    closest = min(abs(one - other) for index, one in enumerate(drawn) for other in drawn[:index])
    assert closest > 1e-3 * still[0]


def test_limits_on_tokens_steps_and_epochs(made):
    by_tokens = made(max_tokens=1000, epochs=50.0)
    run_training(by_tokens)
    used = sum(event.tokens for event in of_kind(by_tokens, StepDone))
    assert 1000 - 256 < used <= 1000
    half = made(epochs=0.5, extra="[evaluation]\nmax_rows = 3\n")
    run_training(half)
    few, all_rows = ({event.tokens for event in of_kind(paths, EvaluationDone)} for paths in (half, by_tokens))
    assert len(few) == len(all_rows) == 1
    assert min(few) < 0.6 * min(all_rows)
    assert of_kind(half, StepDone)[-1].epoch == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(
    ("name", "status", "engine"), [("stop", "stopped", '"fast"'), ("suspend", "suspended", '"plain"')]
)
def test_an_ended_run_goes_on_with_the_uninterrupted_losses(made, name, status, engine):
    """Bit for bit, under dropout, with the engine that began it."""
    settings = {"max_steps": 8, "epochs": 9.0, "accumulation": 2, "engine": engine}
    whole, cut = made(**settings), made(**settings)
    run_training(whole)
    outcome = run_training(cut, listener=commanding(cut, 5, name))
    assert (outcome.exit_code, outcome.step) == (ExitCode.STOPPED, 5)
    assert outcome.message.startswith(f"{status.capitalize()} as asked")
    assert "step 5 is saved" in outcome.message
    assert summarize(cut).status == status
    assert (cut.adapter / "adapter_model.safetensors").is_file()
    assert run_training(cut).exit_code == ExitCode.DONE
    assert [event.resumed_from_step for event in of_kind(cut, RunStarted)] == [None, 5]
    assert {f'"{event.engine}"' for event in of_kind(cut, RunStarted)} == {engine}
    assert losses(cut) == losses(whole)
    assert (
        read_card(cut).result.tokens
        == read_card(whole).result.tokens
        == sum(one.tokens for one in of_kind(whole, StepDone))
    )


def test_stop_now_saves_nothing_new(made):
    paths = made(max_steps=7)
    outcome = run_training(paths, listener=commanding(paths, 5, "stop_now"))
    assert "the last checkpoint (step 3) is kept" in outcome.message
    assert [event.step for event in of_kind(paths, CheckpointSaved)] == [3]
    assert not paths.adapter.exists()
    assert run_training(paths).exit_code == ExitCode.DONE
    assert [event.step for event in of_kind(paths, StepDone)] == [1, 2, 3, 4, 5, 4, 5, 6, 7]


def test_stop_now_before_the_first_checkpoint_says_that_nothing_is_kept(made):
    paths = made(max_steps=12)
    outcome = run_training(paths, listener=commanding(paths, 2, "stop_now"))
    assert "nothing is kept" in outcome.message


def test_commands_are_acknowledged_and_carried_out(made):
    paths = made(max_steps=6, checkpoint_every=0, extra='[evaluation]\nprompts = ["My bike?"]\nsample_tokens = 3\n')
    run_training(paths, listener=commanding(paths, 2, "checkpoint", "sample", "resume"))
    answers = of_kind(paths, CommandDone)
    assert [(event.name, event.accepted) for event in answers] == [
        ("checkpoint", True), ("sample", True), ("resume", False),
    ]  # fmt: skip
    assert [event.step for event in of_kind(paths, CheckpointSaved)] == [2, 6]
    assert [event.step for event in of_kind(paths, SampleDone)] == [0, 2, 6]


def test_pause_holds_until_resume_and_changes_nothing(made):
    whole, paused = (made(max_steps=4, checkpoint_every=0) for _ in range(2))
    run_training(whole)
    seen = []

    def go_on():
        seen.append(len(losses(paused)))
        send(paused, "resume")

    def listen(event):
        if isinstance(event, StepDone) and event.step == 3:
            send(paused, "pause")
        if isinstance(event, PhaseChanged) and event.phase == "paused":
            seen.append(read_state(paused).status)
            threading.Timer(0.5, go_on).start()  # all steps take less

    assert run_training(paused, listener=listen).exit_code == ExitCode.DONE
    assert seen == ["paused", 3]
    assert [event.step for event in of_kind(paused, CheckpointSaved)] == [3, 4]
    held = [event.phase for event in of_kind(paused, PhaseChanged)].index("paused")
    assert of_kind(paused, CheckpointSaved)[0].seq < of_kind(paused, PhaseChanged)[held].seq, "saved before it holds"
    assert [(event.name, event.accepted) for event in of_kind(paused, CommandDone)] == [
        ("pause", True),
        ("resume", True),
    ]
    assert losses(paused) == losses(whole)


def test_sampling_and_evaluating_do_not_change_training(made):
    quiet = made(max_steps=6)
    watched = made(
        max_steps=6, extra='[evaluation]\nevery = 1\nprompts = ["My lamp?", "My bike?"]\nsample_tokens = 8\n'
    )
    for paths in (quiet, watched):
        run_training(paths)
    assert losses(quiet) == losses(watched)


@pytest.mark.parametrize("engine", ENGINES)
def test_recomputing_activations_gives_the_same_losses(made, engine):
    kept, recomputed = (made(max_steps=3, engine=engine, recompute=recompute) for recompute in (False, True))
    for paths in (kept, recomputed):
        assert run_training(paths).exit_code == ExitCode.DONE
    assert losses(kept) == pytest.approx(losses(recomputed), rel=1e-6)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_16_bits_train(made, precision):
    paths = made(max_steps=10, precision=f'"{precision}"')
    assert run_training(paths).exit_code == ExitCode.DONE
    values = losses(paths)
    assert values[10] < values[1]
    assert of_kind(paths, RunStarted)[0].precision == precision


def test_a_model_that_only_the_plain_engine_knows_is_trained_by_it_and_says_why(made):
    paths = made(max_steps=2, adapter={"method": "dora", "dropout": 0.1})
    assert run_training(paths).exit_code == ExitCode.DONE
    assert of_kind(paths, RunStarted)[0].engine == "plain"
    (why,) = [event.message for event in of_kind(paths, Warned) if event.code == "engine"]
    assert "DoRA with dropout" in why


def test_fast_for_what_it_does_not_do_is_refused(made):
    paths = made(max_steps=2, adapter={"method": "dora", "dropout": 0.1}, engine='"fast"')
    outcome = run_training(paths)
    assert outcome.exit_code == UsageError.exit_code
    assert outcome.message.startswith("The fast engine does not do DoRA")
    assert not of_kind(paths, StepDone)


def test_an_automatic_run_stays_with_what_was_chosen_when_it_began(made):
    """Also where the other engine could train it by now, in another precision, with more threads, packed."""
    paths = made(max_steps=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("burnish_engine.train.choose_engine.why_not", lambda *_: "Triton is not installed")
        patch.setattr(run_setup, "choose_precision", lambda *_: "bf16")
        patch.setattr(run_setup, "choose_threads", lambda *_: 2)
        patch.setattr("burnish_engine.train.plain.plain_engine.choose_layout", lambda *_: ("padded", ""))
        run_training(paths, listener=commanding(paths, 3, "stop"))
    assert run_training(paths).exit_code == ExitCode.DONE
    assert [(event.engine, event.precision, event.resumed_from_step) for event in of_kind(paths, RunStarted)] == [
        ("plain", "bf16", None), ("plain", "bf16", 3),
    ]  # fmt: skip
    kept = [json.loads(state.read_text()) for state in sorted(paths.checkpoints.glob("*/state.json"))]
    assert [(state["step"], state["threads"], state["layout"]) for state in kept] == [
        (3, 2, "padded"),
        (4, 2, "padded"),
    ]
    (why,) = [event.message for event in of_kind(paths, Warned) if event.code == "engine"]
    assert why.startswith("Triton is not installed")


def test_a_run_of_an_older_data_order_goes_on_in_it(made, monkeypatch):
    settings = {"max_steps": 8, "rows": 16, "epochs": 9.0, "checkpoint_every": 0}
    whole, resumed, newer = made(**settings), made(**settings), made(**settings)
    run_training(newer)
    with monkeypatch.context() as older:
        older.setattr(run_setup, "DATA_ORDER", 1)
        run_training(whole)
        run_training(resumed, listener=commanding(resumed, 3, "stop"))
    [state] = resumed.checkpoints.glob("*/state.json")
    written = json.loads(state.read_text())
    del written["data_order"]  # as it was before there were two
    state.write_text(json.dumps(written))
    marker = state.with_name("COMPLETE")
    hashes = json.loads(marker.read_text())
    marker.write_text(json.dumps({**hashes, "state.json": hashlib.sha256(state.read_bytes()).hexdigest()}))
    run_training(resumed)
    assert losses(resumed) == losses(whole) != losses(newer)


def test_changed_data_or_recipe_is_not_resumed(made, tmp_path):
    paths = made(max_steps=8)
    run_training(paths, listener=commanding(paths, 4, "stop"))
    data = tmp_path / "train.jsonl"
    original = data.read_text()
    data.write_text(original.replace("lamp", "lump"))
    outcome = run_training(paths)
    assert outcome.exit_code == ExitCode.USAGE
    assert "data is not what this run was started with" in outcome.message
    data.write_text(original)
    recipe = tiny_recipe(tmp_path, max_steps=9)
    paths.recipe.write_text(dump_recipe(recipe), encoding="utf-8")
    assert "recipe" in run_training(paths).message


@contextmanager
def spoiled(engine, action):
    """Inside, `action` is done after every forward pass of training; a number it returns becomes the gradient's."""

    def after(optimizer_gradient):
        value = action()
        if value is not None:
            optimizer_gradient.fill_(value)

    backward, clip = MicroBatchStep._backward, PlainEngine._clip

    def fast(program):
        backward(program)
        after(program._model.optimizer.grad)

    def plain(self, max_norm):
        for _, value in self._parameters:
            after(value.grad)
        return clip(self, max_norm)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MicroBatchStep, "_backward", fast)
        patch.setattr(PlainEngine, "_clip", plain)
        yield


@pytest.mark.parametrize(("engine", "probe"), [('"fast"', FastProbe), ('"plain"', PlainProbe)])
def test_the_checks_before_training_are_counted_and_compute_no_pass_twice(made, engine, probe, monkeypatch):
    passes, real = [], probe.logits

    def logits(self, batch, rows):
        passes.append(tuple(batch.input_ids))
        return real(self, batch, rows)

    monkeypatch.setattr(probe, "logits", logits)
    paths = made(max_steps=1, engine=engine)
    before = []

    def listen(event):
        if isinstance(event, GuardReported) and event.when == "before":
            before.extend(passes)

    assert run_training(paths, listener=listen).exit_code == ExitCode.DONE
    assert len(before) > 3
    assert len(set(before)) == len(before)
    told = [event for event in of_kind(paths, PhaseProgress) if event.unit == "checks"]
    assert [event.done for event in told] == sorted({event.done for event in told}), "it only goes forward"
    assert {event.total for event in told} == {max(event.done for event in told) + 1}, "the last one is the last"
    assert {"labels", "leak", "not_finite"} & {event.what for event in told}
    report = next(event for event in of_kind(paths, GuardReported) if event.when == "before")
    assert set(report.passed) | {"base_changed"} >= {event.what for event in told}


def test_the_layers_are_counted_while_the_model_is_loaded(made, monkeypatch):
    monkeypatch.setattr(recorder, "PROGRESS_S", 0.0)
    paths = made(max_steps=1, engine='"fast"')
    run_training(paths)
    layers = [(event.done, event.total) for event in of_kind(paths, PhaseProgress) if event.unit == "layers"]
    assert layers == [(number, layers[-1][1]) for number in range(1, layers[-1][1] + 1)]
    assert len(layers) > 1


def test_the_time_left_counts_what_comes_beside_steps(made):
    paths = made(max_steps=7, extra="[evaluation]\nevery = 1\n")
    run_training(paths)
    steps, plan = of_kind(paths, StepDone), of_kind(paths, PlanMade)[0]
    assert plan.total_seconds > plan.seconds > 0
    measured = sum(step.step_s for step in steps[:5]) / 5
    assert steps[4].eta_s > measured * 2, "two more steps, and three more evaluations"
    assert 0 < steps[-1].eta_s < steps[4].eta_s


@pytest.mark.parametrize("engine", ENGINES)
def test_long_phases_say_how_many_rows_are_done(made, engine, monkeypatch):
    monkeypatch.setattr(recorder, "PROGRESS_S", 0.0)
    paths = made(max_steps=1, engine=engine, micro_batch_tokens=128)
    assert run_training(paths).exit_code == ExitCode.DONE
    phase, told = "", {}
    for event in read_events(paths.events):
        phase = event.phase if isinstance(event, PhaseChanged) else phase
        if isinstance(event, PhaseProgress):
            told.setdefault(phase, []).append((event.done, event.total))
    assert told["preparing"][0][0] > 0
    evaluated = told["evaluating"]
    assert len(evaluated) > 2, "pass by pass"
    assert evaluated[-1] == (8, 8), "the held-out rows"
    assert all(0 < done <= total == 8 for done, total in evaluated)


@pytest.mark.parametrize(("minutes", "saved"), [(0.0, [3]), (1e-6, [1, 2, 3]), (1e6, [3])])
def test_checkpoints_by_time_come_beside_those_by_steps(made, minutes, saved):
    paths = made(max_steps=3, checkpoint_every=0, checkpoint_minutes=minutes)
    assert run_training(paths).exit_code == ExitCode.DONE
    assert [event.step for event in of_kind(paths, CheckpointSaved)] == saved


def test_minutes_are_counted_from_the_last_checkpoint(made, monkeypatch):
    """On a clock of the test's own: half a minute passes each time that it is asked whether one is due."""
    paths, is_due, clock = made(max_steps=7, checkpoint_every=0, checkpoint_minutes=1.4), CheckpointWriter.is_due, []

    def half_a_minute_later(writer):
        clock.append((clock[-1] if clock else writer.tally.saved_at) + 30.0)
        return is_due(writer)

    fake = SimpleNamespace(monotonic=lambda: clock[-1] if clock else 0.0, perf_counter=time.perf_counter)
    for module in (checkpoint_writer, progress):
        monkeypatch.setattr(module, "time", fake)
    monkeypatch.setattr(CheckpointWriter, "is_due", half_a_minute_later)
    assert run_training(paths).exit_code == ExitCode.DONE
    assert [event.step for event in of_kind(paths, CheckpointSaved)] == [3, 6, 7]


def test_the_machine_is_kept_awake_while_a_run_goes(made, monkeypatch):
    paths, seen = made(max_steps=1), []

    @contextmanager
    def lock(why):
        seen.append((why, len(of_kind(paths, StepDone))))
        yield
        seen.append((why, len(of_kind(paths, StepDone))))

    monkeypatch.setattr(train_run, "kept_awake", lock)
    assert run_training(paths).exit_code == ExitCode.DONE
    assert [steps for _, steps in seen] == [0, 1]
    assert all(paths.root.name in why for why, _ in seen)


@pytest.mark.parametrize(("engine", "precision"), [('"fast"', "bf16"), ('"plain"', "fp32")])
def test_a_diverging_run_ends_and_says_so(made, engine, precision):
    paths = made(max_steps=10, engine=engine, precision=f'"{precision}"', checkpoint_every=4)
    with spoiled(engine, lambda: float("nan") if len(losses(paths)) >= 4 else None):
        outcome = run_training(paths)
    assert outcome.exit_code == ExitCode.DIVERGED
    assert "at step 7 " in outcome.message
    assert "learning_rate" in outcome.message
    assert read_state(paths).exit_code == 13
    ended = of_kind(paths, RunEnded)[-1]
    assert (ended.outcome, ended.step) == ("failed", 7)
    # Three steps were skipped, and again after going back. Nothing of them was saved: the run goes on from step 4.
    assert [event.step for event in of_kind(paths, StepDone)] == [1, 2, 3, 4, 5, 6, 7, 5, 6, 7]
    assert run_training(paths).exit_code == ExitCode.DONE
    assert [event.step for event in of_kind(paths, StepDone)][10:] == list(range(5, 11))


def test_fp16_skips_overflows_and_gives_up_where_no_scale_helps(made):
    some = made(max_steps=8, precision='"fp16"')
    with spoiled("fast", lambda: float("inf") if len(losses(some)) in {2, 3} else None):
        assert run_training(some).exit_code == ExitCode.DONE
    assert len(losses(some)) == 8
    assert losses(some)[8] < losses(some)[1]
    always = made(max_steps=40, epochs=99.0, precision='"fp16"')
    with spoiled("fast", lambda: float("inf")):
        outcome = run_training(always)
    assert outcome.exit_code == ExitCode.DIVERGED
    assert "at step 17 " in outcome.message  # 2^14, halved 14 times; then three steps that no scale helps


@pytest.mark.parametrize("engine", ENGINES)
def test_out_of_memory_is_told_with_a_remedy(made, engine):
    paths = made(max_steps=5, engine=engine)

    def greedy():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has ...")

    with spoiled(engine, greedy):
        outcome = run_training(paths)
    assert outcome.exit_code == ExitCode.DOES_NOT_FIT
    assert "train.micro_batch_tokens" in outcome.message
    assert "Tried to allocate" in paths.stderr_log.read_text()


@pytest.mark.parametrize(
    "said", ["CUDA error: an illegal memory access was encountered\nCompile with more", "Triton Error [CUDA]: unknown"]
)
def test_a_failing_driver_is_told_from_a_bug(made, said):
    paths = made(max_steps=5, engine='"fast"')

    def faulty():
        raise RuntimeError(said)

    with spoiled('"fast"', faulty):
        outcome = run_training(paths)
    assert outcome.exit_code == ExitCode.DRIVER
    assert said.splitlines()[0] in outcome.message
    assert "Compile" not in outcome.message
    assert read_state(paths).exit_code == ExitCode.DRIVER
    assert said.splitlines()[0] in paths.stderr_log.read_text(encoding="utf-8")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_bug_is_recorded_before_it_is_raised(made, engine):
    paths = made(max_steps=5, engine=engine)

    def broken():
        raise ZeroDivisionError("oops")

    before = threading.enumerate()  # other tests' too
    with spoiled(engine, broken), pytest.raises(ZeroDivisionError):
        run_training(paths)
    assert read_state(paths).exit_code == ExitCode.BUG
    assert lease.holder_of("cpu") is None
    left = [thread for thread in threading.enumerate() if thread not in before]
    assert not [thread for thread in left if thread.name == "prefetch"]


def test_training_collects_garbage_at_python_s_own_pace(made):
    usual, seen = gc.get_threshold(), set()
    collect_seldom()
    run_training(made(max_steps=2), listener=lambda event: seen.add((type(event) is StepDone, gc.get_threshold())))
    assert (True, usual) in seen
    assert len({pace for is_step, pace in seen if is_step}) == 1


def test_a_failure_of_the_data_thread_ends_the_run_as_its_own(made):
    paths = made(max_steps=5)
    error = DataError("Row 7 cannot be read.", "Correct it.")

    def unreadable(self, index):
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("burnish_engine.train.base.stream.BatchStream.__getitem__", unreadable)
        outcome = run_training(paths)
    assert (outcome.exit_code, outcome.message) == (DataError.exit_code, str(error))


def test_a_full_disk_in_the_middle_keeps_the_last_checkpoint(made):
    paths = made(max_steps=7)
    from burnish_engine.train.lifecycle import checkpoint as checkpoints

    real = checkpoints.save_file

    def full(tensors, path):
        if "step-000006" in str(path):
            raise OSError(28, "No space left on device")
        real(tensors, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "save_file", full)
        outcome = run_training(paths)
    assert outcome.exit_code == ExitCode.NO_SPACE
    assert checkpoints.find_checkpoint(paths.checkpoints)[0].name == "step-000003"
    assert run_training(paths).exit_code == ExitCode.DONE


def test_zero_supervised_tokens_is_an_error_not_a_run(made, tmp_path):
    paths = made(max_steps=3)
    rows = [{"messages": [{"role": "user", "content": "only questions"}]}] * 5
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    outcome = run_training(paths)
    assert outcome.exit_code == DataError.exit_code
    assert not paths.checkpoints.exists()


def with_targets(paths, targets):
    """The run with other targets in its recipe."""
    text = paths.recipe.read_text(encoding="utf-8")
    start, end = text.index("targets = ["), text.index("]", text.index("targets = [")) + 1
    paths.recipe.write_text(f"{text[:start]}targets = {targets}{text[end:]}", encoding="utf-8")
    return paths


def test_targets_the_model_lacks_are_refused_once(made):
    some = with_targets(made(max_steps=2), '["q_proj", "router"]')
    outcome = run_training(some)
    assert outcome.exit_code == UsageError.exit_code
    assert "router" in outcome.message
    assert "down_proj" in outcome.message
    assert not [event for event in read_events(some.events) if "router" in getattr(event, "message", "")][1:]
    none = run_training(with_targets(made(max_steps=2), '["nope"]'))
    assert none.exit_code == UsageError.exit_code
    assert "q_proj" in none.message


def test_a_run_that_an_older_version_began_with_such_targets_goes_on(made, monkeypatch):
    paths = with_targets(made(max_steps=4, engine='"fast"'), '["q_proj", "router"]')
    with monkeypatch.context() as older:
        for module in (plan, fast_engine):
            older.setattr(module, "check_spec_targets", lambda *_: [])
        assert run_training(paths, listener=commanding(paths, 2, "stop")).exit_code == ExitCode.STOPPED
    assert run_training(paths).exit_code == ExitCode.DONE
    card = read_card(paths)
    assert "feed-forward 0 %" in card.coverage.text
    assert "feed-forward 0 %" in card.guard.coverage
