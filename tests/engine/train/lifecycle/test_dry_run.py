"""A dry run finds out early what does not fit, and leaves nothing behind."""

from types import SimpleNamespace

import pytest
import torch

from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.run.events import PhaseChanged, RunStarted, StepDone, Warned
from burnish_engine.runs.control import send
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.store import create_run
from burnish_engine.train.fast import fast_engine
from burnish_engine.train.fast.micro_batch_step import MicroBatchStep
from burnish_engine.train.lifecycle import dry_run, run_setup
from burnish_engine.train.lifecycle.dry_run import is_worthwhile
from burnish_engine.train.plain import plain_engine
from burnish_engine.train.run import run_training
from burnish_kernels.adamw import op as adamw

from support.memory.scarce import scarce
from support.runs.tiny_runs import evaluations, losses, of_kind, tiny_recipe, trained

ENGINES = ["fast", "plain"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("dry runs")


@pytest.fixture(scope="module")
def smaller():
    """The run of each engine that began with the smaller plan, once it was made."""
    return {}


@pytest.fixture
def made(folder, request, monkeypatch):
    """Make a run: (engine, whether it is tried before, keyword arguments of tiny_recipe) -> its paths."""
    count = iter(range(99))
    tried = []
    monkeypatch.setattr(run_setup, "check_fit", lambda *_args, **_settings: None)
    monkeypatch.setattr(dry_run, "is_worthwhile", lambda *_: tried[-1])

    def make(engine, tries, **settings):
        tried.append(tries)
        settings = {"max_steps": 5, "accumulation": 2, "epochs": 9.0, **settings}
        recipe = tiny_recipe(folder, engine=f'"{engine}"', **settings)
        return create_run(recipe, folder / f"{request.node.name} {next(count)}")

    return make


def phases(paths):
    return [event.phase for event in of_kind(paths, PhaseChanged)]


def norms(paths):
    return {event.step: event.grad_norm for event in of_kind(paths, StepDone)}


@pytest.mark.full
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("engine", ENGINES)
def test_a_run_is_the_same_with_and_without(made, engine, precision):
    """Bit for bit, under dropout; and where it continues from a checkpoint, with moments and random numbers there."""
    if (engine, precision) == ("plain", "fp16"):
        pytest.skip("the plain engine does not train in fp16")
    without = made(engine, False, precision=f'"{precision}"')
    assert run_training(without).exit_code == ExitCode.DONE
    paths = made(engine, True, precision=f'"{precision}"')

    def stop(event):
        if isinstance(event, StepDone) and event.step == 3:
            send(paths, "stop")

    assert run_training(paths, listener=stop).exit_code == ExitCode.STOPPED
    assert run_training(paths).exit_code == ExitCode.DONE
    assert losses(paths) == losses(without)
    assert norms(paths) == norms(without)
    assert evaluations(paths) == evaluations(without)
    assert trained(paths) == trained(without)
    assert [event.step for event in of_kind(paths, StepDone)] == [1, 2, 3, 4, 5]
    assert phases(paths).count("dry_run") == 2
    assert "dry_run" not in phases(without)
    assert not list(paths.checkpoints.glob(".*"))


@pytest.mark.parametrize("engine", ENGINES)
def test_it_trains_the_longest_pass_twice_evaluates_and_saves(made, engine, monkeypatch):
    seen = []
    real = dry_run.dry_run

    def watching(inner, batch, **settings):
        class Watched:
            facts = inner.facts

            def __getattr__(self, name):
                def called(*args, **keywords):
                    seen.append((name, args))
                    return getattr(inner, name)(*args, **keywords)

                return called

        seen.append(("batch", batch))
        return real(Watched(), batch, **settings)

    monkeypatch.setattr(dry_run, "dry_run", watching)
    paths = made(engine, True, max_steps=3, epochs=1.0)
    assert run_training(paths).exit_code == ExitCode.DONE
    names = [name for name, _ in seen]
    assert [name for name in names if name not in ("results", "batch")] == [
        "snapshot", "start", "queue_step", "start", "queue_step", "held_out_loss", "save_adapter",
    ]  # fmt: skip
    batch = seen[0][1]
    started = next(args for name, args in seen if name == "start")
    assert started[1:3] == (1, 2)
    assert all(one is batch for one in started[3])
    assert batch.tokens >= max(event.tokens for event in of_kind(paths, StepDone)) / 2
    (detail,) = [event.detail for event in of_kind(paths, PhaseChanged) if event.phase == "dry_run"]
    assert detail.startswith(f"{batch.tokens:,} tokens")


@pytest.mark.full
@pytest.mark.parametrize("place", ["pass", "evaluation", "update"])
@pytest.mark.parametrize("engine", ENGINES)
def test_what_does_not_fit_shows_there(made, smaller, engine, place):
    """And the run begins with the smaller plan; half an update is put back from the copy, without loading again."""
    owner, name = {
        ("fast", "pass"): (MicroBatchStep, "_backward"),
        ("plain", "pass"): (plain_engine, "summed_loss"),
        ("fast", "evaluation"): (fast_engine, "pass_losses"),
        ("plain", "evaluation"): (plain_engine, "held_out_loss"),
        ("fast", "update"): (adamw, "step_"),
        ("plain", "update"): (torch.optim.AdamW, "step"),
    }[engine, place]
    if engine not in smaller:
        smaller[engine] = made(engine, False, recompute=True)
        assert run_training(smaller[engine]).exit_code == ExitCode.DONE
    paths = made(engine, True)
    with scarce((owner, name), calls=[1], after=True):
        assert run_training(paths).exit_code == ExitCode.DONE
    warnings = [event for event in of_kind(paths, Warned) if event.code == "smaller_plan"]
    assert len(warnings) == 1
    events = list(read_events(paths.events))
    assert events.index(warnings[0]) < events.index(of_kind(paths, StepDone)[0])
    assert len(of_kind(paths, RunStarted)) == 1
    assert losses(paths) == losses(smaller[engine])
    assert evaluations(paths) == evaluations(smaller[engine])
    assert trained(paths) == trained(smaller[engine])


@pytest.mark.full
def test_there_is_none_without_room_for_the_copy(made, monkeypatch):
    monkeypatch.setattr(dry_run, "host_memory", lambda: (10**9, 1000))
    paths = made("fast", True, max_steps=1)
    assert run_training(paths).exit_code == ExitCode.DONE
    assert "dry_run" not in phases(paths)


def test_only_long_runs_are_worth_it():
    assert is_worthwhile(51, 0.0)
    assert is_worthwhile(2, 301.0)
    assert not is_worthwhile(50, 299.0)


@pytest.mark.full
def test_what_is_left_of_a_run_decides(made, monkeypatch):
    asked = []
    monkeypatch.setattr(
        run_setup,
        "check_fit",
        lambda *_args, **_settings: SimpleNamespace(
            seconds=1000.0, memory_plan=None, coverage=None, times=(), samples=None
        ),
    )
    paths = made("fast", False, max_steps=5)
    monkeypatch.setattr(dry_run, "is_worthwhile", lambda *found: asked.append(found))

    def stop(event):
        if isinstance(event, StepDone) and event.step == 2:
            send(paths, "stop")

    run_training(paths, listener=stop)
    run_training(paths)
    assert asked == [(5, 1000.0), (3, 600.0)]


@pytest.mark.parametrize(("padded", "lengths"), [(False, [10, 60]), (True, [8, 8, 8, 8, 8, 29])])
def test_the_longest_evaluation_pass(padded, lengths):
    """Padded, it is the pass with most rows times its longest one."""
    documents = [range(tokens) for tokens in (60, 10, 8, 8, 8, 8, 8, 29)]
    assert sorted(len(document) for document in dry_run._longest_pass(documents, 70, padded=padded)) == lengths
