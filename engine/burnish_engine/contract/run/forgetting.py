"""The forgetting of a model in training: its loss on a general text before and after."""

from __future__ import annotations

from pydantic import Field

from burnish_engine.contract.number import Number
from burnish_engine.contract.record import Record

MARKED_NATS = 0.1
"""Rise of the loss from which it is pointed out, nats per token. By the scaling law of Hoffmann et al. 2022, a model of
a billion parameters that is replaced by one of half its size loses about as much."""


class Forgetting(Record):
    """The loss on the general text that comes with Burnish, before and after training.

    Losses compare only between models with the same tokenizer.
    """

    before: Number = Field(description="Mean cross entropy per token before the first step, nats.")
    after: Number = Field(description="The same of the run's result.")
    tokens: int = Field(description="Tokens of the text that were measured.")

    @property
    def difference(self) -> float:
        """Rise of the loss, nats per token."""
        return self.after - self.before

    @property
    def is_marked(self) -> bool:
        """Whether the loss rose so much that it is pointed out; so it is where it is no number any more."""
        return not self.difference < MARKED_NATS

    @property
    def figures(self) -> str:
        """Both losses and the difference of what is shown, such as 3.21 -> 3.29 (+0.08)."""
        before, after = round(self.before, 2), round(self.after, 2)
        return f"{before:.2f} -> {after:.2f} ({after - before:+.2f})"

    @property
    def warning(self) -> str:
        """Sentences about a marked rise: the meaning, and what helps."""
        return (
            f"The loss on general text went {self.figures}: the model lost some of what it could do before. Rows that "
            "the base writes (data.replay_share = 0.03), a lower train.learning_rate, or fewer epochs keep more of it."
        )

    @property
    def text(self) -> str:
        """The figures as a phrase that names what was measured."""
        return f"loss on general text {self.figures}"
