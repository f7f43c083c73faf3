"""Computes how much there is to train on at a given row length, from what `inspect` found. Loads no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from burnish_engine.contract.best_fit import best_fit_decreasing, even_quantiles
from burnish_engine.contract.facts.facts import DatasetFacts, LengthStats

CPU_ROW_TOKENS = 2048
"""Longest row suggested for training on a processor: attention over longer ones makes a step take minutes."""
_UNKNOWN_ROW_TOKENS = 1024
_ALL_FIT_TOKENS = 2048  # rows up to here fit into any sensible pass, so that covering them all costs nothing
_STEP = 64
_SHORTEST = 128
_HELD_OUT_ROWS = 500  # more rows make the held-out loss no clearer
_FILL_UNKNOWN = 0.95  # fill that packing reaches with rows clearly shorter than a pass, where no lengths are known
_UNEVEN = 1.25  # supervised tokens of the fullest micro-batch by those of the average one
_SPAN_UNKNOWN = 0.5  # share of the longest row, where rows were not inspected
_SPREAD_UNKNOWN = 1.5  # mean length of a token's row by that of a row, where only the mean is known
BUCKET_MULTIPLE = 64
"""Buckets are multiples of this: matrix products and attention work on blocks of 64 or 128 rows."""
_SMALLEST_BUCKET = 256
"""Capacity in tokens below which a micro-batch takes no less time: it waits for weights to be read."""


@dataclass(frozen=True)
class MicroBatchSize:
    """The size of a micro-batch, which is one forward and backward pass."""

    tokens: int  # number of tokens, padding excluded
    supervised_tokens: int  # number of tokens that the loss counts
    bucket: int = 0  # number of tokens that the fast engine pads the micro-batch to; 0: the next multiple of 64
    longest: int = 0  # length of the longest document, tokens
    span: float = 0.0  # length of the document that a token is in, averaged over the tokens

    @property
    def padded_tokens(self) -> int:
        """Number of tokens after padding to the bucket."""
        return self.bucket or largest_bucket_tokens(self.tokens)


@dataclass(frozen=True)
class Workload:
    """A dataset cut to a row length."""

    max_length: int  # length of the longest row, tokens
    rows: int  # number of training rows; of pairs, those that are not left out
    tokens: int  # number of tokens in the training rows, each counted once
    supervised_tokens: int  # number of these tokens that the loss counts
    cut_share: float  # share of the rows that are cut, or of pairs that are left out, 0 to 1
    lengths: tuple[int, ...] = ()  # tokens of training rows, cut: of all rows, or of a sample of them; empty: not known
    is_sample: bool = False  # whether there are more rows than lengths

    @property
    def row_tokens(self) -> float:
        """The mean length of a row, tokens."""
        return self.tokens / max(self.rows, 1)

    def passes(self, budget: int) -> int:
        """The number of micro-batches of an epoch with a token budget; the known lengths are packed to count them."""
        if not self.lengths:
            return max(1, math.ceil(self.tokens / (budget * _FILL_UNKNOWN)))
        tokens, passes = _packed(self.lengths, budget, self.is_sample)
        return max(1, math.ceil(self.tokens / budget), round(self.tokens / tokens * passes))


def wanted_length(dataset: DatasetFacts | None, max_context: int | None) -> int:
    """The longest row worth training on, whatever the memory, tokens; of pairs, prompt and longer reply.

    Args:
        dataset: facts that `inspect` found about the data.
        max_context: longest context of the model, tokens; None: no limit.
    """
    lengths = sequence_lengths(dataset)
    wanted = _UNKNOWN_ROW_TOKENS
    if lengths is not None:
        covers_all = lengths.longest <= max(_ALL_FIT_TOKENS, 1.25 * lengths.p95)
        wanted = rounded_length(lengths.longest if covers_all else lengths.p95)
    return wanted if max_context is None else min(wanted, max_context)


def sequence_lengths(dataset: DatasetFacts | None) -> LengthStats | None:
    """The lengths that `data.max_length` is compared with: of rows, or of the longer sequences of pairs.

    Args:
        dataset: facts that `inspect` found; None: not inspected.
    """
    return (dataset.sequence_lengths or dataset.lengths) if dataset else None


def rounded_length(tokens: float) -> int:
    """Round a number of tokens up to a row length."""
    return max(math.ceil(tokens / _STEP) * _STEP, _SHORTEST)


def held_out_share(dataset: DatasetFacts) -> float:
    """The share of the rows worth holding out: enough to judge by, and at most 500 rows."""
    rows = dataset.train_rows + dataset.validation_rows
    if rows < 500:
        return 0.1
    return max(min(0.05, round(_HELD_OUT_ROWS / rows, 3)), 0.001)


def hold_out(dataset: DatasetFacts, share: float | None = None) -> DatasetFacts:
    """Change the facts as if a share of the rows were held out.

    Args:
        dataset: facts that `inspect` found.
        share: share that is held out, 0 to 1; None: `held_out_share`.
    """
    rows = dataset.train_rows + dataset.validation_rows
    share = held_out_share(dataset) if share is None else share
    held = min(max(1, round(rows * share)), rows - 1) if rows > 1 and share else 0
    return dataset.model_copy(update={"train_rows": rows - held, "validation_rows": held})


def largest_bucket_tokens(tokens: int) -> int:
    """The number of tokens in the fast engine's largest bucket, for the largest micro-batch's tokens."""
    return -(-max(tokens, 1) // BUCKET_MULTIPLE) * BUCKET_MULTIPLE


def buckets(budget: int, packed: bool, most: int | None = None) -> tuple[int, ...]:
    """Choose the capacities of the fast engine's buckets, ascending; each costs a capture, so there are few.

    Packed micro-batches fill their budget to a few percent, except for the last one of every packing window: one size
    for the budget and one for half of it. Without packing a micro-batch is one document of any length: halves of the
    budget down to 256, so that on average a quarter of the capacity is padding.

    Args:
        budget: largest number of tokens of a micro-batch.
        packed: whether micro-batches hold several documents.
        most: largest number of tokens that a micro-batch can have with this data, where known to be less: the sum of
            all documents when packed, else the longest document.
    """
    sizes = [largest_bucket_tokens(min(budget, most or budget))]
    while (half := largest_bucket_tokens(sizes[-1] // 2)) >= _SMALLEST_BUCKET and half < sizes[-1]:
        sizes.append(half)
        if packed:
            break
    return tuple(reversed(sizes))


def bucket_tokens(tokens: int, most: int, *, packed: bool) -> int:
    """The number of tokens that the fast engine pads a micro-batch to.

    Args:
        tokens: number of tokens of the micro-batch.
        most: number of tokens of the largest micro-batch.
        packed: whether micro-batches hold several documents.
    """
    return next((bucket for bucket in buckets(most, packed) if bucket >= tokens), largest_bucket_tokens(most))


def token_span(lengths: LengthStats | None, max_length: int) -> float:
    """The length of the row that a token is in, averaged over the tokens: sum of squared lengths by sum of lengths.

    The cost of attention is proportional to it.
    """
    if lengths is None:
        return _SPAN_UNKNOWN * max_length
    if not lengths.histogram:
        return min(_SPREAD_UNKNOWN * lengths.mean, float(max_length))
    middles = [(min((low + high) / 2, max_length), rows) for low, high, rows in _bins(lengths)]
    return sum(rows * middle**2 for middle, rows in middles) / max(sum(rows * middle for middle, rows in middles), 1.0)


def workload(dataset: DatasetFacts, max_length: int, overlong: str = "auto") -> Workload:
    """Cut a dataset to a row length, or leave out the pairs of which a sequence is longer.

    Args:
        dataset: facts that `inspect` found, with any `max_length`; their lengths are those of the uncut rows.
        max_length: length of the longest row, tokens.
        overlong: the recipe's `data.overlong`; texts may continue in further rows instead of being cut.
    """
    if dataset.sequence_lengths is not None and dataset.lengths is not None:
        return _pair_workload(dataset, dataset.sequence_lengths, dataset.lengths, max_length)
    used = max(dataset.train_rows + dataset.validation_rows, 1)
    lengths = dataset.lengths
    uncut = lengths.mean * used if lengths else float(dataset.tokens)
    goes_on = set(dataset.shape.split(", ")) <= {"text", "segments"} and overlong in ("auto", "split")
    cuts = lengths if not goes_on else None
    tokens = uncut * (_kept_share(cuts, max_length) if cuts else 1.0) * dataset.train_rows / used
    share = dataset.supervised_tokens / dataset.tokens if dataset.tokens else 1.0
    known = even_quantiles(lengths.sample, max(dataset.train_rows, 1)) if lengths else []
    return Workload(
        max_length=max_length,
        rows=max(dataset.train_rows, math.ceil(tokens / max_length)) if goes_on else dataset.train_rows,
        tokens=max(round(tokens), 1),
        supervised_tokens=max(round(tokens * share), 1),
        cut_share=_cut_share(cuts, max_length) if cuts else 0.0,
        lengths=tuple(part for length in known for part in _row_parts(length, max_length, goes_on=goes_on)),
        is_sample=dataset.train_rows > len(known),
    )


def _pair_workload(dataset: DatasetFacts, sequences: LengthStats, whole: LengthStats, max_length: int) -> Workload:
    """Leave out the pairs of which a sequence is too long, taking the longest pairs to be those."""
    left_out = _cut_share(sequences, max_length)
    rows = max(round(dataset.train_rows * (1 - left_out)), 1)
    known = even_quantiles(whole.sample, max(dataset.train_rows, 1))
    kept = tuple(min(length, 2 * max_length) for length in known[: max(round(len(known) * (1 - left_out)), 1)])
    tokens = max(round(rows * (sum(kept) / len(kept) if kept else min(whole.mean, 2 * max_length))), 1)
    share = dataset.supervised_tokens / dataset.tokens if dataset.tokens else 1.0
    return Workload(
        max_length=max_length,
        rows=rows,
        tokens=tokens,
        supervised_tokens=max(round(tokens * share), 1),
        cut_share=left_out,
        lengths=kept,
        is_sample=rows > len(kept),
    )


def planned_facts(dataset: DatasetFacts, work: Workload, budget: int) -> DatasetFacts:
    """Change the facts to what they would be with another row length and token budget, for `plan_run`.

    Args:
        dataset: facts that `inspect` found.
        work: workload at the new row length.
        budget: token budget of a micro-batch.
    """
    if dataset.sequence_lengths is not None:  # pairs that are too long are left out
        kept = work.rows / max(dataset.train_rows, 1)
        held_out = round(dataset.validation_rows * kept)
        dataset = dataset.model_copy(update={"train_rows": work.rows, "validation_rows": held_out})
    used = dataset.train_rows + dataset.validation_rows
    passes = work.passes(budget)
    share = work.supervised_tokens / work.tokens
    return dataset.model_copy(
        update={
            "tokens": round(work.tokens * used / max(dataset.train_rows, 1)),
            "supervised_tokens": round(work.supervised_tokens * used / max(dataset.train_rows, 1)),
            "micro_batches": passes,
            "fill": work.tokens / (passes * budget),
            "most_supervised": int(min(1.0, share * _UNEVEN) * min(budget, work.tokens)),
        }
    )


def _row_parts(length: int, max_length: int, *, goes_on: bool) -> list[int]:
    """Cut a row's length to the longest row, or split it into several rows."""
    if length <= max_length or not goes_on:
        return [min(length, max_length)]
    whole, rest = divmod(length, max_length)
    return [max_length] * whole + ([rest] if rest else [])


@lru_cache(maxsize=256)
def _packed(lengths: tuple[int, ...], budget: int, is_sample: bool) -> tuple[int, int]:
    """Pack rows by best-fit decreasing, and return their tokens and the number of micro-batches.

    Of a sample the emptiest micro-batch does not count: an epoch has one such among many more.
    """
    fitting = [min(length, budget) for length in lengths]
    packed = [sum(fitting[row] for row in group) for group in best_fit_decreasing(range(len(fitting)), fitting, budget)]
    if is_sample and len(packed) > 1:
        packed.remove(min(packed))
    return max(sum(packed), 1), len(packed)


def _bins(lengths: LengthStats) -> list[tuple[float, float, int]]:
    """List (shortest length, longest length, rows) of each bin of the histogram."""
    edges = [0, *(edge for edge, _ in lengths.histogram)]
    bounds = pairwise(edges)
    return [
        (float(low), float(min(high, lengths.longest)), rows)
        for (low, high), (_, rows) in zip(bounds, lengths.histogram, strict=True)
    ]


def _kept_share(lengths: LengthStats, max_length: int) -> float:
    """The share of the tokens that cutting keeps, with rows spread evenly over their bin."""
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
