"""Lengths and hashes of many pairs are those of each pair alone."""

import numpy as np
import pytest

from burnish_engine.data.rows.row_log import RowLog
from burnish_engine.data.tokens import pair_keys as module
from burnish_engine.data.tokens.documents import ShardedDocuments
from burnish_engine.data.tokens.shard import Shard


def make_shard(pairs):
    """A shard of pairs, each two lists of (token, whether it is supervised), prompt and chosen, prompt and rejected."""
    tokens, spans, ends, span_ends, begins = [], [], [], [], []
    for pair in pairs:
        flags = [flag for sequence in pair for _, flag in sequence]
        spans += [(place, place + 1) for place, flag in enumerate(flags) if flag]
        tokens += [token for sequence in pair for token, _ in sequence]
        ends.append(len(tokens))
        span_ends.append(len(spans))
        begins.append(len(pair[0]))
    none = np.zeros(len(pairs), dtype=np.int64)
    return Shard(
        tokens=np.array(tokens, dtype=np.int32), token_ends=np.array(ends, dtype=np.int64),
        spans=np.array(spans, dtype=np.int32).reshape(-1, 2), span_ends=np.array(span_ends, dtype=np.int64),
        rows=none, sources=none, positions=none, digests=none, rejected_from=np.array(begins, dtype=np.int64),
        desirable=none, bands=np.zeros((len(pairs), 8), dtype=np.uint32), log=RowLog(),
    )  # fmt: skip


def drawn(count, seed):
    """Pairs of short prompts and replies, so that many are equal; some replies come in two stretches."""
    draw = np.random.default_rng(seed)

    def sequence():
        asked = [(int(draw.integers(0, 2)), False) for _ in range(draw.integers(0, 3))]
        reply = [(int(draw.integers(0, 2)), True) for _ in range(draw.integers(0, 3))]
        further = [(7, False), (int(draw.integers(0, 2)), True)] if draw.integers(0, 4) == 0 else []
        return [(9, False), *asked, *reply, *further, (8, False)]

    return [(sequence(), sequence()) for _ in range(count)]


def parts(pair):
    """Prompt, chosen and rejected reply of a pair, the slow way."""
    chosen, rejected = pair
    begin = next((place for place, (_, flag) in enumerate(chosen) if flag), len(chosen))
    replies = [tuple(token for token, flag in sequence if flag) for sequence in (chosen, rejected)]
    return tuple(token for token, _ in chosen[:begin]), *replies


@pytest.mark.parametrize("chunk", [1, 40, 1 << 20])
def test_equal_parts_have_equal_hashes_and_others_do_not(monkeypatch, chunk):
    monkeypatch.setattr(module, "_CHUNK_TOKENS", chunk)
    pairs = drawn(300, seed=3)
    documents = ShardedDocuments([make_shard(pairs[:120]), make_shard(pairs[120:])], ["a.jsonl"], 1000)
    lengths, keys = documents.pair_keys()
    known = [parts(pair) for pair in pairs]
    assert lengths.tolist() == [[len(chosen), len(rejected)] for _, chosen, rejected in known]
    for column in range(3):
        of_part = dict(zip((part[column] for part in known), keys[:, column].tolist(), strict=True))
        assert [of_part[part[column]] for part in known] == keys[:, column].tolist()
        assert len(set(of_part.values())) == len(of_part) > 3
    replies = {part[1]: key for part, key in zip(known, keys[:, 1].tolist(), strict=True)}
    assert all(
        replies.get(part[2], key) == key for part, key in zip(known, keys[:, 2].tolist(), strict=True)
    )  # chosen and rejected are comparable


def test_no_documents_have_no_keys():
    lengths, keys = ShardedDocuments([], [], 10).pair_keys()
    assert (lengths.shape, keys.shape) == ((0, 2), (0, 3))
