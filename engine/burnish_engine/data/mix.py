"""Which rows are trained on and which are held out, and how often: by the seed alone, whoever tokenized them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from burnish_engine.data.shard import Ints

_VALIDATION_STREAM = 2**32 - 1  # keep the random numbers of the split and the mix apart from those of any epoch
_MIX_STREAM = 2**32 - 2


def split(total: int, share: float, seed: int, groups: Ints | None = None) -> tuple[Ints, Ints]:
    """Training and held-out documents; at least one of each where there are two and a share is asked for.

    Args:
        total: number of documents.
        share: share that is held out, 0 to 1.
        seed: the run's seed.
        groups: [total] documents with equal numbers stay together; None: each for itself.

    Returns:
        Numbers of both, ascending.
    """
    if groups is not None:
        _, members = np.unique(groups, return_inverse=True)
        train, held_out = split(int(members.max()) + 1 if total else 0, share, seed)
        return np.flatnonzero(np.isin(members, train)), np.flatnonzero(np.isin(members, held_out))
    count = min(max(1, round(total * share)), total - 1) if share > 0 else 0
    chosen = np.zeros(total, dtype=np.bool_)
    chosen[np.random.RandomState([seed, _VALIDATION_STREAM]).permutation(total)[: max(count, 0)]] = True
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


def split_ends(groups: Ints, share: float) -> tuple[Ints, Ints] | None:
    """Training and held-out documents where the share is less than one row: the ends of long texts are held out.

    Args:
        groups: [n] number of each document's row; documents of a row follow one another.
        share: share of each row's documents that is held out.

    Returns:
        Numbers of both, ascending; None where there are rows enough, or no row has documents enough.
    """
    _, members, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if len(sizes) * share >= 1:
        return None
    from_end = np.zeros(len(groups), dtype=np.int64)  # documents of the same row that come later
    order = np.argsort(members, kind="stable")
    from_end[order] = np.cumsum(sizes)[members[order]] - 1 - np.arange(len(groups))
    held_out = from_end < np.minimum(np.floor(sizes * share + 0.5), sizes - 1)[members]
    return (np.flatnonzero(~held_out), np.flatnonzero(held_out)) if held_out.any() else None


def weighted(rows: Ints, entries: Ints, weights: Sequence[float], seed: int) -> Ints:
    """Rows as often as their dataset's weight says: all once, in order, then the second time, and so on.

    Args:
        rows: numbers of the rows.
        entries: [rows] index of each row's dataset.
        weights: weight of each dataset.
        seed: the run's seed, which chooses the rows where a weight takes a part of a dataset.
    """
    if not weights or all(weight == 1.0 for weight in weights):
        return rows
    times = np.zeros(len(rows), dtype=np.int64)
    for entry, weight in enumerate(weights):
        members = np.flatnonzero(entries == entry)
        times[members] = int(weight)
        some = round(len(members) * (weight - int(weight)))
        random = np.random.RandomState([seed, _MIX_STREAM, entry])
        times[members[random.permutation(len(members))[:some]]] += 1
    rounds = [rows[times > number] for number in range(int(times.max()) if len(times) else 0)]
    return np.concatenate(rounds) if rounds else rows[:0]


def earlier_equal(digests: Ints) -> npt.NDArray[np.bool_]:
    """[n] whether an earlier one is equal."""
    _, first = np.unique(digests, return_index=True)
    repeated = np.ones(len(digests), dtype=np.bool_)
    repeated[first] = False
    return repeated
