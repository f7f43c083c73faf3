"""Runs that fail: what is said and recorded of it, and what stays."""

import json
import threading
from contextlib import contextmanager

import pytest
import torch

from burnish_engine.contract.errors import DataError, ExitCode
from burnish_engine.contract.run.events import (
    RunEnded,
    StepDone,
)
from burnish_engine.runs.jobs import lease
from burnish_engine.runs.store import read_state
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep
from burnish_engine.train.plain.plain_engine import PlainEngine
from burnish_engine.train.run import run_training

from support.runs.tiny_runs import losses, of_kind

ENGINES = [pytest.param('"fast"', id="fast"), pytest.param('"plain"', id="plain")]


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
        for _, value in self.parameters:
            after(value.grad)
        return clip(self, max_norm)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MicroBatchStep, "_backward", fast)
        patch.setattr(PlainEngine, "_clip", plain)
        yield


@pytest.mark.full
@pytest.mark.parametrize(("engine", "precision"), [('"fast"', "bf16"), ('"plain"', "fp32")])
def test_a_diverging_run_ends_and_says_so(make_run, engine, precision):
    paths = make_run(max_steps=10, engine=engine, precision=f'"{precision}"', checkpoint_every=4)
    with spoiled(engine, lambda: float("nan") if len(losses(paths)) >= 4 else None):
        outcome = run_training(paths)
    assert outcome.exit_code == ExitCode.DIVERGED
    assert "at step 7 " in outcome.message
    assert "learning_rate" in outcome.message
    assert read_state(paths).exit_code == 13
    ended = of_kind(paths, RunEnded)[-1]
    assert (ended.outcome, ended.step) == ("failed", 7)
    # Three steps were skipped, and again after going back. Nothing of them was saved: the run continues from step 4.
    assert [event.step for event in of_kind(paths, StepDone)] == [1, 2, 3, 4, 5, 6, 7, 5, 6, 7]
    assert run_training(paths).exit_code == ExitCode.DONE
    assert [event.step for event in of_kind(paths, StepDone)][10:] == list(range(5, 11))


@pytest.mark.full
def test_fp16_skips_overflows_and_gives_up_where_no_scale_helps(make_run):
    some = make_run(max_steps=8, precision='"fp16"')
    with spoiled("fast", lambda: float("inf") if len(losses(some)) in {2, 3} else None):
        assert run_training(some).exit_code == ExitCode.DONE
    assert len(losses(some)) == 8
    assert losses(some)[8] < losses(some)[1]
    always = make_run(max_steps=40, epochs=99.0, precision='"fp16"')
    with spoiled("fast", lambda: float("inf")):
        outcome = run_training(always)
    assert outcome.exit_code == ExitCode.DIVERGED
    assert "at step 17 " in outcome.message  # 2^14, halved 14 times; then three steps that no scale helps


@pytest.mark.parametrize("engine", ENGINES)
def test_out_of_memory_is_told_with_a_remedy(make_run, engine):
    paths = make_run(max_steps=5, engine=engine)

    def greedy():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has ...")

    with spoiled(engine, greedy):
        outcome = run_training(paths)
    assert outcome.exit_code == ExitCode.DOES_NOT_FIT
    assert "train.micro_batch_tokens" in outcome.message
    assert "Tried to allocate" in paths.stderr_log.read_text()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "said", ["CUDA error: an illegal memory access was encountered\nCompile with more", "Triton Error [CUDA]: unknown"]
)
def test_a_failing_driver_is_told_from_a_bug(make_run, said):
    paths = make_run(max_steps=5, engine='"fast"')

    def faulty():
        raise RuntimeError(said)

    with spoiled('"fast"', faulty):
        outcome = run_training(paths)
    assert outcome.exit_code == ExitCode.DRIVER
    assert said.splitlines()[0] in outcome.message
    assert "Compile" not in outcome.message
    assert read_state(paths).exit_code == ExitCode.DRIVER
    assert said.splitlines()[0] in paths.stderr_log.read_text(encoding="utf-8")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_bug_is_recorded_before_it_is_raised(make_run, engine):
    paths = make_run(max_steps=5, engine=engine)

    def broken():
        raise ZeroDivisionError("oops")

    before = threading.enumerate()  # other tests' too
    with spoiled(engine, broken), pytest.raises(ZeroDivisionError):
        run_training(paths)
    assert read_state(paths).exit_code == ExitCode.BUG
    assert lease.holder_of("cpu") is None
    left = [thread for thread in threading.enumerate() if thread not in before]
    assert not [thread for thread in left if thread.name == "prefetch"]


@pytest.mark.full
def test_a_failure_of_the_data_thread_ends_the_run_as_its_own(make_run):
    paths = make_run(max_steps=5)
    error = DataError("Row 7 cannot be read.", "Correct it.")

    def unreadable(self, index):
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("burnish_engine.train.base.stream.BatchStream.__getitem__", unreadable)
        outcome = run_training(paths)
    assert (outcome.exit_code, outcome.message) == (DataError.exit_code, str(error))


@pytest.mark.full
def test_a_full_disk_in_the_middle_keeps_the_last_checkpoint(make_run):
    paths = make_run(max_steps=7)
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


@pytest.mark.full
def test_zero_supervised_tokens_is_an_error_not_a_run(make_run, tmp_path):
    paths = make_run(max_steps=3)
    rows = [{"messages": [{"role": "user", "content": "only questions"}]}] * 5
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    outcome = run_training(paths)
    assert outcome.exit_code == DataError.exit_code
    assert not paths.checkpoints.exists()
