"""Prompts with replies to other prompts: whose reply each one takes, and that nothing is longer than allowed."""

from __future__ import annotations

import numpy as np
import pytest

from burnish_engine.data.tokens.mismatch import MismatchedDocuments
from burnish_engine.data.tokens.tokenize import Document


def document(prompt, reply):
    ids = np.array([*prompt, *reply], dtype=np.int32)
    return Document(ids, np.arange(len(ids)) >= len(prompt), 1, "rows.jsonl")


def test_each_prompt_takes_the_reply_before_as_trl_does_in_one_batch():
    prompts, replies = [[1, 2], [3], [4, 5, 6]], [[10, 11], [12], [13, 14, 15]]
    found = MismatchedDocuments([document(*one) for one in zip(prompts, replies, strict=True)], 99)
    trl = [replies[-1], *replies[:-1]]  # trl.KTOTrainer, add_kl_completion_ids
    assert [one.input_ids.tolist() for one in found] == [a + b for a, b in zip(prompts, trl, strict=True)]
    assert [one.supervised.tolist() for one in found] == [
        [False] * len(a) + [True] * len(b) for a, b in zip(prompts, trl, strict=True)
    ]
    assert found.lengths.tolist() == [len(one) for one in found]


def test_replies_to_the_same_prompt_are_no_mismatch():
    rows = [document([1], [10]), document([1], [11]), document([2], [12]), document([2], [13]), document([1], [14])]
    found = [one.input_ids[1] for one in MismatchedDocuments(rows, 99)]
    assert found == [13, 13, 11, 11, 13]


@pytest.mark.parametrize("count", [1, 3])
def test_where_all_prompts_are_the_same_the_one_before_must_do(count):
    rows = [document([7], [10 + number]) for number in range(count)]
    assert [one.input_ids[1] for one in MismatchedDocuments(rows, 99)] == [10 + (n - 1) % count for n in range(count)]


def test_long_ones_are_cut_and_a_prompt_that_fills_the_row_has_nothing_to_learn():
    rows = [document([1, 2, 3, 4], [10]), document([5], [11, 12, 13, 14, 15])]
    found = MismatchedDocuments(rows, 4)
    assert [one.input_ids.tolist() for one in found] == [[1, 2, 3, 4], [5, 10]]
    assert [one.supervised_tokens for one in found] == [0, 1]
    assert found.lengths.tolist() == [4, 2]
    assert len(found[0:2]) == 2
