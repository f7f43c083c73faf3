"""Assign rows to programs, computed on the CPU once a batch and shared by all layers.

A tile is a run of rows: queries in the forward pass and in dQ, keys in dK/dV. A fixed grid over (longest document) x
(documents) would be mostly empty programs; a list of tiles has none but its padding, and its length depends on the
number of rows alone, so that a captured graph replays with any documents.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

COLUMNS = 4
"""First row, rows, first key row, one past the last query row."""


def tiles_per_pass(total_rows: int, tile_rows: int) -> int:
    """Return the most tiles that any documents can need: two neighbors together always exceed `tile_rows`."""
    return 2 * -(-total_rows // tile_rows) + 1


def tile_capacity(total_rows: int, tile_rows: int) -> int:
    """Return the rows of `document_tiles`' list: one part in the order of queries' work, one in that of keys'."""
    return 2 * tiles_per_pass(total_rows, tile_rows)


def document_rows(boundaries: NDArray[np.integer], total_rows: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the first row of each row's document and one past its last.

    Args:
        boundaries: first row of each document, then `total_rows`.
        total_rows: rows of the pack, padding included.

    Returns:
        `start_T` and `end_T`, both `[total_rows]`.
    """
    edges = _edges(boundaries, total_rows)
    lengths = np.diff(edges)
    return np.repeat(edges[:-1], lengths).astype(np.int32), np.repeat(edges[1:], lengths).astype(np.int32)


def document_tiles(boundaries: NDArray[np.integer], tile_rows: int, total_rows: int) -> NDArray[np.int32]:
    """Cut the rows into tiles.

    A tile starts where the last one ended and takes whole documents while they fit; if not even the first fits, it
    takes `tile_rows` of it. So short documents share a tile, and long ones leave at most one tile partly filled.

    Args:
        boundaries: first row of each document, then `total_rows`.
        tile_rows: most rows of a tile.
        total_rows: rows of the pack, padding included.

    Returns:
        int32 `[tile_capacity(total_rows, tile_rows), 4]`. Its first half lists the tiles by the number of keys that
        their rows see, the second half the same tiles by the number of queries that see their rows, both heaviest
        first, so that the last programs to start are the shortest; each half is padded by tiles without rows. Columns:
        first row, rows, first key row (start of the first row's document), one past the last query row (end of the
        last row's document).
    """
    edges = _edges(boundaries, total_rows)
    firsts, position = [], 0
    while position < total_rows:
        firsts.append(position)
        fitting = int(edges[np.searchsorted(edges, position + tile_rows, side="right") - 1])
        position = fitting if fitting > position else position + tile_rows
    first = np.array(firsts, dtype=np.int64)
    past = np.append(first[1:], total_rows)[: len(first)]
    first_key = edges[np.searchsorted(edges, first, side="right") - 1]
    past_query = edges[np.searchsorted(edges, past, side="left")]
    tiles = np.stack([first, past - first, first_key, past_query], axis=1)
    halves = np.zeros((2, tiles_per_pass(total_rows, tile_rows), COLUMNS), dtype=np.int32)
    halves[0, : len(tiles)] = tiles[np.argsort(first_key - past, kind="stable")]
    halves[1, : len(tiles)] = tiles[np.argsort(first - past_query, kind="stable")]
    return halves.reshape(-1, COLUMNS)


def _edges(boundaries: NDArray[np.integer], total_rows: int) -> NDArray[np.int64]:
    edges = np.asarray(boundaries, dtype=np.int64)
    if edges.ndim != 1 or len(edges) < 1 or edges[0] != 0 or edges[-1] != total_rows or (np.diff(edges) < 0).any():
        raise ValueError(f"boundaries must rise from 0 to the number of rows, {total_rows}")
    return np.unique(edges)
