"""Tiles cover every row once, stay within the capacity that captured graphs count on, and come heaviest first."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish_kernels.attention.tiles import document_rows, document_tiles, tile_capacity, tiles_per_pass

LENGTHS = st.lists(st.integers(1, 90), max_size=60)


def halves(lengths, tile_rows):
    boundaries = np.cumsum([0, *lengths])
    tiles = document_tiles(boundaries, tile_rows, int(boundaries[-1]))
    assert tiles.dtype == np.int32
    assert tiles.shape == (tile_capacity(int(boundaries[-1]), tile_rows), 4)
    return boundaries, np.split(tiles, 2)


@pytest.mark.full
@given(LENGTHS, st.sampled_from([1, 16, 64]))
def test_every_row_lies_in_one_tile_of_each_half(lengths, tile_rows):
    boundaries, parts = halves(lengths, tile_rows)
    start, end = document_rows(boundaries, int(boundaries[-1]))
    for part in parts:
        used = part[part[:, 1] > 0]
        assert (part[len(used) :] == 0).all()
        rows = [row for first, count, _, _ in used for row in range(first, first + count)]
        assert sorted(rows) == list(range(boundaries[-1]))
        assert used[:, 1].max(initial=0) <= tile_rows
        for first, count, first_key, past_query in used:
            assert first_key == start[first]
            assert past_query == end[first + count - 1]


@pytest.mark.full
@given(LENGTHS, st.sampled_from([16, 64]))
def test_a_document_is_cut_only_where_it_fits_no_tile(lengths, tile_rows):
    boundaries, (part, _) = halves(lengths, tile_rows)
    for first, count, first_key, past_query in part[part[:, 1] > 0]:
        one_document = past_query == boundaries[np.searchsorted(boundaries, first, side="right")]
        whole = first_key == first and past_query == first + count
        assert one_document or past_query == first + count
        assert whole or count == tile_rows or past_query == first + count


@pytest.mark.full
@given(LENGTHS, st.sampled_from([16, 64]))
def test_halves_are_sorted_by_the_work_of_queries_and_of_keys(lengths, tile_rows):
    _, (by_keys, by_queries) = halves(lengths, tile_rows)
    assert (np.diff(by_keys[:, 0] + by_keys[:, 1] - by_keys[:, 2]) <= 0).all()
    assert (np.diff(by_queries[:, 3] - by_queries[:, 0]) <= 0).all()
    assert sorted(map(tuple, by_keys)) == sorted(map(tuple, by_queries))


@pytest.mark.full
@given(st.integers(1, 2000), st.integers(1, 128))
def test_worst_documents_fit(rows, tile_rows):
    """Just more than half a tile each, so that no two share one."""
    length = tile_rows // 2 + 1
    lengths = [length] * (rows // length)
    used = halves(lengths, tile_rows)[1][0][:, 1] > 0
    assert used.sum() <= tiles_per_pass(sum(lengths), tile_rows)


def test_rows_know_their_documents():
    start, end = document_rows(np.array([0, 2, 2, 5]), 5)  # the second document has no rows
    assert start.tolist() == [0, 0, 2, 2, 2]
    assert end.tolist() == [2, 2, 5, 5, 5]
    assert start.dtype == end.dtype == np.int32


@pytest.mark.parametrize("boundaries", [[], [0], [1, 4], [0, 3], [0, 3, 2, 4], [[0, 4]]])
def test_boundaries_that_are_none_are_refused(boundaries):
    with pytest.raises(ValueError, match="rise from 0"):
        document_tiles(np.array(boundaries, dtype=np.int64), 16, 4)
