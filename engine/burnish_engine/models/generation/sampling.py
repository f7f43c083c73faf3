"""Choose tokens and stream replies, the same for torch models and GGUF files. Loads no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.errors import UsageError


@dataclass(frozen=True)
class Sampling:
    """Settings for choosing tokens.

    Attributes:
        max_tokens: most tokens of a reply.
        temperature: divisor of the logits; 0 is greedy.
        top_p: probability that the most likely tokens must reach together; only these are drawn from.
        seed: seed of the draw.
        top_k: number of most likely tokens that are drawn from, before `top_p` counts; 0: all.
        min_p: least probability of a token that is drawn, relative to the most likely one's.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    top_k: int = 0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise UsageError(f"The longest reply must be at least 1 token, not {self.max_tokens}.", "Raise it.")
        if not 0.0 <= self.temperature <= 100.0:
            raise UsageError(f"The temperature is {self.temperature}.", "Give a number from 0 (greedy) to 100.")
        if not 0.0 < self.top_p <= 1.0:
            raise UsageError(f"top_p is {self.top_p}.", "Give a number above 0, at most 1.")
        if self.seed < 0 or self.top_k < 0:
            raise UsageError(
                f"The seed is {self.seed} and top_k is {self.top_k}.", "Give 0 or a whole number above it for each."
            )
        if not 0.0 <= self.min_p <= 1.0:
            raise UsageError(f"min_p is {self.min_p}.", "Give a number from 0 to 1.")


@dataclass(frozen=True)
class GeneratedReply:
    """A finished reply.

    Attributes:
        text: text of the reply, without the end-of-turn token.
        stopped: whether it ended by itself rather than at the token limit.
        tokens: number of tokens generated, the end-of-turn token not counted.
        ids: generated tokens, where they are kept; not compared when replies are.
        end: token that ended it, where that is kept; None: it did not end by itself.
    """

    text: str
    stopped: bool
    tokens: int
    ids: tuple[int, ...] = field(default=(), compare=False)
    end: int | None = field(default=None, compare=False)


class ReplyStream(Iterator[str]):
    """An iterator over the pieces of a reply as they are made, never splitting a character.

    Attributes:
        stopped: whether the reply ended by itself; known after the last piece.
        tokens: number of tokens generated so far, the end-of-turn token not counted.
    """

    def __init__(self, make: Callable[[ReplyStream], Iterator[str]]) -> None:
        self.stopped = False
        self.tokens = 0
        self._pieces = make(self)

    def __iter__(self) -> ReplyStream:
        return self

    def __next__(self) -> str:
        return next(self._pieces)

    def close(self) -> None:
        """Stop generating."""
        close = getattr(self._pieces, "close", None)
        if close is not None:
            close()

    def finish(self) -> GeneratedReply:
        """Generate to the end and return the text that was not read yet."""
        text = "".join(self)
        return GeneratedReply(text, self.stopped, self.tokens)


def pick_token(logits: npt.NDArray[np.float32], sampling: Sampling, random: np.random.Generator) -> int:
    """Choose the next token from one position's logits [V]: the largest, or a draw by the rules of `sampling`."""
    if sampling.temperature == 0.0:
        return int(logits.argmax())
    scaled = logits.astype(np.float64) / sampling.temperature
    shares = np.exp(scaled - scaled.max())
    limited = 0 < sampling.top_k < len(shares)
    if limited or sampling.top_p < 1.0:  # else no order is needed, which takes longer than all the rest
        order = np.argsort(-shares, kind="stable")
    if limited:
        shares[order[sampling.top_k :]] = 0.0
    shares /= shares.sum()
    least = sampling.min_p * shares.max()
    if sampling.top_p < 1.0:
        shares[order[int(np.searchsorted(np.cumsum(shares[order]), sampling.top_p)) + 1 :]] = 0.0
    shares[shares < least] = 0.0
    return int(random.choice(len(shares), p=shares / shares.sum()))
