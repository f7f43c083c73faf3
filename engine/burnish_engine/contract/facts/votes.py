"""The blind votes of a person on replies of a run's model and others, in `votes.json`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from pydantic import Field, ValidationError, model_validator

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.files import read_with_retry, write_atomic
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.record import Record

_MOST_VOTES, _LONGEST_PROMPT, _LONGEST_NAME = 2000, 2000, 200


class Vote(Record):
    """One vote on the replies to one prompt, given without knowing which model wrote which."""

    t: float = Field(default=0.0, description="Seconds since the epoch.")
    prompt: str = Field(max_length=_LONGEST_PROMPT)
    shown: tuple[str, ...] = Field(min_length=2, max_length=3, description="Names of the models that answered.")
    best: str = Field(default="", description="Name of the best one; empty: they are equally good.")

    @model_validator(mode="after")
    def _best_was_shown(self) -> Vote:
        if self.best and self.best not in self.shown:
            raise ValueError("the best one is none of those shown")
        if any(not name or len(name) > _LONGEST_NAME for name in self.shown) or len(set(self.shown)) < len(self.shown):
            raise ValueError("each model has a name of its own")
        return self


class VoteCount(Record):
    """Count of the votes of a run."""

    votes: int = 0
    wins: dict[str, int] = Field(default={}, description="Name of a model to the votes for it, most first.")
    equal: int = Field(default=0, description="Votes that found them equally good.")

    @property
    def text(self) -> str:
        """Return the count as "tuned 5, base 1, equal 2"; empty without votes."""
        parts = [f"{name} {count}" for name, count in self.wins.items()]
        return ", ".join([*parts, *([f"equal {self.equal}"] if self.equal else [])])


class _VotesFile(Record):
    v: int = Field(default=1, ge=1, le=1)
    votes: tuple[Vote, ...] = ()


def read_votes(paths: RunPaths) -> list[Vote]:
    """Read a run's votes, oldest first.

    Raises:
        UsageError: The file is damaged, cannot be read, or has another version.
    """
    try:
        return list(_VotesFile.model_validate_json(read_with_retry(paths.votes)).votes)
    except FileNotFoundError:
        return []
    except (OSError, ValueError):
        raise UsageError(
            f"The votes in {paths.votes} are damaged, or another version of Burnish wrote them.",
            "Look into the file and correct it, or move it away: it is not overwritten.",
        ) from None


def add_vote(paths: RunPaths, prompt: str, shown: Sequence[str], best: str) -> VoteCount:
    """Add a vote to a run's; of very many the oldest are dropped.

    Args:
        paths: paths of the run.
        prompt: prompt that was answered; a long one is cut.
        shown: names of the models that answered.
        best: name of the best one; empty: they are equally good.

    Returns:
        Count of all votes.

    Raises:
        UsageError: The vote makes no sense, or the former votes cannot be read.
        NoSpaceError: The file cannot be written.
    """
    before = read_votes(paths)
    try:
        vote = Vote(t=time.time(), prompt=prompt[:_LONGEST_PROMPT], shown=tuple(shown), best=best)
    except ValidationError as error:
        what = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise UsageError(f"The vote was not kept: {what}.", "Vote for one of two or three models.") from None
    votes = [*before, vote][-_MOST_VOTES:]
    write_atomic(paths.votes, _VotesFile(votes=tuple(votes)).model_dump_json(indent=1) + "\n")
    return count_votes(votes)


def count_votes(votes: Sequence[Vote]) -> VoteCount:
    """Count votes. A model that was shown and never won counts 0."""
    wins = Counter({name: 0 for vote in votes for name in vote.shown})
    wins.update(vote.best for vote in votes if vote.best)
    equal = sum(not vote.best for vote in votes)
    return VoteCount(votes=len(votes), wins=dict(wins.most_common()), equal=equal)
