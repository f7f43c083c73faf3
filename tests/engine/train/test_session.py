"""A run from start to end in this process: what it writes, and how it is commanded."""

import gc
import math
import os
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from burnish_engine.contract.errors import ExitCode, UsageError
from burnish_engine.contract.garbage import collect_seldom
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
from burnish_engine.runs.control import send
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.held_out import load_held_out
from burnish_engine.runs.jobs import lease
from burnish_engine.runs.store import read_recipe, read_state
from burnish_engine.train import run as train_run
from burnish_engine.train.base.schedule import learning_rate
from burnish_engine.train.guard.fast_probe import FastProbe
from burnish_engine.train.guard.plain_probe import PlainProbe
from burnish_engine.train.lifecycle import progress
from burnish_engine.train.recovery import checkpoint_writer
from burnish_engine.train.recovery.checkpoint_writer import CheckpointWriter
from burnish_engine.train.run import run_training

from support.models.tiny import conversations
from support.runs.tiny_runs import commanding, evaluations, losses, of_kind, tiny_recipe

ENGINES = [pytest.param('"fast"', id="fast"), pytest.param('"plain"', id="plain")]


@pytest.mark.full
def test_a_whole_run_tells_everything(make_run):
    paths = make_run(
        extra='[evaluation]\nevery = 4\nprompts = ["My lamp is broken?"]\nsample_tokens = 5\nsample_share = 0\n',
        max_steps=10,
    )
    ends = {}

    def listen(event):
        if isinstance(event, EvaluationDone):
            ends[event.step] = read_state(paths).ends

    outcome = run_training(paths, listener=listen)
    assert (outcome.exit_code, outcome.step) == (ExitCode.DONE, 10)
    assert min(ends[0], ends[10]) > 0
    assert ends[0] != ends[10], "the plan's before the first step, then that of the steps"
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


@pytest.mark.full
def test_a_terminal_that_goes_away_does_not_take_the_run_along(make_run):
    paths = make_run(max_steps=3)

    def closed(_event):
        raise SystemExit(1)

    assert run_training(paths, listener=closed).exit_code == ExitCode.DONE


@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
def test_accumulation_does_not_change_the_loss(make_run, engine):
    """One pass of 512 tokens or two passes over the same rows: the mean over supervised tokens is the same."""
    same = {"adapter": {"dropout": 0.0}, "engine": engine, "max_steps": 1, "rows": 12, "epochs": 1.0}
    first = make_run(micro_batch_tokens=100000, **same)
    second = make_run(micro_batch_tokens=160, accumulation=50, **same)
    for paths in (first, second):
        assert run_training(paths).exit_code == 0
    one, many = (of_kind(paths, StepDone)[0] for paths in (first, second))
    assert one.tokens == many.tokens
    assert one.loss == pytest.approx(many.loss, rel=1e-5)
    assert one.grad_norm == pytest.approx(many.grad_norm, rel=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
def test_the_same_seed_gives_the_same_bits_and_another_does_not(make_run, engine):
    runs = [make_run(max_steps=3, checkpoint_every=0, engine=engine, seed=seed) for seed in (0, 0, 1)]
    for paths in runs:
        run_training(paths)
    assert losses(runs[0]) == losses(runs[1])
    assert losses(runs[0]) != losses(runs[2])


@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
def test_every_step_draws_its_own_dropout(make_run, engine):
    """Nothing is learned and every step has the same rows, so that gradients differ by the masks alone."""
    same = {"learning_rate": 1e-12, "rows": 4, "epochs": 4.0, "micro_batch_tokens": 1024, "engine": engine}
    dropping, fixed = make_run(**same), make_run({"dropout": 0.0}, **same)
    for paths in (dropping, fixed):
        assert run_training(paths).exit_code == ExitCode.DONE
    drawn, still = ([event.grad_norm for event in of_kind(paths, StepDone)] for paths in (dropping, fixed))
    assert len(still) == len(drawn) == 4
    assert still == pytest.approx([still[0]] * 4, rel=1e-4)
    closest = min(abs(one - other) for index, one in enumerate(drawn) for other in drawn[:index])
    assert closest > 1e-3 * still[0]


def test_limits_on_tokens_steps_and_epochs(make_run):
    by_tokens = make_run(max_tokens=1000, epochs=50.0)
    run_training(by_tokens)
    used = sum(event.tokens for event in of_kind(by_tokens, StepDone))
    assert 1000 - 256 < used <= 1000
    half = make_run(epochs=0.5, extra="[evaluation]\nmax_rows = 3\n")
    run_training(half)
    few, all_rows = ({event.tokens for event in of_kind(paths, EvaluationDone)} for paths in (half, by_tokens))
    assert len(few) == len(all_rows) == 1
    assert min(few) < 0.6 * min(all_rows)
    assert of_kind(half, StepDone)[-1].epoch == pytest.approx(0.5, abs=0.1)


def test_commands_are_acknowledged_and_carried_out(make_run):
    paths = make_run(
        max_steps=6,
        checkpoint_every=0,
        extra='[evaluation]\nprompts = ["My bike?"]\nsample_tokens = 3\nsample_share = 0\n',
    )
    run_training(paths, listener=commanding(paths, 2, "checkpoint", "sample", "resume"))
    answers = of_kind(paths, CommandDone)
    assert [(event.name, event.accepted) for event in answers] == [
        ("checkpoint", True), ("sample", True), ("resume", False),
    ]  # fmt: skip
    assert [event.step for event in of_kind(paths, CheckpointSaved)] == [2, 6]
    assert [event.step for event in of_kind(paths, SampleDone)] == [0, 2, 6]


@pytest.mark.full
def test_pause_holds_until_resume_and_changes_nothing(make_run):
    whole, paused = (make_run(max_steps=4, checkpoint_every=0) for _ in range(2))
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


@pytest.mark.full
def test_sampling_and_evaluating_do_not_change_training(make_run):
    quiet = make_run(max_steps=6)
    watched = make_run(
        max_steps=6,
        extra='[evaluation]\nevery = 1\nprompts = ["My lamp?", "My bike?"]\nsample_tokens = 8\nsample_share = 0\n',
    )
    for paths in (quiet, watched):
        run_training(paths)
    assert losses(quiet) == losses(watched)


@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
def test_recomputing_activations_gives_the_same_losses(make_run, engine):
    kept, recomputed = (make_run(max_steps=3, engine=engine, recompute=recompute) for recompute in (False, True))
    for paths in (kept, recomputed):
        assert run_training(paths).exit_code == ExitCode.DONE
    assert losses(kept) == pytest.approx(losses(recomputed), rel=1e-6)


@pytest.mark.full
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_16_bits_train(make_run, precision):
    paths = make_run(max_steps=10, precision=f'"{precision}"')
    assert run_training(paths).exit_code == ExitCode.DONE
    values = losses(paths)
    assert values[10] < values[1]
    assert of_kind(paths, RunStarted)[0].precision == precision


@pytest.mark.full
def test_a_model_that_only_the_plain_engine_knows_is_trained_by_it_and_says_why(make_run):
    paths = make_run(max_steps=2, adapter={"method": "dora", "dropout": 0.1})
    assert run_training(paths).exit_code == ExitCode.DONE
    assert of_kind(paths, RunStarted)[0].engine == "plain"
    (why,) = [event.message for event in of_kind(paths, Warned) if event.code == "engine"]
    assert "DoRA with dropout" in why


def test_fast_for_what_it_does_not_do_is_refused(make_run):
    paths = make_run(max_steps=2, adapter={"method": "dora", "dropout": 0.1}, engine='"fast"')
    outcome = run_training(paths)
    assert outcome.exit_code == UsageError.exit_code
    assert outcome.message.startswith("The fast engine does not do DoRA")
    assert not of_kind(paths, StepDone)


@pytest.mark.full
@pytest.mark.parametrize(("engine", "probe"), [('"fast"', FastProbe), ('"plain"', PlainProbe)])
def test_the_checks_before_training_are_counted_and_compute_no_pass_twice(make_run, engine, probe, monkeypatch):
    passes, real = [], probe.logits

    def logits(self, batch, rows):
        passes.append(tuple(batch.input_ids))
        return real(self, batch, rows)

    monkeypatch.setattr(probe, "logits", logits)
    paths = make_run(max_steps=1, engine=engine)
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


@pytest.mark.full
def test_the_layers_are_counted_while_the_model_is_loaded(make_run, monkeypatch):
    monkeypatch.setattr(recorder, "PROGRESS_S", 0.0)
    paths = make_run(max_steps=1, engine='"fast"')
    run_training(paths)
    layers = [(event.done, event.total) for event in of_kind(paths, PhaseProgress) if event.unit == "layers"]
    assert layers == [(number, layers[-1][1]) for number in range(1, layers[-1][1] + 1)]
    assert len(layers) > 1


@pytest.mark.full
def test_the_time_left_counts_what_comes_beside_steps(make_run):
    paths = make_run(max_steps=7, extra="[evaluation]\nevery = 1\n")
    run_training(paths)
    steps, plan = of_kind(paths, StepDone), of_kind(paths, PlanMade)[0]
    assert plan.total_seconds > plan.seconds > 0
    measured = sum(step.step_s for step in steps[:5]) / 5
    assert steps[4].eta_s > measured * 2, "two more steps, and three more evaluations"
    assert 0 < steps[-1].eta_s < steps[4].eta_s


@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
def test_long_phases_say_how_many_rows_are_done(make_run, engine, monkeypatch):
    monkeypatch.setattr(recorder, "PROGRESS_S", 0.0)
    paths = make_run(max_steps=1, engine=engine, micro_batch_tokens=128)
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


@pytest.mark.full
@pytest.mark.parametrize(("minutes", "saved"), [(0.0, [3]), (1e-6, [1, 2, 3]), (1e6, [3])])
def test_checkpoints_by_time_come_beside_those_by_steps(make_run, minutes, saved):
    paths = make_run(max_steps=3, checkpoint_every=0, checkpoint_minutes=minutes)
    assert run_training(paths).exit_code == ExitCode.DONE
    assert [event.step for event in of_kind(paths, CheckpointSaved)] == saved


@pytest.mark.full
def test_minutes_are_counted_from_the_last_checkpoint(make_run, monkeypatch):
    """On a clock of the test's own: half a minute passes each time that it is asked whether one is due."""
    paths, is_due, clock = (
        make_run(max_steps=7, checkpoint_every=0, checkpoint_minutes=1.4),
        CheckpointWriter.is_due,
        [],
    )

    def half_a_minute_later(writer):
        clock.append((clock[-1] if clock else writer.tally.saved_at) + 30.0)
        return is_due(writer)

    fake = SimpleNamespace(monotonic=lambda: clock[-1] if clock else 0.0, perf_counter=time.perf_counter)
    for module in (checkpoint_writer, progress):
        monkeypatch.setattr(module, "time", fake)
    monkeypatch.setattr(CheckpointWriter, "is_due", half_a_minute_later)
    assert run_training(paths).exit_code == ExitCode.DONE
    assert [event.step for event in of_kind(paths, CheckpointSaved)] == [3, 6, 7]


@pytest.mark.full
def test_the_machine_is_kept_awake_while_a_run_goes(make_run, monkeypatch):
    paths, seen = make_run(max_steps=1), []

    @contextmanager
    def lock(why):
        seen.append((why, len(of_kind(paths, StepDone))))
        yield
        seen.append((why, len(of_kind(paths, StepDone))))

    monkeypatch.setattr(train_run, "kept_awake", lock)
    assert run_training(paths).exit_code == ExitCode.DONE
    assert [steps for _, steps in seen] == [0, 1]
    assert all(paths.root.name in why for why, _ in seen)


@pytest.mark.full
def test_training_collects_garbage_at_python_s_own_pace(make_run):
    usual, seen = gc.get_threshold(), set()
    collect_seldom()
    run_training(make_run(max_steps=2), listener=lambda event: seen.add((type(event) is StepDone, gc.get_threshold())))
    assert (True, usual) in seen
    assert len({pace for is_step, pace in seen if is_step}) == 1
