"""Micro-batches of like cost come into the same step, so that ranks that share it need not wait for one another."""

import numpy as np
import pytest

from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.data.tokens.documents import lengths_of
from burnish_engine.data.tokens.pack import epoch_batches, pass_cost
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.train.base.stream import BatchStream


@pytest.fixture(scope="module")
def documents():
    """Lengths as in instruction data, up to the budget."""
    random = np.random.default_rng(3)
    lengths = random.lognormal(5.2, 0.9, 6000).astype(int).clip(16, 2048)
    return [
        Document(np.ones(length, np.int32), np.ones(length, bool), row, "file") for row, length in enumerate(lengths)
    ]


def costs(documents, plan):
    lengths = lengths_of(documents)
    return np.array([pass_cost(lengths[list(group)].tolist()) for group in plan.groups])


def waiting(costs, ranks):
    """Share of time that ranks wait where each computes one pass of every step."""
    steps = costs[: len(costs) // ranks * ranks].reshape(-1, ranks)
    return 1 - steps.mean(axis=1).sum() / steps.max(axis=1).sum()


@pytest.mark.full
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_with_a_pass_each_wait_less_than_one_percent(documents, ranks):
    usual, alike = (epoch_batches(documents, 4096, True, 0, 0, step=step) for step in (1, ranks))
    assert sorted(usual.groups) == sorted(alike.groups)
    assert waiting(costs(documents, usual), ranks) > 0.01
    assert waiting(costs(documents, alike), ranks) < 0.01


@pytest.mark.full
def test_steps_come_in_random_order(documents):
    plan = epoch_batches(documents, 4096, True, 0, 0, step=4)
    means = costs(documents, plan)[: len(plan) // 4 * 4].reshape(-1, 4).mean(axis=1)
    correlation = np.corrcoef(means, np.arange(len(means)))[0, 1]
    assert abs(correlation) < 0.35
    other = epoch_batches(documents, 4096, True, 0, 1, step=4)
    assert plan.groups != other.groups


@pytest.mark.full
@pytest.mark.parametrize("accumulation", [3, 7])
def test_steps_over_the_end_of_an_epoch_are_alike_too(documents, accumulation):
    """The epoch's length is no multiple of the step's: the next one's steps begin where its first passes end."""
    few = documents[:700]
    section = TrainSection(accumulation=accumulation, micro_batch_tokens=2048, epochs=3.0)
    stream = BatchStream(few, section, alike=True)
    per_epoch = len(stream.first_epoch)
    assert per_epoch % accumulation
    found = np.array([pass_cost(np.diff(stream[index].boundaries).tolist()) for index in range(3 * per_epoch)])
    steps = found[: len(found) // accumulation * accumulation].reshape(-1, accumulation)
    crossing = {per_epoch // accumulation, 2 * per_epoch // accumulation}
    inner = [step for number, step in enumerate(steps) if number not in crossing]
    assert np.mean([1 - step.mean() / step.max() for step in inner]) < 0.02
    for epoch in range(3):
        rows = [row for index in range(per_epoch) for row in stream[epoch * per_epoch + index].rows]
        assert sorted(rows) == list(range(700))


@pytest.mark.full
def test_one_process_alone_keeps_the_usual_order(documents):
    section = TrainSection(accumulation=4, micro_batch_tokens=4096)
    stream = BatchStream(documents, section)
    usual = epoch_batches(documents, 4096, True, section.seed, 0)
    assert [stream[index].rows for index in range(20)] == list(usual.groups[:20])
