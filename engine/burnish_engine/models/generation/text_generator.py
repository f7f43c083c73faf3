"""The interface of models that generate text. Loads no torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from burnish_engine.models.generation.sampling import Sampling


@dataclass(frozen=True)
class ReplyRequest:
    """A reply that is wanted.

    Attributes:
        ids: token ids of the prompt, at least one.
        sampling: choice of its tokens.
        base: whether the model answers without its adapter.
    """

    ids: Sequence[int]
    sampling: Sampling
    base: bool = False


@dataclass(frozen=True)
class ReplyPiece:
    """The next tokens of a reply.

    Attributes:
        request: number of the request.
        tokens: new tokens; the token that ends a reply is not among them.
        ended: whether the reply is whole.
        stopped: whether it ended by itself rather than at the token limit.
        end: token that ended it; None where none did.
    """

    request: int
    tokens: Sequence[int]
    ended: bool = False
    stopped: bool = False
    end: int | None = None


@runtime_checkable
class TextGenerator(Protocol):
    """A model that makes several replies at a time."""

    @property
    def is_paged(self) -> bool:
        """Whether replies take memory as they grow, so that any number may be asked for at once."""
        return False

    @property
    def ends(self) -> Sequence[int | Sequence[int] | None]:
        """Ends of a reply that the model's files declare: every `eos_token_id`, a number or a list."""
        ...

    def replies(self, requests: Sequence[ReplyRequest], stops: Set[int], together: int) -> Iterator[ReplyPiece]:
        """Make replies, several at a time; each ends with one piece that says so.

        The model's modes are as they were between two pieces: the consumer may train it, or never come back.

        Args:
            requests: the replies wanted, in any order of length.
            stops: tokens that end a reply.
            together: most replies that grow at the same time.
        """
        ...
