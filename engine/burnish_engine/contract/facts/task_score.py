"""The score of a task: how many greedy replies to held-out rows are right, before training and after."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from burnish_engine.contract.facts.intervals import share_interval, sign_test
from burnish_engine.contract.recipe.recipe_task import TaskMetric
from burnish_engine.contract.record import Record

TASK_LEVEL = 0.95
"""Confidence level at which a difference between two scores is called one."""
TaskVerdict = Literal["better", "worse", "not distinguishable", "equal"]
METRIC_NAMES: dict[TaskMetric, str] = {
    "none": "not scored",
    "exact_match": "exact match",
    "regex": "regular expression",
    "json": "valid JSON",
    "choice": "right choice",
    "number": "right number",
}
"""Name of each metric for people: the replies that it counts."""


class TaskReply(Record):
    """A reply that is not right, shortened."""

    row: int = Field(description="Its place among the scored rows, from 1.")
    asked: str = Field(description="The end of the last turn before the reply.")
    wanted: str = Field(description="The row's own reply.")
    reply: str
    why: str = Field(description="What is wrong, in half a sentence.")


class TaskScore(Record):
    """The score of one model's greedy replies to held-out rows."""

    metric: TaskMetric = "none"
    passed: list[bool] = Field(default=[], description="For each row, whether the reply is right.")
    cut: int = Field(default=0, description="Replies that were cut at the longest length.")
    failures: list[TaskReply] = Field(default=[], description="The first replies that are not right.")

    @property
    def rows(self) -> int:
        """Number of scored rows."""
        return len(self.passed)

    @property
    def right(self) -> int:
        """Number of right replies."""
        return sum(self.passed)

    @property
    def share(self) -> float:
        """Share of right replies, 0 to 1."""
        return self.right / self.rows if self.rows else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the share."""
        return share_interval(self.right, self.rows)

    @property
    def figures(self) -> str:
        """The score as a phrase, such as 47 of 50 (94 %)."""
        return f"{self.right} of {self.rows} ({self.share:.0%})".replace("%", " %")


class TaskChange(Record):
    """Two scores on the same rows: of a model before training and after, or of two models."""

    before: TaskScore
    after: TaskScore

    @property
    def gained(self) -> int:
        """Rows that only the second model gets right."""
        return sum(new and not old for old, new in self._pairs)

    @property
    def lost(self) -> int:
        """Rows that only the first model gets right."""
        return sum(old and not new for old, new in self._pairs)

    @property
    def _pairs(self) -> list[tuple[bool, bool]]:
        return list(zip(self.before.passed, self.after.passed, strict=False))

    @property
    def p_value(self) -> float:
        """Probability of a split at least as uneven if both were equally good (McNemar's exact test)."""
        return sign_test(self.gained, self.lost)

    @property
    def verdict(self) -> TaskVerdict:
        """Whether the second score is better beyond chance."""
        if not self.gained and not self.lost:
            return "equal"
        if self.p_value >= 1.0 - TASK_LEVEL:
            return "not distinguishable"
        return "better" if self.gained > self.lost else "worse"

    @property
    def figures(self) -> str:
        """Both scores, such as 3 of 50 (6 %) -> 47 of 50 (94 %)."""
        return f"{self.before.figures} -> {self.after.figures}"

    @property
    def text(self) -> str:
        """The figures as a phrase that names what was scored and what chance has to say."""
        return f"{METRIC_NAMES[self.after.metric]} {self.figures}, {self.verdict_text}"

    @property
    def verdict_text(self) -> str:
        """The verdict in a few words, with its p."""
        if self.verdict == "equal":
            return "the same rows are right"
        return f"{self.verdict} ({self.gained} rows gained, {self.lost} lost, p = {self.p_value:.2g})"
