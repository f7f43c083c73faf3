"""The micro-batches of a run whose replies the model writes: those of a step exist once its replies are written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from typing_extensions import override

from burnish_engine.contract.recipe.recipe_reinforce import ReinforceSection
from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.data.tokens.pack import MicroBatch, ReplyTerms, micro_batch
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.train.base.policy import token_shares
from burnish_engine.train.base.stream import BatchStream, Budget


class OwnReplyStream(BatchStream):
    """Counts of a run that learns from replies of its own, and how large its passes may become.

    By number it gives passes over the rows themselves, which the guard looks at before training.

    Args:
        documents: training rows.
        section: the recipe's training section.
        reinforce: the recipe's section of reinforcement.
        prompt_tokens: tokens of each prompt that replies are written to.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        section: TrainSection,
        reinforce: ReinforceSection,
        prompt_tokens: Sequence[int],
    ) -> None:
        super().__init__(documents, section)
        self._reinforce, self._prompt_tokens = reinforce, sorted(prompt_tokens, reverse=True)
        self._made: dict[int, MicroBatch] = {}
        self._epochs: dict[int, float] = {}

    @property
    def longest_reply(self) -> int:
        """Tokens of the longest prompt with the longest reply."""
        return self._prompt_tokens[0] + self._reinforce.max_tokens

    @property
    @override
    def longest_document(self) -> int:
        return max(super().longest_document, self.longest_reply)

    @property
    @override
    def most_tokens(self) -> int:
        whole = sum(self._prompt_tokens[: self._reinforce.groups]) * self._reinforce.replies
        whole += self._reinforce.groups * self._reinforce.replies * self._reinforce.max_tokens
        own = whole if self._section.pack else self.longest_reply
        return min(max(own, super().most_tokens), self._section.micro_batch_tokens)

    @property
    @override
    def most_supervised(self) -> int:
        most = self._reinforce.max_tokens
        share = most / (most + self._prompt_tokens[-1])
        return max(math.ceil(share * self.most_tokens), super().most_supervised)

    @override
    def longest(self, count: int, *, padded: bool = False) -> MicroBatch:
        length = self.longest_reply
        ids = np.zeros(length, dtype=np.int32)
        supervised = np.arange(length) >= self._prompt_tokens[0]
        fits = max(self.most_tokens // length, 1) if self._section.pack else 1
        batch = micro_batch([Document(ids, supervised, 1, "")] * fits, range(fits))
        shares = token_shares(self._reinforce, np.full(fits, self._reinforce.max_tokens))
        ones = np.ones(fits, dtype=np.float32)
        return replace(batch, replies=ReplyTerms(ones, shares))

    @override
    def budget(self) -> Budget:
        section, reinforce = self._section, self._reinforce
        rounds = math.ceil(section.epochs * len(self._prompt_tokens) / reinforce.groups - 1e-9)
        steps = rounds * reinforce.updates
        if section.max_steps:
            steps = min(steps, -(-section.max_steps // reinforce.updates) * reinforce.updates)
        return Budget(max(steps, 1), max(steps, 1), len(self.first_epoch))

    def put(self, first: int, batches: Sequence[MicroBatch], step: int) -> None:
        """Take note of the micro-batches of a step, so that they can be counted.

        Args:
            first: number of the first one, from the start of the run.
            batches: micro-batches.
            step: optimizer steps made with them.
        """
        self._made = dict(enumerate(batches, start=first))
        rounds = -(-step // self._reinforce.updates)
        self._epochs = {first + len(batches): rounds * self._reinforce.groups / len(self._prompt_tokens)}

    @override
    def epoch_of(self, index: int) -> float:
        return self._epochs.get(index, 0.0)

    @override
    def tokens(self, index: int) -> int:
        return self._made[index].tokens if index in self._made else super().tokens(index)

    @override
    def supervised(self, index: int) -> int:
        return self._made[index].supervised_tokens if index in self._made else super().supervised(index)
