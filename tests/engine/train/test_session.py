"""A run from start to end in this process: what it writes, how it is commanded, how it fails."""

import json
import math
import threading

import pytest
import torch

from burnish_engine.contract.errors import DataError, ExitCode, UsageError
from burnish_engine.contract.events import (
    CheckpointSaved,
    CommandDone,
    DataReady,
    EvaluationDone,
    PhaseChanged,
    RunEnded,
    RunStarted,
    SampleDone,
    StepDone,
)
from burnish_engine.contract.recipe_file import dump_recipe
from burnish_engine.runs import lease
from burnish_engine.runs.control import send
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.store import create_run, read_state, summarize
from burnish_engine.train import plain_step
from burnish_engine.train.run import run_training

from support.runs import evaluations, losses, tiny_recipe


def of_kind(paths, kind):
    return [event for event in read_events(paths.events) if isinstance(event, kind)]


def commanding(paths, at_step, *names):
    """A listener that sends commands after a step, as a client would."""

    def listen(event):
        if isinstance(event, StepDone) and event.step == at_step:
            for name in names:
                send(paths, name)

    return listen


@pytest.fixture
def made(tmp_path):
    """Make a run: (keyword arguments of tiny_recipe) -> its paths."""
    count = iter(range(99))

    def make(**settings):
        return create_run(tiny_recipe(tmp_path, **settings), tmp_path / f"run {next(count)} ü")

    return make


def test_a_whole_run_tells_everything(made):
    paths = made(extra='[evaluation]\nevery = 4\nprompts = ["My lamp is broken?"]\nsample_tokens = 5\n', max_steps=10)
    outcome = run_training(paths)
    assert (outcome.exit_code, outcome.step) == (ExitCode.DONE, 10)
    events = list(read_events(paths.events))
    assert [event.seq for event in events] == list(range(len(events)))
    assert of_kind(paths, RunStarted)[0].total_steps == 10
    steps = of_kind(paths, StepDone)
    assert [event.step for event in steps] == list(range(1, 11))
    for event in steps:
        assert math.isfinite(event.loss)
        assert event.grad_norm > 0
        assert 0 < event.supervised_tokens < event.tokens <= 256
        assert event.tokens_per_s == pytest.approx(event.tokens / event.step_s)
        assert event.memory_bytes > 1_000_000
    assert steps[-1].eta_s == 0
    assert steps[0].learning_rate < max(event.learning_rate for event in steps)
    assert [event.step for event in of_kind(paths, EvaluationDone)] == [0, 4, 8, 10]
    assert evaluations(paths)[10] < evaluations(paths)[0]
    assert {event.prompt for event in of_kind(paths, SampleDone)} == {"My lamp is broken?"}
    assert [event.step for event in of_kind(paths, CheckpointSaved)] == [3, 6, 9, 10]
    data = of_kind(paths, DataReady)[0]
    assert (data.train_rows, data.validation_rows, data.dropped_rows) == (40, 8, 0)
    assert 0.5 < data.fill <= 1
    assert isinstance(events[-1], RunEnded)
    state = read_state(paths)
    assert (state.status, state.exit_code, state.step, state.pid) == ("finished", 0, 10, None)
    assert state.loss == steps[-1].loss
    assert (paths.adapter / "adapter_model.safetensors").is_file()
    assert lease.holder_of("cpu") is None


def test_a_terminal_that_goes_away_does_not_take_the_run_along(made):
    paths = made(max_steps=3)

    def closed(_event):
        raise SystemExit(1)

    assert run_training(paths, listener=closed).exit_code == ExitCode.DONE


def test_accumulation_does_not_change_the_loss(made):
    """One pass of 512 tokens or two passes over the same rows: the mean over supervised tokens is the same."""
    first = made(micro_batch_tokens=100000, max_steps=1, rows=12, epochs=1.0)
    second = made(micro_batch_tokens=160, accumulation=50, max_steps=1, rows=12, epochs=1.0)
    for paths in (first, second):
        assert run_training(paths).exit_code == 0
    one, many = (of_kind(paths, StepDone)[0] for paths in (first, second))
    assert one.tokens == many.tokens
    assert one.loss == pytest.approx(many.loss, rel=1e-5)
    assert one.grad_norm == pytest.approx(many.grad_norm, rel=2e-2)  # dropout draws other masks


def test_the_same_seed_gives_the_same_bits_and_another_does_not(made):
    runs = [made(max_steps=5), made(max_steps=5), made(max_steps=5, seed=1)]
    for paths in runs:
        run_training(paths)
    assert losses(runs[0]) == losses(runs[1])
    assert losses(runs[0]) != losses(runs[2])


def test_limits_on_tokens_steps_and_epochs(made):
    by_tokens = made(max_tokens=1000, epochs=50.0)
    run_training(by_tokens)
    used = sum(event.tokens for event in of_kind(by_tokens, StepDone))
    assert 1000 - 256 < used <= 1000
    half = made(epochs=0.5)
    run_training(half)
    assert of_kind(half, StepDone)[-1].epoch == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(("name", "status"), [("stop", "stopped"), ("suspend", "suspended")])
def test_an_ended_run_goes_on_with_the_uninterrupted_losses(made, name, status):
    whole, cut = made(max_steps=12), made(max_steps=12)
    run_training(whole)
    outcome = run_training(cut, listener=commanding(cut, 5, name))
    assert (outcome.exit_code, outcome.step) == (ExitCode.STOPPED, 5)
    assert outcome.message == f"{status.capitalize()} as asked; everything up to step 5 is saved."
    assert summarize(cut).standing == status
    assert (cut.adapter / "adapter_model.safetensors").is_file()
    assert run_training(cut).exit_code == ExitCode.DONE
    assert of_kind(cut, RunStarted)[-1].resumed_from_step == 5
    assert losses(cut) == losses(whole)


def test_stop_now_saves_nothing_new(made):
    paths = made(max_steps=12)
    outcome = run_training(paths, listener=commanding(paths, 5, "stop_now"))
    assert outcome.message == "Stopped at once as asked; the last checkpoint (step 3) is kept."
    assert [event.step for event in of_kind(paths, CheckpointSaved)] == [3]
    assert not paths.adapter.exists()
    assert run_training(paths).exit_code == ExitCode.DONE
    assert [event.step for event in of_kind(paths, StepDone)] == [1, 2, 3, 4, 5, *range(4, 13)]


def test_stop_now_before_the_first_checkpoint_says_that_nothing_is_kept(made):
    paths = made(max_steps=12)
    outcome = run_training(paths, listener=commanding(paths, 2, "stop_now"))
    assert outcome.message == "Stopped at once as asked; there was no checkpoint yet, so nothing is kept."


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
    whole, paused = made(max_steps=6), made(max_steps=6)
    run_training(whole)
    seen = []

    def listen(event):
        if isinstance(event, StepDone) and event.step == 3:
            send(paused, "pause")
        if isinstance(event, PhaseChanged) and event.phase == "paused":
            seen.append(read_state(paused).status)
            threading.Timer(0.5, lambda: send(paused, "resume")).start()

    assert run_training(paused, listener=listen).exit_code == ExitCode.DONE
    assert seen == ["paused"]
    assert losses(paused) == losses(whole)


def test_sampling_and_evaluating_do_not_change_training(made):
    quiet = made(max_steps=6)
    watched = made(
        max_steps=6, extra='[evaluation]\nevery = 1\nprompts = ["My lamp?", "My bike?"]\nsample_tokens = 8\n'
    )
    for paths in (quiet, watched):
        run_training(paths)
    assert losses(quiet) == losses(watched)


def test_recomputing_activations_gives_the_same_losses(made):
    kept, recomputed = made(max_steps=5), made(max_steps=5, recompute=True)
    for paths in (kept, recomputed):
        assert run_training(paths).exit_code == ExitCode.DONE
    assert losses(kept) == pytest.approx(losses(recomputed), rel=1e-6)


def test_bf16_trains(made):
    paths = made(max_steps=10, precision='"bf16"')
    run_training(paths)
    values = losses(paths)
    assert values[10] < values[1]
    assert of_kind(paths, RunStarted)[0].precision == "bf16"


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


def test_a_diverging_run_ends_and_says_so(made):
    paths = made(max_steps=30, learning_rate=1.0, max_grad_norm=0.0)
    poisoned = plain_step.summed_loss

    def nan_later(model, batch, device, layout):
        loss = poisoned(model, batch, device, layout)
        return loss * float("nan") if model.training and len(losses(paths)) >= 4 else loss

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("burnish_engine.train.session.summed_loss", nan_later)
        outcome = run_training(paths)
    assert outcome.exit_code == ExitCode.DIVERGED
    assert "step 5" in outcome.message
    assert "learning_rate" in outcome.message
    assert read_state(paths).exit_code == 13
    assert of_kind(paths, RunEnded)[-1].outcome == "failed"


def test_out_of_memory_is_told_with_a_remedy(made):
    paths = made(max_steps=5)

    def greedy(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has ...")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("burnish_engine.train.session.summed_loss", greedy)
        outcome = run_training(paths)
    assert outcome.exit_code == ExitCode.DOES_NOT_FIT
    assert "train.micro_batch_tokens" in outcome.message
    assert "Tried to allocate" in paths.stderr_log.read_text()


def test_a_bug_is_recorded_before_it_is_raised(made):
    paths = made(max_steps=5)

    def broken(*_):
        raise ZeroDivisionError("oops")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("burnish_engine.train.session.summed_loss", broken)
        with pytest.raises(ZeroDivisionError):
            run_training(paths)
    assert read_state(paths).exit_code == ExitCode.BUG
    assert lease.holder_of("cpu") is None


def test_a_full_disk_in_the_middle_keeps_the_last_checkpoint(made):
    paths = made(max_steps=12)
    from burnish_engine.train import checkpoint as checkpoints

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


def test_targets_the_model_lacks_are_named(made):
    some = made(max_steps=2, extra="")
    recipe_text = some.recipe.read_text(encoding="utf-8")
    some.recipe.write_text(recipe_text.replace('"q_proj"', '"q_proj", "router"'), encoding="utf-8")
    run_training(some)
    assert any(
        getattr(event, "code", "") == "targets" and "router" in event.message for event in read_events(some.events)
    )
    none = made(max_steps=2)
    text = none.recipe.read_text(encoding="utf-8")
    start, end = text.index("targets = ["), text.index("]", text.index("targets = [")) + 1
    none.recipe.write_text(text[:start] + 'targets = ["nope"]' + text[end:], encoding="utf-8")
    outcome = run_training(none)
    assert outcome.exit_code == UsageError.exit_code
    assert "q_proj" in outcome.message
