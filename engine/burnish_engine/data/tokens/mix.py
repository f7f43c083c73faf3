"""Splits documents into training and held-out ones and repeats them by weight; the seed alone decides which."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from burnish_engine.data.tokens.shard import Ints

_VALIDATION_STREAM = 2**32 - 1  # keep the random numbers of the split and the mix apart from those of any epoch
_MIX_STREAM = 2**32 - 2


def split_validation(total: int, share: float, seed: int, groups: Ints | None = None) -> tuple[Ints, Ints]:
    """Split documents into training and held-out ones, at least one of each where two exist and the share is not 0.

    Args:
        total: number of documents.
        share: share of documents to hold out, 0 to 1.
        seed: the run's seed.
        groups: [total] group of each document; a group stays together. None makes each document a group.

    Returns:
        Numbers of the training and of the held-out documents, ascending.
    """
    if groups is not None:
        _, members = np.unique(groups, return_inverse=True)
        train, held_out = split_validation(int(members.max()) + 1 if total else 0, share, seed)
        return np.flatnonzero(np.isin(members, train)), np.flatnonzero(np.isin(members, held_out))
    count = min(max(1, round(total * share)), total - 1) if share > 0 else 0
    chosen = np.zeros(total, dtype=np.bool_)
    chosen[np.random.RandomState([seed, _VALIDATION_STREAM]).permutation(total)[: max(count, 0)]] = True
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


def split_row_ends(groups: Ints, share: float) -> tuple[Ints, Ints] | None:
    """Hold out the ends of long rows, for datasets where the share amounts to less than one row.

    Args:
        groups: [n] number of each document's row; documents of a row follow one another.
        share: share of each row's documents that is held out.

    Returns:
        Numbers of the training and of the held-out documents, ascending; None where the share amounts to a row or more,
        or no row has enough documents.
    """
    _, members, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if len(sizes) * share >= 1:
        return None
    from_end = np.zeros(len(groups), dtype=np.int64)  # documents of the same row that come later
    order = np.argsort(members, kind="stable")
    from_end[order] = np.cumsum(sizes)[members[order]] - 1 - np.arange(len(groups))
    held_out = from_end < np.minimum(np.floor(sizes * share + 0.5), sizes - 1)[members]
    return (np.flatnonzero(~held_out), np.flatnonzero(held_out)) if held_out.any() else None


def mix_by_weight(rows: Ints, entries: Ints, weights: Sequence[float], seed: int) -> Ints:
    """Repeat rows by their dataset's weight: all rows once, in order, then those that occur twice, and so on.

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


def repeats_earlier(digests: Ints) -> npt.NDArray[np.bool_]:
    """Return [n] whether an earlier digest is equal."""
    _, first = np.unique(digests, return_index=True)
    repeated = np.ones(len(digests), dtype=np.bool_)
    repeated[first] = False
    return repeated
