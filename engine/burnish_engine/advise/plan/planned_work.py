"""Computes the micro-batches, steps and tokens of a planned run from its recipe and data. Loads no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from burnish_engine.advise.facts.workload import (
    MicroBatchSize,
    bucket_tokens,
    sequence_lengths,
    token_span,
    workload,
)
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.recipe.recipe import Recipe

_SUPERVISED_UNKNOWN = 0.6  # share of supervised tokens where the dataset was not inspected
_FILL_UNKNOWN = 0.9
_SAME_BUDGET = 0.02  # share by which the budget of an inspection, computed from rounded counts, may differ


@dataclass(frozen=True)
class PlannedWork:
    """The micro-batches, steps and tokens of a run."""

    largest: MicroBatchSize  # size of the largest micro-batch
    average: MicroBatchSize  # size of the average micro-batch
    steps: int | None  # number of optimizer steps; None where the data is not known
    tokens: int | None  # number of tokens that the run trains on; None where not known


def planned_work(recipe: Recipe, dataset: DatasetFacts | None) -> PlannedWork:
    """Compute the largest and the average micro-batch, and the number of steps.

    The facts may be from another token budget; supervised tokens and micro-batches are scaled to this one.
    """
    budget, train, max_length = recipe.train.micro_batch_tokens, recipe.train, recipe.data.max_length
    span = token_span(sequence_lengths(dataset), max_length)
    if dataset is None or not dataset.tokens or not dataset.micro_batches:
        supervised_tokens = budget if recipe.data.learn == "everything" else int(budget * _SUPERVISED_UNKNOWN)
        average = int(budget * _FILL_UNKNOWN)
        steps = train.max_steps or None
        limits = [limit for limit in (train.max_tokens, train.max_steps * train.accumulation * average) if limit]
        return PlannedWork(
            MicroBatchSize(budget, supervised_tokens, longest=max_length, span=span),
            MicroBatchSize(
                average,
                int(supervised_tokens * _FILL_UNKNOWN),
                bucket_tokens(average, budget, packed=train.pack),
                span=span,
            ),
            steps,
            min(limits, default=None),
        )
    tokens = dataset.tokens * dataset.train_rows / max(dataset.train_rows + dataset.validation_rows, 1)
    share = dataset.supervised_tokens / dataset.tokens
    found_budget = tokens / (dataset.micro_batches * dataset.fill) if dataset.fill else budget
    longest = dataset.lengths.longest if dataset.lengths else budget
    largest_tokens = (
        min(budget, math.ceil(tokens)) if train.pack else min(budget, longest, max_length * recipe.preference.sequences)
    )
    found_largest = min(found_budget, tokens) if train.pack else longest
    most = dataset.most_supervised * largest_tokens / found_largest or share * largest_tokens
    passes = _packed_passes(recipe, dataset, tokens, found_budget) if train.pack else dataset.train_rows
    average_tokens = min(tokens / passes, budget) if train.pack else tokens / passes
    steps = math.ceil(passes * train.epochs / train.accumulation)
    if train.max_steps:
        steps = min(steps, train.max_steps)
    total = steps * train.accumulation * average_tokens
    total = min(total, tokens * train.epochs)
    if train.max_tokens and total > train.max_tokens:
        steps, total = math.ceil(steps * train.max_tokens / total), float(train.max_tokens)
    learned = math.ceil(min(most, largest_tokens, share * tokens))
    largest = MicroBatchSize(int(largest_tokens), learned, longest=min(longest, max_length), span=span)
    rows = bucket_tokens(int(average_tokens), largest.tokens, packed=train.pack)
    usual = MicroBatchSize(int(average_tokens), int(average_tokens * share), rows, span=span)
    return PlannedWork(largest, usual, max(steps, 1), int(total))


def _packed_passes(recipe: Recipe, dataset: DatasetFacts, tokens: float, found_budget: float) -> float:
    """Compute the micro-batches of an epoch: as the inspection packed them, or as packing with another budget gives."""
    budget, lengths = recipe.train.micro_batch_tokens, dataset.lengths
    if abs(found_budget / budget - 1) <= _SAME_BUDGET:
        return dataset.micro_batches
    if lengths is not None and lengths.sample:
        return workload(dataset, recipe.data.max_length, recipe.data.overlong).passes(budget)
    return max(tokens / (budget * (dataset.fill if dataset.micro_batches > 1 else _FILL_UNKNOWN)), 1)
