"""Replies to some rows, judged by a recipe's rewards before anything is trained."""

from __future__ import annotations

from statistics import fmean, pstdev

from pydantic import Field

from burnish_engine.contract.record import Facts


class TriedRow(Facts):
    """A reply to a row, and what each reward says of it."""

    prompt: str = Field(description="The turns before the reply, as the chat template writes them.")
    wanted: str = Field(description="The row's own reply.")
    reply: str
    ended: bool = Field(description="Whether the model ended it by itself.")
    tokens: int
    rewards: dict[str, float] = Field(description="Each reward before its weight, by its name.")
    sum: float = Field(description="Weighted sum of the rewards.")


class RewardTrial(Facts):
    """A trial of a recipe's rewards."""

    rows: list[TriedRow] = Field(default=[], description="Rows in the order of a run.")
    left_out: str = Field(default="", description="Sentence on rows that no replies are written to; empty: none.")

    @property
    def means(self) -> dict[str, float]:
        """Mean of each reward before its weight, by its name."""
        names = self.rows[0].rewards if self.rows else {}
        return {name: fmean(row.rewards[name] for row in self.rows) for name in names}

    @property
    def mean(self) -> float:
        """Mean of the weighted sums."""
        return fmean(row.sum for row in self.rows) if self.rows else 0.0

    @property
    def spread(self) -> float:
        """Standard deviation of the weighted sums."""
        return pstdev(row.sum for row in self.rows) if self.rows else 0.0

    @property
    def is_flat(self) -> bool:
        """Whether all of several replies have the same sum, of which nothing could be learned."""
        return len(self.rows) > 1 and len({row.sum for row in self.rows}) == 1
