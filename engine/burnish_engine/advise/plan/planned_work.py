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
from burnish_engine.contract.recipe.recipe_data import REPLAY_TOKENS

_SUPERVISED_UNKNOWN = 0.6  # share of supervised tokens where the dataset was not inspected
_FILL_UNKNOWN = 0.9
_LONGER_REPLIES = 2.0  # mean reply of a model that begins to learn, by the rows' own
_SAME_BUDGET = 0.02  # share by which the budget of an inspection, computed from rounded counts, may differ


@dataclass(frozen=True)
class PlannedWork:
    """The micro-batches, steps and tokens of a run."""

    largest: MicroBatchSize  # size of the largest micro-batch
    average: MicroBatchSize  # size of the average micro-batch
    steps: int | None  # number of optimizer steps; None where the data is not known
    tokens: int | None  # number of tokens that the run trains on; None where not known


@dataclass(frozen=True)
class PlannedReplies:
    """The replies of a round that a model writes to learn from."""

    prompt_tokens: float  # mean tokens of a prompt
    reply_tokens: float  # mean tokens of a reply
    count: int  # number of replies

    @property
    def tokens(self) -> float:
        """Tokens of all replies with their prompts."""
        return self.count * (self.prompt_tokens + self.reply_tokens)


def planned_replies(recipe: Recipe, dataset: DatasetFacts | None) -> PlannedReplies:
    """Compute the replies of a round: how long they become is not known, and guessed from the rows' own."""
    section = recipe.reinforce
    count, longest = section.groups * section.replies, section.max_tokens
    rows = (dataset.train_rows + dataset.validation_rows) if dataset is not None else 0
    if dataset is None or not rows or not dataset.tokens:
        return PlannedReplies(max(recipe.data.max_length - longest, 1) / 2, longest / 2, count)
    own = dataset.supervised_tokens / rows
    return PlannedReplies(max(dataset.tokens / rows - own, 1.0), min(_LONGER_REPLIES * own, longest), count)


def _reinforced_work(recipe: Recipe, dataset: DatasetFacts | None) -> PlannedWork:
    section, train = recipe.reinforce, recipe.train
    replies, budget = planned_replies(recipe, dataset), train.micro_batch_tokens
    longest = recipe.data.max_length
    if dataset is not None and dataset.lengths is not None:
        longest = min(longest, dataset.lengths.longest)
    longest = min(longest + section.max_tokens, budget)
    most = min(budget, math.ceil(replies.count * longest)) if train.pack else longest
    share = section.max_tokens / (section.max_tokens + replies.prompt_tokens)
    span = token_span(sequence_lengths(dataset), longest)
    largest = MicroBatchSize(most, math.ceil(most * share), longest=longest, span=span)
    passes = max(math.ceil(replies.tokens / (budget * _FILL_UNKNOWN)), 1) if train.pack else replies.count
    average = min(math.ceil(replies.tokens / passes), budget)
    learned = math.ceil(average * replies.reply_tokens / (replies.prompt_tokens + replies.reply_tokens))
    usual = MicroBatchSize(average, learned, bucket_tokens(average, most, packed=train.pack), span=span)
    steps = train.max_steps or None
    if dataset is not None and dataset.train_rows:
        whole = math.ceil(train.epochs * dataset.train_rows / section.groups) * section.updates
        steps = min(whole, train.max_steps or whole)
    return PlannedWork(largest, usual, steps, None if steps is None else int(steps * replies.tokens))


def planned_work(recipe: Recipe, dataset: DatasetFacts | None) -> PlannedWork:
    """Compute the largest and the average micro-batch, and the number of steps.

    The facts may be from another token budget; supervised tokens and micro-batches are scaled to this one.
    """
    if recipe.preference.learns_rewards:
        return _reinforced_work(recipe, dataset)
    dataset = _with_replay(recipe, dataset)
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


def _with_replay(recipe: Recipe, dataset: DatasetFacts | None) -> DatasetFacts | None:
    """Add the rows that the base writes to the facts, each as long as it may be."""
    count = recipe.data.replay_rows(dataset.train_rows) if dataset else 0
    if dataset is None or not count or not dataset.train_rows:
        return dataset
    share = dataset.train_rows / (dataset.train_rows + dataset.validation_rows)
    more = count * min(REPLAY_TOKENS, recipe.data.max_length)
    grown = 1 + more / max(dataset.tokens * share, 1)
    return dataset.model_copy(
        update={
            "train_rows": dataset.train_rows + count,
            "validation_rows": round((dataset.train_rows + count) * (1 / share - 1)),
            "tokens": round(dataset.tokens * grown),
            "supervised_tokens": round(dataset.supervised_tokens + more / share),
            "micro_batches": math.ceil(dataset.micro_batches * grown),
        }
    )


def _packed_passes(recipe: Recipe, dataset: DatasetFacts, tokens: float, found_budget: float) -> float:
    """Compute the micro-batches of an epoch: as the inspection packed them, or as packing with another budget gives."""
    budget, lengths = recipe.train.micro_batch_tokens, dataset.lengths
    if abs(found_budget / budget - 1) <= _SAME_BUDGET:
        return dataset.micro_batches
    if lengths is not None and lengths.sample:
        return workload(dataset, recipe.data.max_length, recipe.data.overlong).passes(budget)
    return max(tokens / (budget * (dataset.fill if dataset.micro_batches > 1 else _FILL_UNKNOWN)), 1)
