"""How much there is to train on at a given row length, from what `inspect` found. Loads no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from burnish_engine.contract.facts import DatasetFacts, LengthStats

CPU_ROW_TOKENS = 2048
"""Longest row suggested for training on a processor: attention over longer ones makes a step take minutes."""
_UNKNOWN_ROW_TOKENS = 1024
_ALL_FIT_TOKENS = 2048  # rows up to here fit into any sensible pass, so that covering them all costs nothing
_STEP = 64
_SHORTEST = 128
_HELD_OUT_ROWS = 500  # more rows make the held-out loss no clearer
_FILL = 0.95  # what packing reaches with rows clearly shorter than a pass
_UNEVEN = 1.25  # learned tokens of the fullest pass by those of the average one
_SPAN_UNKNOWN = 0.5  # of the longest row, where rows were not looked at
_SPREAD_UNKNOWN = 1.5  # mean length of a token's row by that of a row, where only the mean is known
_ROWS_MULTIPLE, _LEAST_ROWS = 64, 256  # of the fast engine's static passes


@dataclass(frozen=True)
class Pass:
    """One forward and backward pass.

    Attributes:
        tokens: Its tokens.
        supervised: Of these, positions that the loss counts.
        rows: Of the static pass that the fast engine puts them into; the rest is padding. 0: as many as tokens.
        longest: Tokens of its longest document.
        span: Length of the document that a token is in, on average over the tokens.
    """

    tokens: int
    supervised: int
    rows: int = 0
    longest: int = 0
    span: float = 0.0

    @property
    def static_rows(self) -> int:
        """Rows of the static pass."""
        return self.rows or rounded_rows(self.tokens)


@dataclass(frozen=True)
class Workload:
    """A dataset cut to a row length.

    Attributes:
        max_length: Longest row, tokens.
        rows: Training rows.
        tokens: Their tokens, once.
        supervised: Of these, learned ones.
        cut_share: Share of the rows that are cut, 0 to 1.
    """

    max_length: int
    rows: int
    tokens: int
    supervised: int
    cut_share: float

    @property
    def row_tokens(self) -> float:
        """Tokens of the average row."""
        return self.tokens / max(self.rows, 1)

    def passes(self, budget: int) -> int:
        """Passes of an epoch with that token budget."""
        return max(1, math.ceil(self.tokens / (budget * _FILL)))


def wanted_length(dataset: DatasetFacts | None, max_context: int | None) -> int:
    """The longest row worth training on, before memory is looked at, tokens.

    Args:
        dataset: What `inspect` found.
        max_context: Of the model; None: whatever the model.
    """
    lengths = dataset.lengths if dataset else None
    wanted = _UNKNOWN_ROW_TOKENS
    if lengths is not None:
        covers_all = lengths.longest <= max(_ALL_FIT_TOKENS, 1.25 * lengths.p95)
        wanted = rounded_length(lengths.longest if covers_all else lengths.p95)
    return wanted if max_context is None else min(wanted, max_context)


def rounded_length(tokens: float) -> int:
    """A row length that holds that many tokens."""
    return max(math.ceil(tokens / _STEP) * _STEP, _SHORTEST)


def held_out_share(dataset: DatasetFacts) -> float:
    """Share of the rows worth holding out: enough to judge by, and no more than some hundred."""
    rows = dataset.train_rows + dataset.validation_rows
    if rows < 500:
        return 0.1
    return max(min(0.05, round(_HELD_OUT_ROWS / rows, 3)), 0.001)


def hold_out(dataset: DatasetFacts) -> DatasetFacts:
    """The facts with that share held out, whatever share they were found with."""
    rows = dataset.train_rows + dataset.validation_rows
    held = min(max(1, round(rows * held_out_share(dataset))), rows - 1) if rows > 1 else 0
    return dataset.model_copy(update={"train_rows": rows - held, "validation_rows": held})


def rounded_rows(tokens: int) -> int:
    """Rows of the fast engine's largest static pass."""
    return -(-max(tokens, 1) // _ROWS_MULTIPLE) * _ROWS_MULTIPLE


def static_rows(tokens: int, most: int, *, packed: bool) -> int:
    """Rows of the static pass that holds a pass, chosen as `train.packed_batch` does.

    Args:
        tokens: Of the pass.
        most: Of the largest pass.
        packed: Whether passes hold several documents.
    """
    rows = rounded_rows(most)
    while (half := rounded_rows(rows // 2)) >= max(_LEAST_ROWS, tokens) and half < rows:
        rows = half
        if packed:
            break
    return rows


def token_span(lengths: LengthStats | None, max_length: int) -> float:
    """Length of the row that a token is in, on average over the tokens: sum of squares by sum; attention goes by it."""
    if lengths is None:
        return _SPAN_UNKNOWN * max_length
    if not lengths.histogram:
        return min(_SPREAD_UNKNOWN * lengths.mean, float(max_length))
    middles = [(min((low + high) / 2, max_length), rows) for low, high, rows in _bins(lengths)]
    return sum(rows * middle**2 for middle, rows in middles) / max(sum(rows * middle for middle, rows in middles), 1.0)


def workload(dataset: DatasetFacts, max_length: int, overlong: str = "auto") -> Workload:
    """A dataset with its rows cut.

    Args:
        dataset: What `inspect` found, with whatever `max_length`: its lengths are those of the uncut rows.
        max_length: The longest row, tokens.
        overlong: the recipe's `data.overlong`; texts may go on in further rows instead of being cut.
    """
    used = max(dataset.train_rows + dataset.validation_rows, 1)
    lengths = dataset.lengths
    uncut = lengths.mean * used if lengths else float(dataset.tokens)
    goes_on = set(dataset.shape.split(", ")) <= {"text", "segments"} and overlong in ("auto", "split")
    cuts = lengths if not goes_on else None
    tokens = uncut * (_kept_share(cuts, max_length) if cuts else 1.0) * dataset.train_rows / used
    share = dataset.supervised_tokens / dataset.tokens if dataset.tokens else 1.0
    return Workload(
        max_length=max_length,
        rows=max(dataset.train_rows, math.ceil(tokens / max_length)) if goes_on else dataset.train_rows,
        tokens=max(round(tokens), 1),
        supervised=max(round(tokens * share), 1),
        cut_share=_cut_share(cuts, max_length) if cuts else 0.0,
    )


def planned_facts(dataset: DatasetFacts, work: Workload, budget: int) -> DatasetFacts:
    """The facts as they would be with another row length and token budget, for `plan_run`.

    Args:
        dataset: As found.
        work: The dataset at the new row length.
        budget: Token budget of a pass.
    """
    used = dataset.train_rows + dataset.validation_rows
    passes = work.passes(budget)
    share = work.supervised / work.tokens
    return dataset.model_copy(
        update={
            "tokens": round(work.tokens * used / max(dataset.train_rows, 1)),
            "supervised_tokens": round(work.supervised * used / max(dataset.train_rows, 1)),
            "micro_batches": passes,
            "fill": work.tokens / (passes * budget),
            "most_supervised": int(min(1.0, share * _UNEVEN) * min(budget, work.tokens)),
        }
    )


def _bins(lengths: LengthStats) -> list[tuple[float, float, int]]:
    """(shortest, longest, rows) of each bin of the histogram."""
    edges = [0, *(edge for edge, _ in lengths.histogram)]
    bounds = pairwise(edges)
    return [
        (float(low), float(min(high, lengths.longest)), rows)
        for (low, high), (_, rows) in zip(bounds, lengths.histogram, strict=True)
    ]


def _kept_share(lengths: LengthStats, max_length: int) -> float:
    """Share of the tokens that cutting keeps; rows are taken to spread evenly over their bin."""
    if max_length >= lengths.longest or not lengths.histogram:
        return min(1.0, max_length / lengths.mean) if not lengths.histogram else 1.0
    whole = kept = 0.0
    for low, high, rows in _bins(lengths):
        whole += rows * (low + high) / 2
        if high <= max_length:
            kept += rows * (low + high) / 2
        elif low >= max_length:
            kept += rows * max_length
        else:
            inside = (max_length - low) / (high - low)
            kept += rows * (inside * (low + max_length) / 2 + (1 - inside) * max_length)
    return kept / whole if whole else 1.0


def _cut_share(lengths: LengthStats, max_length: int) -> float:
    rows = sum(count for _, count in lengths.histogram)
    if max_length >= lengths.longest or not rows:
        return 0.0
    cut = sum(
        count * min(1.0, max(0.0, (high - max_length) / max(high - low, 1.0))) for low, high, count in _bins(lengths)
    )
    return cut / rows
