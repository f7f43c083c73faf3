"""Tokens are drawn by their shares, rows end where they should, and bad arguments are named."""

import numpy as np
import pytest
import torch

from burnish_kernels.sample import reference
from burnish_kernels.sample.cases import choice_of
from burnish_kernels.sample.op import ReplyRows, choose, record
from burnish_kernels.sample.reference import shares

LOGITS = torch.tensor([[1.0, 3.0, 2.0, -float("inf")]])


def drawn(rule, count=2000):
    """Shares of the tokens among draws of the reference, which the kernel's cases are compared with."""
    counts = torch.arange(count, dtype=torch.int32)
    chosen = reference.choose(LOGITS.expand(count, 4), choice_of([rule] * count, "cpu"), counts, None)
    return np.bincount(chosen.numpy(), minlength=4) / count


def test_tokens_come_by_their_shares():
    wanted = torch.softmax(LOGITS[0], dim=0).numpy()
    np.testing.assert_allclose(drawn((1.0, 1.0, 0.0, 0)), wanted, atol=0.04)
    np.testing.assert_allclose(drawn((0.5, 1.0, 0.0, 0)), torch.softmax(LOGITS[0] * 2, dim=0).numpy(), atol=0.04)
    assert drawn((0.0, 1.0, 0.0, 0), 20)[1] == 1.0


@pytest.mark.parametrize(
    ("rule", "kept"),
    [
        ((1.0, 0.7, 0.0, 0), {1, 2}),
        ((1.0, 0.1, 0.0, 0), {1}),
        ((1.0, 1.0, 0.0, 2), {1, 2}),
        ((1.0, 1.0, 0.3, 0), {1, 2}),
        ((1.0, 0.7, 0.0, 1), {1}),
    ],
)
def test_only_tokens_within_the_bounds_are_drawn(rule, kept):
    assert set(np.flatnonzero(drawn(rule, 300))) == kept
    assert set(shares(LOGITS[0], *rule).nonzero().flatten().tolist()) == kept


def rows_of(live, made, limit, slots=4):
    numbers = {name: torch.zeros(slots, dtype=torch.int32) for name in ("place", "length")}
    counts = {
        name: torch.tensor(value, dtype=torch.int32)
        for name, value in (("live", live), ("made", made), ("limit", limit))
    }
    return ReplyRows(
        ids=torch.zeros(slots, dtype=torch.int64), recent=torch.zeros(slots, 8, dtype=torch.int32), **numbers, **counts
    )


@pytest.mark.parametrize("slotted", [False, True])
def test_replies_end_at_a_stop_or_at_their_limit(slotted):
    rows = rows_of([1, 1, 0, 1], [0, 9, 2, 4], [5, 20, 5, 5])
    rows.length.fill_(30)
    tokens, stops = torch.tensor([11, 12, 13, 14]), torch.tensor([12, 99], dtype=torch.int32)
    order = torch.tensor([3, 2, 1, 0])
    if slotted:
        record(tokens[order], rows, stops, slots_B=order.int())
    else:
        record(tokens, rows, stops)
    assert rows.live.tolist() == [1, 0, 0, 0]
    assert rows.made.tolist() == [1, 10, 2, 5]
    assert rows.length.tolist() == [31, 0, 30, 0]
    assert rows.ids.tolist() == [11, 0, 0, 0]
    assert rows.place.tolist() == [1, 0, 0, 0]
    assert (rows.recent[0, 0], rows.recent[1, 1], rows.recent[3, 4]) == (11, 12, 14)
    assert int(rows.recent.sum()) == 37


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"logits_BV": LOGITS[0]}, "logits"),
        ({"logits_BV": LOGITS.int()}, "logits"),
        ({"count_S": torch.ones(1)}, "counts"),
        ({"count_S": torch.ones(3, dtype=torch.int32)}, "temperature"),
        ({"slots_B": torch.zeros(1, dtype=torch.int64)}, "slots"),
        ({"logits_BV": LOGITS.expand(2, 4)}, "do not fit"),
        ({"softcap": 0.0}, "soft cap"),
    ],
)
def test_bad_arguments_are_named(change, words):
    given = {
        "logits_BV": LOGITS,
        "choice": choice_of([(1.0, 1.0, 0.0, 0)], "cpu"),
        "count_S": torch.ones(1, dtype=torch.int32),
    }
    with pytest.raises(ValueError, match=words):
        choose(**given | change)
