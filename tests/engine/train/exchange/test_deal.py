"""Which rank computes which passes."""

import numpy as np
import pytest

from burnish_engine.data.tokens.pack import ATTENTION_TOKENS, pass_cost
from burnish_engine.train.exchange.deal import cost_of, deal_by_cost, deal_in_turn

from support.models import parity


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_pass_is_dealt_once(ranks):
    costs = np.random.default_rng(ranks).random(11).tolist()
    for dealt in (deal_by_cost(costs, ranks), deal_in_turn(len(costs), ranks)):
        assert len(dealt) == ranks
        assert sorted(index for indices in dealt for index in indices) == list(range(11))
        assert all(indices == sorted(indices) for indices in dealt)


def test_unequal_passes_are_dealt_evenly():
    dealt = deal_by_cost([9.0, 1.0, 1.0, 5.0, 4.0, 2.0], 2)
    assert [sum([9.0, 1.0, 1.0, 5.0, 4.0, 2.0][index] for index in indices) for indices in dealt] == [11.0, 11.0]


def test_a_faster_rank_gets_as_many_more_passes():
    assert [len(dealt) for dealt in deal_by_cost([1.0] * 12, 3, [3.0, 2.0, 1.0])] == [6, 4, 2]
    assert deal_by_cost([4.0, 1.0], 2, [1.0, 4.0]) == [[1], [0]], "the long one where it ends first"
    assert deal_by_cost([1.0, 1.0], 2, [9.0, 1.0]) == [[0, 1], []], "waiting for the slow one would take longer"


def test_ranks_beyond_the_passes_get_none():
    assert deal_by_cost([1.0, 3.0], 4) == [[1], [0], [], []]
    assert deal_in_turn(2, 3) == [[0], [1], []]


def test_long_documents_cost_more_than_their_tokens():
    assert pass_cost([ATTENTION_TOKENS]) == 2 * ATTENTION_TOKENS
    assert pass_cost([50, 50]) < pass_cost([100])
    assert cost_of(parity.micro_batch((30, 20))) == pass_cost([30, 20])
