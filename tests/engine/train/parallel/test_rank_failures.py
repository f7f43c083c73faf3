"""Failures of one of several ranks: all continue with a smaller plan, or the run ends with the reason."""

import pytest
import torch

from burnish_engine.train.base.engine import EvaluationRequest
from burnish_engine.train.parallel import leading_engine
from burnish_engine.train.parallel.ranks import OtherRankMemoryError, RankLostError, RanksDifferError
from burnish_engine.train.recovery.recovery import RecoveringEngine

from support.runs.ranks import CPU
from support.runs.shared_steps import Shares, figures, recipe_of


class Failing:
    """Makes another rank run out of memory at its so many-th step."""

    def __init__(self, at):
        self.calls, self.at = 0, at

    def __call__(self, engine):
        self.calls += 1
        if self.calls == self.at:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")


@pytest.mark.full
def test_out_of_memory_on_one_rank_lets_all_go_on_with_a_smaller_plan(tmp_path, shared):
    recipe = recipe_of(tmp_path, exact=True)
    results, masters = shared(recipe, 1).steps(5)
    made, told = shared(recipe, 2, failing=Failing(3)), []
    engine = RecoveringEngine(made.engine, CPU, told.append)
    engine.start(0, made.budget.steps, made.budget.micro_batches)
    before = engine.facts.memory_plan
    found = []
    for _ in range(5):
        engine.queue_step()
        found += engine.results()
    found += engine.results(wait=True)
    assert len(told) == 1
    assert "rank 1" in told[0]
    assert engine.facts.memory_plan != before
    assert figures(found) == figures(results)
    assert torch.equal(made.engine.model.optimizer.param, masters)


class FailingUpdate:
    """Makes another rank run out of memory in its so many-th update, when gradients are exchanged already."""

    def __init__(self, at, *, halfway):
        self.at, self.halfway, self.failed = at, halfway, []

    def __call__(self, engine):
        optimizer = engine.model.optimizer
        if self.failed or int(optimizer.counters[0]) + 1 != self.at:
            return
        make = optimizer.step

        def step():
            optimizer.step = make
            self.failed.append(self.at)
            if self.halfway:
                optimizer.param.mul_(2)
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")

        optimizer.step = step


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("then", ["step", "save"])
@pytest.mark.parametrize("halfway", [False, True])
def test_out_of_memory_in_an_update_on_one_rank_lets_all_go_on(tmp_path, shared, halfway, then):
    """Nobody waits for that rank's answer when it happens: it is behind until the leader begins anew."""
    recipe = recipe_of(tmp_path, exact=True)
    results, masters = shared(recipe, 1).steps(5)
    failing, told = FailingUpdate(3, halfway=halfway), []
    made = shared(recipe, 2, failing=failing)
    engine = RecoveringEngine(made.engine, CPU, told.append)
    engine.start(0, made.budget.steps, made.budget.micro_batches)
    for _ in range(3):
        engine.queue_step()
    if then == "save":
        engine.save_adapter(tmp_path / "adapter")
        assert len(told) == 1
    for _ in range(2):
        engine.queue_step()
    found = list(engine.results(wait=True))
    assert failing.failed == [3]
    assert len(told) == 1
    assert "rank 1" in told[0]
    assert figures(found) == figures(results)
    assert torch.equal(made.engine.model.optimizer.param, masters)
    made.engine.save_adapter(tmp_path / "end")


@pytest.mark.full
@pytest.mark.parametrize("where", ["leader", "other rank"])
def test_out_of_memory_in_an_evaluation_lets_all_go_on_with_a_smaller_plan(tmp_path, shared, monkeypatch, where):
    recipe, told, failed = recipe_of(tmp_path, exact=True), [], []
    alone, made = shared(recipe, 1), shared(recipe, 2)
    alone.steps(3)
    made.steps(2)
    engine = RecoveringEngine(made.engine, CPU, told.append)
    engine.start(2, made.budget.steps, made.budget.micro_batches)
    loss = alone.engine.held_out_loss(EvaluationRequest(alone.data.validation, 128))

    def fail(one):
        if not failed and (one is made.engine) == (where == "leader"):
            failed.append(True)
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB")

    engine.queue_step()
    Shares(monkeypatch, fail)
    assert engine.held_out_loss(EvaluationRequest(made.data.validation, 128)) == loss
    assert failed
    assert len(told) == 1
    engine.queue_step()
    engine.save_adapter(tmp_path / "adapter")


@pytest.mark.full
def test_a_gradient_that_is_no_number_on_one_rank_skips_the_step_on_all(tmp_path, shared):
    def spoil(engine):
        if int(engine.model.optimizer.counters[0]) == 1 and not spoiled:
            spoiled.append(True)
            engine.model.optimizer.grad[5] = float("nan")

    spoiled = []
    made = shared(recipe_of(tmp_path), 2, failing=spoil)
    results, _ = made.steps(3)
    assert spoiled
    assert [one.taken for one in results] == [True, False, True]
    made.engine.save_adapter(tmp_path / "adapter")  # the weights on both are alike


def test_a_rank_that_fails_otherwise_ends_the_step_with_its_reason(tmp_path, shared):
    def fail(_engine):
        raise ValueError("the disk is gone")

    made = shared(recipe_of(tmp_path), 2, failing=fail)
    with pytest.raises(RankLostError, match="the disk is gone"):
        made.steps(1)


def test_out_of_memory_on_the_leader_drops_the_step_everywhere(tmp_path, shared, monkeypatch):
    recipe = recipe_of(tmp_path, exact=True)
    results, masters = shared(recipe, 1).steps(3)
    made = shared(recipe, 3)
    engine = RecoveringEngine(made.engine, CPU, lambda _text: None)
    engine.start(0, made.budget.steps, made.budget.micro_batches)
    engine.queue_step()
    failed = []

    def fail(_prefetcher):
        failed.append(True)
        raise MemoryError

    monkeypatch.setattr(made.engine._trainer, "step", fail)  # the next plan has another trainer
    engine.queue_step()
    engine.queue_step()
    assert failed == [True]
    assert figures(engine.results(wait=True)) == figures(results)
    assert torch.equal(made.engine.model.optimizer.param, masters)


@pytest.mark.full
def test_weights_that_differ_stop_the_run(tmp_path, shared, monkeypatch):
    monkeypatch.setattr(leading_engine, "CHECK_STEPS", 2)

    def flip(engine):  # one bit of one weight, as a faulty card would
        if engine.model.optimizer.counters[0] == 2:
            engine.model.optimizer.param.view(torch.int32)[7] ^= 1 << 12

    made = shared(recipe_of(tmp_path), 3, failing=flip)
    made.steps(2)
    made.engine.queue_step()
    with pytest.raises(RanksDifferError, match="rank 1"):
        made.engine.queue_step()


def test_weights_that_differ_are_not_saved(tmp_path, shared):
    def flip(engine):
        engine.model.optimizer.param.view(torch.int32)[7] ^= 1 << 12

    made = shared(recipe_of(tmp_path), 2, failing=flip)
    made.steps(1)
    with pytest.raises(RanksDifferError):
        made.engine.save_adapter(tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()


def test_other_rank_memory_is_an_error_of_memory():
    assert isinstance(OtherRankMemoryError(), MemoryError)
