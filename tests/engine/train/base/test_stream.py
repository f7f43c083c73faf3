"""Which micro-batch of a run takes the most memory."""

import numpy as np
import pytest

from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.train.base.stream import BatchStream


def document(tokens, learned):
    return Document(np.arange(tokens, dtype=np.int32), np.arange(tokens) >= tokens - learned, 0, "")


def shape(batch):
    return sorted(int(length) for length in np.diff(batch.boundaries)), batch.supervised_tokens


@pytest.fixture
def stream():
    rows = [document(60, 5), document(10, 5), document(70, 3), document(29, 9), *[document(8, 1) for _ in range(5)]]
    return BatchStream(rows, TrainSection(micro_batch_tokens=70))


def test_most_tokens_then_most_learned(stream):
    assert shape(stream.longest(3)) == ([10, 60], 10)


def test_padded_most_rows_times_the_longest_one(stream):
    assert shape(stream.longest(3, padded=True)) == ([8, 8, 8, 8, 8, 29], 14)


def test_only_what_the_run_trains_counts(stream):
    sizes = [stream.tokens(index) for index in range(9)]
    for count in range(1, 10):
        assert stream.longest(count).tokens == max(sizes[:count])


def test_passes_of_later_epochs_count_too():
    rows = [document(35, learned) for learned in (1, 2, 10, 20)]  # two a pass, paired anew in every epoch
    stream = BatchStream(rows, TrainSection(micro_batch_tokens=70))
    learned = [stream.supervised(index) for index in range(8)]
    assert max(learned[:2]) < max(learned)
    assert stream.longest(8).supervised_tokens == max(learned)


def test_every_epoch_trains_on_each_row_once_in_another_order():
    rows = [document(5 + 7 * number % 40, 2 + number % 3) for number in range(30)]
    stream = BatchStream(rows, TrainSection(micro_batch_tokens=70))
    epochs, first = [], 0
    for number in range(1, 4):
        last = next(index for index in range(first + 1, 99) if stream.epoch_of(index) >= number)
        assert stream.epoch_of(last) == number
        batches = [stream[index] for index in range(first, last)]
        assert sorted(row for batch in batches for row in batch.rows) == list(range(30))
        for index, batch in enumerate(batches, first):
            assert (stream.tokens(index), stream.supervised(index)) == (batch.tokens, batch.supervised_tokens)
        epochs.append([batch.rows for batch in batches])
        first = last
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]


def test_the_last_step_takes_the_passes_that_are_left():
    rows = [document(40, 3) for _ in range(7)]  # one a pass
    for accumulation, steps in ((1, 14), (2, 7), (3, 5), (4, 4), (20, 1)):
        section = TrainSection(micro_batch_tokens=70, epochs=2.0, accumulation=accumulation)
        budget = BatchStream(rows, section).budget()
        assert (budget.micro_batches, budget.steps, budget.per_epoch) == (14, steps, 7)
    limited = BatchStream(rows, TrainSection(micro_batch_tokens=70, epochs=2.0, accumulation=3, max_steps=2)).budget()
    assert (limited.micro_batches, limited.steps) == (6, 2)


@pytest.mark.parametrize(
    ("pack", "budget", "most"), [(True, 70, 70), (True, 999, 209), (False, 999, 70), (False, 70, 70)]
)
def test_no_pass_is_larger_than_the_rows_can_make_it(pack, budget, most):
    rows = [document(60, 5), document(10, 5), document(70, 3), document(29, 9), document(40, 1)]
    stream = BatchStream(rows, TrainSection(micro_batch_tokens=budget, pack=pack))
    assert stream.most_tokens == most
    assert stream.longest_document == 70
    assert max(stream.tokens(index) for index in range(len(stream.first_epoch))) <= most
