"""Generators whose every token is chosen on the host. Loads no torch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from burnish_engine.models.generation.sampling import Sampling, pick_token
from burnish_engine.models.generation.text_generator import ReplyPiece, ReplyRequest, TextGenerator

if TYPE_CHECKING:
    import torch


class StepGenerator(TextGenerator):
    """A generator that gives the logits of every step. Only the generator looks into its states.

    Attributes:
        exact: whether a reply has the same bits whatever others are asked for; here each is made alone.
    """

    exact = False

    @abstractmethod
    def inference(self) -> AbstractContextManager[None]:
        """Enter the mode that `start` and `advance` need; afterwards a model in training is as it was."""
        ...

    @abstractmethod
    def without_adapter(self) -> AbstractContextManager[None]:
        """Switch the adapter off inside, where it is on."""
        ...

    @abstractmethod
    def start(self, prompts: Sequence[Sequence[int]], reserve: int) -> tuple[Any, torch.Tensor]:
        """Read prompts.

        Args:
            prompts: token ids of each prompt, at least one.
            reserve: most tokens that each reply will grow by.

        Returns:
            The state of these replies, and the logits [B, V] after each prompt, fp32.
        """
        ...

    @abstractmethod
    def advance(self, state: Any, tokens: Sequence[int]) -> torch.Tensor:
        """Add one token to every reply of the state; return the logits [B, V] after it, fp32."""
        ...

    @abstractmethod
    def keep(self, state: Any, rows: Sequence[int]) -> bool:
        """Drop all replies of the state except these; return False where the model cannot, so that all of them stay."""
        ...

    @override
    def replies(self, requests: Sequence[ReplyRequest], stops: Set[int], together: int) -> Iterator[ReplyPiece]:
        """Make replies in groups of prompts of similar length, those without the adapter first.

        Finished replies leave their group where the model can drop rows, so that the time goes into those still
        growing.
        """
        together = 1 if self.exact else together
        for base in (True, False):
            own = [row for row, request in enumerate(requests) if request.base is base]
            order = sorted(own, key=lambda row: len(requests[row].ids))
            for first in range(0, len(order), together):
                yield from _group(self, requests, stops, order[first : first + together])


def _group(
    generator: StepGenerator, requests: Sequence[ReplyRequest], stops: Set[int], rows: list[int]
) -> Iterator[ReplyPiece]:
    samplings = {row: requests[row].sampling for row in rows}
    draws = {row: np.random.default_rng(sampling.seed) for row, sampling in samplings.items()}
    made = dict.fromkeys(rows, 0)
    living = set(rows)
    adapter = generator.without_adapter if requests[rows[0]].base else nullcontext
    with generator.inference(), adapter():
        state, logits_BV = generator.start(
            [list(requests[row].ids) for row in rows], max(sampling.max_tokens for sampling in samplings.values())
        )
        chosen = _choose(logits_BV, [samplings[row] for row in rows], [draws[row] for row in rows])
    while True:
        pieces, going = [], []
        for place, (row, token) in enumerate(zip(rows, chosen, strict=True)):
            if row not in living:
                continue
            stopped = token in stops
            made[row] += not stopped
            ended = stopped or made[row] == samplings[row].max_tokens
            pieces.append(ReplyPiece(row, [] if stopped else [token], ended, stopped, token if stopped else None))
            if ended:
                living.remove(row)
            else:
                going.append(place)
        yield from pieces
        if not going:
            return
        with generator.inference(), adapter():
            if len(going) < len(rows) and generator.keep(state, going):
                rows, chosen = [rows[place] for place in going], [chosen[place] for place in going]
            logits_BV = generator.advance(state, chosen)
            chosen = _choose(logits_BV, [samplings[row] for row in rows], [draws[row] for row in rows])


def _choose(logits_BV: torch.Tensor, samplings: Sequence[Sampling], draws: Sequence[np.random.Generator]) -> list[int]:
    if all(sampling.temperature == 0.0 for sampling in samplings):
        greedy: list[int] = logits_BV.argmax(-1).tolist()
        return greedy
    return [
        pick_token(logits_V, sampling, random)
        for logits_V, sampling, random in zip(logits_BV.cpu().numpy(), samplings, draws, strict=True)
    ]
