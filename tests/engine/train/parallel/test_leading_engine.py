"""Steps that ranks share, as threads over gloo: the same as accumulation on one process, also in the odd cases."""

from dataclasses import asdict, replace
from typing import get_args

import numpy as np
import pytest
import torch

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.machine import GpuFacts
from burnish_engine.contract.recipe.recipe_train import Optimizer
from burnish_engine.train.base.engine import EvaluationRequest
from burnish_engine.train.base.exchange import ERRORS
from burnish_engine.train.base.stream import References
from burnish_engine.train.exchange.rank_exchange import RankExchange
from burnish_engine.train.parallel import leading_engine
from burnish_engine.train.parallel.ranks import RanksDifferError

from support.models.tiny import write_jsonl
from support.runs.shared_steps import Shares, figures, recipe_of

SIZES = [2, 3, 4]


@pytest.mark.full
def test_exact_ranks_equal_one_process_bit_for_bit(tmp_path, shared):
    recipe = recipe_of(tmp_path, exact=True)
    alone = shared(recipe, 1)
    passes = [alone.spec.stream.tokens(index) for index in range(12)]
    assert len(set(passes)) > 3, "passes of unequal length"
    results, masters = alone.steps(5)
    for size in SIZES:
        found, theirs = shared(recipe, size).steps(5)
        assert figures(found) == figures(results), size
        assert torch.equal(theirs, masters), size


@pytest.mark.full
def test_ranks_equal_accumulation_on_one_process(tmp_path, shared):
    recipe = recipe_of(tmp_path, accumulation=5)
    alone = shared(recipe, 1)
    start = alone.engine.model.optimizer.param.clone()
    results, masters = alone.steps(6)
    moved = (masters - start).abs().max()
    for size in SIZES:
        found, theirs = shared(recipe, size).steps(6)
        for one, other in zip(found, results, strict=True):
            assert (one.step, one.micro_batches, one.tokens, one.supervised) == (
                other.step, other.micro_batches, other.tokens, other.supervised,
            )  # fmt: skip
            assert one.loss == pytest.approx(other.loss, rel=1e-6)
            assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-5)
        assert (theirs - masters).abs().max() <= 1e-4 * moved, size


def test_slices_exchanged_within_the_backward_pass_give_the_bits_of_one_exchange(tmp_path, shared, monkeypatch):
    """Of two ranks: of more, gloo adds up each slice in an order of its own."""
    begun, real = [], RankExchange.sum_slice
    monkeypatch.setattr(RankExchange, "sum_slice", lambda self, *rest: begun.append(rest[0]) or real(self, *rest))
    results, masters = shared(recipe_of(tmp_path, exchange="whole"), 2).steps(5)
    assert not begun
    made = shared(recipe_of(tmp_path, exchange="sliced"), 2)
    slices = made.engine._exchange.slices
    assert [part.end for part in slices[1:]] == [part.start for part in slices[:-1]], "each once, from the top"
    assert slices[0].end == made.engine.model.optimizer.layout.total
    assert slices[-1].start == 0
    found, theirs = made.steps(5)
    assert sorted(begun) == sorted([*range(len(slices))] * 2 * 5)
    assert figures(found) == figures(results)
    assert torch.equal(theirs, masters)


@pytest.mark.full
def test_exact_slices_give_the_bits_of_one_process(tmp_path, shared):
    results, masters = shared(recipe_of(tmp_path, exact=True), 1).steps(4)
    found, theirs = shared(recipe_of(tmp_path, exact=True, exchange="sliced"), 3).steps(4)
    assert figures(found) == figures(results)
    assert torch.equal(theirs, masters)


@pytest.mark.full
@pytest.mark.parametrize("size", [2, 3])
def test_rounded_gradients_train_almost_the_same_and_resume_exactly(tmp_path, shared, size):
    recipe = recipe_of(tmp_path, exchange="bf16", accumulation=4)
    alone = shared(recipe_of(tmp_path), 1)
    start = alone.engine.model.optimizer.param.clone()
    results, masters = alone.steps(6)
    whole = shared(recipe, size)
    found, theirs = whole.steps(6)
    assert [one.loss for one in found] == pytest.approx([one.loss for one in results], rel=2e-3)
    assert not torch.equal(theirs, masters)
    assert (theirs - masters).norm() < 0.05 * (masters - start).norm()
    cut = shared(recipe, size)
    cut.steps(3)
    cut.engine.save_adapter(tmp_path / "adapter")
    state = cut.engine.optimizer_tensors()
    assert sum(name.startswith(ERRORS) for name in state) == 2 * size
    resumed = shared(recipe, size, adapter=tmp_path / "adapter")
    resumed.engine.restore_optimizer(state)
    later, others = resumed.steps(3, first=3)
    assert figures(later) == figures(found[3:])
    assert torch.equal(others, theirs)
    single = shared(recipe, 1, adapter=tmp_path / "adapter")
    single.engine.restore_optimizer(state)
    assert single.steps(1, first=3)[0][0].loss == pytest.approx(found[3].loss, rel=1e-5)


@pytest.mark.full
def test_exact_sums_are_those_of_plain_accumulation(tmp_path, shared):
    results, masters = shared(recipe_of(tmp_path), 1).steps(4)
    found, theirs = shared(recipe_of(tmp_path, exact=True), 1).steps(4)
    for one, other in zip(found, results, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-6)
        assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-6)
    assert torch.allclose(theirs, masters, rtol=1e-4, atol=1e-7)


@pytest.mark.full
@pytest.mark.parametrize("exact", [False, True])
def test_ranks_without_a_pass_or_without_supervised_tokens_join_in(tmp_path, shared, exact):
    """A step has two passes for three ranks, and one row of six is learned."""
    recipe = recipe_of(tmp_path, exact=exact, accumulation=2, pack=False)

    def silent(rows):
        return [
            replace(row, supervised=row.supervised if index % 6 == 0 else np.zeros_like(row.supervised))
            for index, row in enumerate(rows[index] for index in range(len(rows)))
        ]

    results, masters = shared(recipe, 1, change=silent).steps(9)
    found, theirs = shared(recipe, 3, change=silent).steps(9)
    counts = [one.supervised for one in results]
    assert 0 in counts, "a step without supervised tokens"
    assert any(counts)
    assert [one.supervised for one in found] == counts
    assert [one.loss for one in found] == pytest.approx([one.loss for one in results], rel=1e-6)
    if exact:
        assert torch.equal(theirs, masters)
    assert torch.allclose(theirs, masters, rtol=1e-4, atol=1e-7)


@pytest.mark.full
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("objective", ["dpo", "kto"])
def test_preferences_are_shared_as_well(tmp_path, shared, objective, exact):
    rows = [
        {"prompt": f"Lamp {number}?", "chosen": "Gladly." * (1 + number % 3), "rejected": "No."}
        if objective == "dpo"
        else {"prompt": f"Lamp {number}?", "completion": f"Gladly, {number}.", "label": number % 3 == 0}
        for number in range(24)
    ]
    recipe = recipe_of(tmp_path, exact=exact, accumulation=3)
    files = {"files": [str(write_jsonl(tmp_path / "rows.jsonl", rows))], "validation_files": []}
    recipe = recipe.model_copy(
        update={
            "data": recipe.data.model_copy(update=files),
            "preference": recipe.preference.model_copy(update={"objective": objective}),
        }
    )
    none = np.zeros((0, 1), np.float32)
    known, other = (np.full((24, width), -9.0, np.float32) for width in (2 if objective == "dpo" else 1, 1))
    references = References(known, none, other, none)
    results, masters = shared(recipe, 1, references=references).steps(3)
    found, theirs = shared(recipe, 2, references=references).steps(3)
    for one, other in zip(found, results, strict=True):
        same, wanted = (
            {name: value for name, value in asdict(of.preference).items() if value is not None} for of in (one, other)
        )
        assert same == pytest.approx(wanted, rel=1e-5, abs=1e-6)
        assert one.loss == pytest.approx(other.loss, rel=1e-6)
    assert torch.allclose(theirs, masters, rtol=1e-4, atol=1e-6)
    if exact:
        assert figures(found) == figures(results)
        assert [one.preference for one in found] == [one.preference for one in results]
        assert torch.equal(theirs, masters)


@pytest.mark.full
@pytest.mark.parametrize("optimizer", [*get_args(Optimizer), "masked", "dora"])
def test_every_optimizer_keeps_ranks_alike(tmp_path, shared, optimizer):
    """Ranks stay alike around an evaluation, for which some switch to other weights and at a new beginning."""
    changes = {"masked": ("masking", {"kind": "magma"}), "dora": ("adapter", {"method": "dora", "dropout": 0.0})}
    name, change = changes.get(optimizer, ("train", {"optimizer": optimizer}))
    recipe = recipe_of(tmp_path, exact=True)
    recipe = recipe.model_copy(update={name: getattr(recipe, name).model_copy(update=change)})
    assert change.items() <= vars(getattr(recipe, name)).items()

    def trained(size):
        made = shared(recipe, size)
        results, _ = made.steps(2)
        loss = made.engine.held_out_loss(EvaluationRequest(made.data.validation, 128))
        made.engine.queue_step()
        results += made.engine.results(wait=True)
        made.engine.save_adapter(tmp_path / f"{size}")
        more, masters = made.steps(2, first=3)
        return figures(results + more), loss, masters

    (alone, loss, masters), (found, other, theirs) = trained(1), trained(2)
    assert found == alone
    assert other == loss
    assert torch.equal(theirs, masters)


@pytest.mark.full
@pytest.mark.parametrize("size", SIZES)
def test_an_evaluation_is_dealt_to_all_ranks_and_gives_the_bits_of_one(tmp_path, shared, monkeypatch, size):
    monkeypatch.setattr(leading_engine, "ROUND_PASSES", 2)
    recipe, told = recipe_of(tmp_path, exact=True), []
    alone, made = shared(recipe, 1), shared(recipe, size)
    for one in (alone, made):
        one.steps(2)
    rows, first = [made.data.train[index] for index in range(17)], Shares(monkeypatch)
    loss = alone.engine.held_out_loss(EvaluationRequest(rows, 128))
    ((passes,),) = first.passes.values()
    dealt = Shares(monkeypatch)
    assert made.engine.held_out_loss(EvaluationRequest(rows, 128, told.append)) == loss
    assert len(dealt.passes) == size, "every rank had some"
    assert sum(map(sum, dealt.passes.values())) == passes
    assert len(dealt.passes[id(made.engine)]) == -(-passes // (2 * size)), "in rounds"
    assert told == sorted(told)
    assert told[-1] == len(rows)
    made.engine.save_adapter(tmp_path / "adapter")  # weights are alike still


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("started", [False, True])
def test_log_probabilities_are_dealt_where_all_ranks_hold_the_weights(tmp_path, shared, monkeypatch, started):
    """Before the start other ranks lack the leader's weights, and yet what concerns no adapter is shared."""
    recipe = recipe_of(tmp_path, exact=True)
    alone, made = shared(recipe, 1), shared(recipe, 2)
    for one in (alone, made) if started else ():
        one.steps(2)
    rows = [made.data.train[index] for index in range(9)]
    for adapter in (False, True):
        wanted = alone.engine.log_probs(EvaluationRequest(rows, 128), adapter=adapter)
        dealt = Shares(monkeypatch)
        assert np.array_equal(made.engine.log_probs(EvaluationRequest(rows, 128), adapter=adapter), wanted)
        assert len(dealt.passes) == (2 if started or not adapter else 1)
        assert (wanted < 0).any()


def rounding_otherwise(engine):
    """Let the updates of a rank differ in the last bits, as those of another model of GPU do."""
    optimizer = engine.model.optimizer
    if "step" not in vars(optimizer):
        step = optimizer.step

        def other():
            step()
            optimizer.param.mul_(1 + 2**-20)

        optimizer.step = other


@pytest.mark.full
def test_gpus_of_several_models_share_a_run_by_their_speed_and_keep_the_leaders_weights(tmp_path, shared, monkeypatch):
    monkeypatch.setattr(leading_engine, "CHECK_STEPS", 2)
    recipe = recipe_of(tmp_path, accumulation=6)
    results, masters = shared(recipe, 1).steps(6)
    names = ["NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090"]
    gpus = [GpuFacts(index=0, name=name, compute_capability=(8, 6)) for name in names]
    made = shared(recipe, 3, gpus=gpus, failing=rounding_otherwise)
    found, theirs = made.steps(6)
    assert len(made.engine._rank_exchange.deal([made.spec.stream[0]] * 6)) == 4, "of 6, at 2.3 times the speed"
    for one, other in zip(found, results, strict=True):
        assert (one.tokens, one.supervised) == (other.tokens, other.supervised)
        assert one.loss == pytest.approx(other.loss, rel=1e-5)
    assert torch.allclose(theirs, masters, rtol=1e-3, atol=1e-5)
    made.engine.save_adapter(tmp_path / "adapter")  # after a comparison of all ranks

    alike = shared(recipe, 3, failing=rounding_otherwise)
    with pytest.raises(RanksDifferError):
        alike.steps(6)


def test_unlike_gpus_cannot_train_the_bits_of_one(tmp_path, shared):
    gpus = [GpuFacts(index=0, name=name) for name in ("NVIDIA H100 80GB HBM3", "NVIDIA H200")]
    with pytest.raises(UsageError, match="exact"):
        shared(recipe_of(tmp_path, exact=True), 2, gpus=gpus)


def test_a_dry_run_is_the_leaders_alone(tmp_path, shared):
    asked = []
    made = shared(recipe_of(tmp_path), 2, failing=asked.append)
    batch = made.spec.stream[0]
    made.engine.start(0, 1, 2, [batch, batch])
    made.engine.queue_step()
    (result,) = made.engine.results(wait=True)
    assert result.tokens == 2 * batch.tokens
    assert not asked
    made.engine.save_adapter(tmp_path / "adapter")
