"""Bad steps are skipped; after too many the run goes back once, lower, exactly and reproducibly; then it ends."""

import json
import math

import pytest
import torch

from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.run.events import (
    BestKept,
    CheckpointSaved,
    EvaluationDone,
    RolledBack,
    RunStarted,
    StepDone,
)
from burnish_engine.runs.card import read_card
from burnish_engine.runs.control import send
from burnish_engine.runs.store import create_run
from burnish_engine.train.fast.fast_engine import FastEngine
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep
from burnish_engine.train.guard.record import read_record
from burnish_engine.train.lifecycle import checkpoint as checkpoints
from burnish_engine.train.plain.plain_engine import PlainEngine
from burnish_engine.train.run import run_training
from burnish_engine.train.session import Session

from support.runs import interventions
from support.runs.tiny_runs import evaluations, losses, of_kind, tiny_recipe, trained

ENGINES = ["fast", "plain"]
STEPS = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rollback")


@pytest.fixture
def made(folder, request):
    count = iter(range(99))
    name = request.node.name.replace("/", "-")

    def make(engine, extra="", **settings):
        settings = {"max_steps": STEPS, "epochs": 9.0, **settings}
        recipe = tiny_recipe(folder, engine=f'"{engine}"', extra=extra, **settings)
        return create_run(recipe, folder / f"{name} {next(count)}")

    return make


@pytest.fixture
def bad_steps(monkeypatch):
    """The gradients of some steps become NaN, as long as the learning rate is what it was: (steps, always) -> None."""
    now = {"step": 0, "session": None}

    def spoil(steps, *, always=False):
        train_step, backward, clip = Session._train_step, MicroBatchStep._backward, PlainEngine._clip

        def is_bad():
            session = now["session"]
            return session is not None and now["step"] in steps and (always or session.rollback is None)

        def step(self):
            now.update(step=self.tally.step + 1, session=self)
            try:
                return train_step(self)
            finally:
                now["session"] = None

        def fast(program):
            backward(program)
            if is_bad():
                program._model.optimizer.grad.fill_(math.nan)

        def plain(self, max_norm):
            if is_bad():
                for _, value in self._parameters:
                    value.grad.fill_(math.nan)
            return clip(self, max_norm)

        monkeypatch.setattr(Session, "_train_step", step)
        monkeypatch.setattr(MicroBatchStep, "_backward", fast)
        monkeypatch.setattr(PlainEngine, "_clip", plain)

    return spoil


@pytest.fixture(scope="module")
def kept():
    """Runs that several tests compare with, by engine and bad steps."""
    return {}


@pytest.fixture
def spoiled(made, bad_steps, kept):
    """A finished run some of whose steps were bad, as those of runs made after it are: (engine, steps) -> its paths."""

    def make(engine, *steps):
        bad_steps(set(steps))
        if (engine, steps) not in kept:
            kept[engine, steps] = made(engine)
            assert run_training(kept[engine, steps]).exit_code == ExitCode.DONE
        return kept[engine, steps]

    return make


@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
def test_a_bad_step_is_skipped_and_no_more(made, bad_steps, engine):
    """Two in twenty are no trouble; what is trained stays as it was in them."""
    bad_steps({5, 9})
    paths = made(engine)
    assert run_training(paths).exit_code == ExitCode.DONE
    assert not of_kind(paths, RolledBack)
    assert len(losses(paths)) == STEPS
    assert [event.step for event in of_kind(paths, StepDone) if not math.isfinite(event.grad_norm)] == [5, 9]


@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
def test_trouble_goes_back_once_at_half_the_rate(spoiled, engine):
    paths = spoiled(engine, 5, 7, 9)
    back = of_kind(paths, RolledBack)
    assert [(event.step, event.to_step, event.factor) for event in back] == [(9, 3, 0.5)]
    assert back[0].reason.startswith("3 of the last 5 steps were bad; at step 9 the loss was ")
    steps = of_kind(paths, StepDone)
    assert [event.step for event in steps] == [*range(1, 10), *range(4, STEPS + 1)]
    rates = {}
    for event in steps:
        rates.setdefault(event.step, []).append(event.learning_rate)
    assert all(len(rates[step]) == 2 and rates[step][1] == 0.5 * rates[step][0] for step in range(4, 10))
    assert rates[3] == [rates[3][0]]
    kept = read_card(paths).rollback
    assert (kept.step, kept.to_step, kept.factor, kept.reason) == (9, 3, 0.5, back[0].reason)
    assert [event.resumed_from_step for event in of_kind(paths, RunStarted)] == [None, 3]


@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
def test_what_comes_after_is_what_a_run_from_there_would_have_done(made, spoiled, engine, monkeypatch):
    """From the good checkpoint on, the same bits as a run whose rate was halved there by hand."""
    paths = spoiled(engine, 5, 6, 7)
    other = made(engine)

    def stop(event):
        if isinstance(event, StepDone) and event.step == 3:
            send(other, "stop")

    run_training(other, listener=stop)
    state = other.checkpoints / "step-000003" / "state.json"
    content = json.loads(state.read_text())
    record = json.loads(content["guard"])
    record["rollback"] = {"step": 7, "to_step": 3, "factor": 0.5, "reason": "by hand"}
    state.write_text(json.dumps({**content, "guard": json.dumps(record)}))
    monkeypatch.setattr(checkpoints, "_is_whole", lambda _folder: True)
    assert run_training(other).exit_code == ExitCode.DONE
    assert losses(other) == losses(paths)
    assert trained(other) == trained(paths)


@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
def test_without_a_checkpoint_it_goes_back_to_the_beginning(made, bad_steps, engine):
    bad_steps({4, 5, 6})
    paths = made(engine, checkpoint_every=0, max_steps=7)
    assert run_training(paths).exit_code == ExitCode.DONE
    assert [event.to_step for event in of_kind(paths, RolledBack)] == [0]
    steps = of_kind(paths, StepDone)
    assert [event.step for event in steps] == [*range(1, 7), *range(1, 8)]
    assert steps[0].loss == steps[6].loss  # the same beginning, bit for bit
    assert steps[1].loss != steps[7].loss  # then at half the rate


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("engine", ENGINES)
def test_trouble_again_ends_with_13(made, bad_steps, engine):
    bad_steps({8, 9, 10}, always=True)
    paths = made(engine)
    outcome = run_training(paths)
    assert (outcome.exit_code, outcome.step) == (ExitCode.DIVERGED, 10)
    assert "at step 10 the loss was " in outcome.message
    assert "The run had gone back to step 6 before, at 0.5 times the learning rate." in outcome.message
    assert "a lower train.learning_rate (now 0.0025)" in outcome.message
    assert len(of_kind(paths, RolledBack)) == 1
    assert not paths.adapter.exists()


@pytest.mark.full
def test_going_back_can_be_switched_off(made, bad_steps):
    bad_steps({8, 9})
    paths = made("fast", extra="[guard]\nrollback = false\ntroubles = 2\nwindow = 2\n")
    outcome = run_training(paths)
    assert (outcome.exit_code, outcome.step) == (ExitCode.DIVERGED, 9)
    assert not of_kind(paths, RolledBack)


@pytest.mark.full
@pytest.mark.parametrize(("engine", "stop_at"), [("fast", 3), ("plain", 8), ("fast", 11)])
def test_a_run_resumed_before_between_or_after_is_the_same(made, spoiled, engine, stop_at):
    """Stopped at some step, in its first or second pass over it; the trouble and the way back are the same."""
    whole, cut = spoiled(engine, 5, 7, 9), made(engine)
    seen = []

    def stop(event):
        if isinstance(event, StepDone) and event.step == stop_at:
            seen.append(event.step)
            send(cut, "stop")

    assert run_training(cut, listener=stop).exit_code == ExitCode.STOPPED
    assert run_training(cut).exit_code == ExitCode.DONE
    assert losses(cut) == losses(whole)
    assert trained(cut) == trained(whole)
    assert [event.to_step for event in of_kind(cut, RolledBack)] == [3]
    assert [event.step for event in of_kind(cut, CheckpointSaved)][-1] == STEPS
    last = checkpoints.read_position(checkpoints.find_checkpoint(cut.checkpoints)[0])
    assert read_record(last).rollback.to_step == 3, "a later process must not go back again, nor at the full rate"


@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
def test_killed_while_going_back_it_decides_the_same_again(made, spoiled, engine, monkeypatch):
    whole, cut = spoiled(engine, 5, 6, 7), made(engine)
    real, calls = checkpoints.save_checkpoint, []

    def killed(folder, *rest):
        calls.append(rest[1].step)
        if calls[-2:] == [6, 3]:
            raise KeyboardInterrupt
        return real(folder, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "save_checkpoint", killed)
        assert run_training(cut).exit_code == ExitCode.STOPPED
    assert calls == [3, 6, 3]
    assert run_training(cut).exit_code == ExitCode.DONE
    assert losses(cut) == losses(whole)
    assert trained(cut) == trained(whole)


@pytest.mark.full
def test_checkpoints_from_before_the_trouble_are_kept_until_it_is_over(made, bad_steps):
    bad_steps({4})
    paths = made("fast", checkpoint_every=1, keep_checkpoints=1, max_steps=16)
    left = {}

    def listen(event):
        if isinstance(event, CheckpointSaved):
            left[event.step] = sorted(folder.name for folder in paths.checkpoints.glob("step-*"))

    assert run_training(paths, listener=listen).exit_code == ExitCode.DONE
    assert left[3] == ["step-000003"]
    assert left[15][0] == "step-000003"


@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
def test_evaluations_do_not_matter(made, spoiled, engine):
    """Looking at the run on its way changes neither the trouble nor what comes of it."""
    quiet, watched = spoiled(engine, 5, 6, 7), made(engine, extra="[evaluation]\nevery = 3\n")
    assert run_training(watched).exit_code == ExitCode.DONE
    assert losses(quiet) == losses(watched)
    assert [event.step for event in of_kind(watched, EvaluationDone)] == [0, 3, 6, 6, 9, 12]


@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
def test_a_spiking_run_goes_back(made, monkeypatch, engine):
    """Losses that are finite and far too high, until it has gone back; a step with few tokens is not judged."""
    rates = []

    def loss(result):
        rates.append(result.learning_rate)
        spikes = result.step in (14, 15, 16, 17) and len(rates) < 18  # the 16th step learns from half as much
        return result.loss + (4.0 if spikes else 0.0)

    interventions.reported(monkeypatch, engine, loss=loss)
    paths = made(engine, max_steps=18, learning_rate=2e-4)
    assert run_training(paths).exit_code == ExitCode.DONE
    back = of_kind(paths, RolledBack)
    assert [(event.step, event.to_step) for event in back] == [(17, 12)]
    assert "where the steps before had a median loss of" in back[0].reason


@pytest.mark.full
def test_fp16_may_halve_its_loss_scale_as_often_as_it_must(made, monkeypatch):
    """Ten skipped steps in a row with finite losses are how the scale is found."""
    backward, count = MicroBatchStep._backward, iter(range(999))

    def overflowing(program):
        backward(program)
        if next(count) < 11 and isinstance(program._model.optimizer.grad, torch.Tensor):
            program._model.optimizer.grad.fill_(math.inf)

    monkeypatch.setattr(MicroBatchStep, "_backward", overflowing)
    paths = made("fast", precision='"fp16"', max_steps=13)
    assert run_training(paths).exit_code == ExitCode.DONE
    assert not of_kind(paths, RolledBack)


@pytest.mark.full
def test_a_best_evaluation_that_was_undone_is_not_the_result(made, bad_steps, monkeypatch):
    bad_steps({5, 6, 7})
    told = iter([6.0, 5.9, 5.8, 5.7, 1.0, 5.5, 5.4, *(5.3 - 0.1 * number for number in range(20))])
    monkeypatch.setattr(FastEngine, "held_out_loss", lambda *_: (next(told), 10))
    paths = made("fast", extra="[evaluation]\nevery = 1\npatience = 50\ngeneral_text = false\n")
    assert run_training(paths).exit_code == ExitCode.DONE
    assert [event.to_step for event in of_kind(paths, RolledBack)] == [3]
    assert not of_kind(paths, BestKept), "the last step is the best of those that count"
    assert evaluations(paths)[4] > 1.0
