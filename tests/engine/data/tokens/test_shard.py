"""Shards on the disk: read back as they were written, and not kept in memory."""

import os

import numpy as np
import psutil
import pytest

from burnish_engine.data.rows.row_log import RowLog
from burnish_engine.data.tokens.documents import DocumentSelection, ShardedDocuments
from burnish_engine.data.tokens.shard import Shard, read_shard, write_shard


def shard(lengths, first=0):
    ends, count = np.cumsum(lengths), len(lengths)
    numbers = np.arange(count, dtype=np.int64)
    return Shard(
        tokens=np.arange(first, first + ends[-1], dtype=np.int32), token_ends=ends,
        spans=np.array([[1, length] for length in lengths], dtype=np.int32), span_ends=numbers + 1, rows=numbers + 1,
        sources=numbers * 0, positions=numbers, digests=numbers + first, rejected_from=numbers * 0,
        desirable=numbers * 0 + 1, bands=np.zeros((count, 8), dtype=np.uint32), log=RowLog(rows=count),
    )  # fmt: skip


def on_disk(path, made):
    write_shard(path, made)
    return read_shard(path)


def test_documents_of_several_shards_come_in_the_order_asked_for(tmp_path):
    shards = [on_disk(tmp_path / f"{n}.arrow", shard([3, 2], first=100 * n)) for n in range(3)]
    documents = ShardedDocuments(shards, ["rows.jsonl"], 99)
    chosen = DocumentSelection(documents, np.array([5, 0, 0, 3, 2]))
    firsts = [203, 0, 0, 103, 100]
    assert [int(document.input_ids[0]) for document in chosen] == firsts
    assert [int(chosen[at].input_ids[0]) for at in range(5)] == firsts
    assert documents.digests.tolist() == [0, 1, 100, 101, 200, 201]
    assert documents.lengths.tolist() == [3, 2] * 3


@pytest.mark.skipif(os.name == "nt", reason="Windows takes pages of a mapped file back by itself")
def test_what_was_read_of_a_shard_does_not_stay_in_memory(tmp_path):
    large = on_disk(tmp_path / "0.arrow", shard([2**23]))
    before = psutil.Process().memory_info().rss
    total = int(large.tokens.sum())
    large.release()
    assert psutil.Process().memory_info().rss < before + 2**24
    assert int(large.tokens.sum()) == total
