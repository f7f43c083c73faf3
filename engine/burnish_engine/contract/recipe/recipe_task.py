"""The recipe's section on the score of the task."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator, model_validator

from burnish_engine.contract.recipe.checks.json_schema import parse_schema
from burnish_engine.contract.recipe.checks.patterns import check_pattern, group_count
from burnish_engine.contract.recipe.recipe_section import Section, setting, unless, when

TaskMetric = Literal["none", "exact_match", "regex", "json", "choice", "number"]
MOST_TASK_ROWS = 200
"""Most rows that are scored: each costs a reply. They are among the held-out rows that a run keeps in its folder."""

_IS_SCORED = unless("metric", "none")


class TaskSection(Section):
    """A score of the task: which greedy replies to held-out rows are right, before and after training."""

    metric: TaskMetric = setting(
        "none",
        "What makes a reply right, compared with the row's own reply. exact_match: the same text but for white space; "
        "of JSON, the same value. regex: `pattern` is found in it. json: it is valid JSON, by `json_schema` where "
        "given. choice: the only choice it names. number: its last number.",
        label="Score of the task (metric)",
        choices={
            "none": "not scored",
            "exact_match": "exact match",
            "regex": "regular expression",
            "json": "valid JSON",
            "choice": "one of several choices",
            "number": "number within a tolerance",
        },
        note={"none": "Right replies are not counted. Choose a metric to see what training does for the task."},
        page="first", order=8,
    )  # fmt: skip
    pattern: str = setting(
        "",
        "Regular expression (Python's syntax). With a group in parentheses, what the group finds in the reply must "
        "equal what it finds in the row's own reply. A search that takes more than a second finds nothing.",
        label="Pattern (regular expression)", used_if=when("metric", "regex"), max_length=2000,
    )  # fmt: skip
    json_schema: str = setting(
        "",
        "JSON Schema as text that replies must follow. Known are type, enum, const, properties, required, "
        "additionalProperties, items, limits, pattern, anyOf, oneOf, allOf, not, $defs and $ref within the schema.",
        label="JSON Schema", used_if=when("metric", "json"), long=True, max_length=100_000,
    )  # fmt: skip
    choices: list[str] = setting(
        list, "Choices; upper and lower case count alike. Empty: the different replies of the scored rows.",
        label="Choices (labels)", used_if=when("metric", "choice"), long=True, max_length=1000,
    )  # fmt: skip
    ignore_case: bool = setting(
        False, "Upper and lower case count alike.", label="Ignore upper and lower case",
        used_if=when("metric", "exact_match"),
    )  # fmt: skip
    tolerance: float = setting(
        0.0, "Largest difference that is still right.", label="Tolerance", used_if=when("metric", "number"), ge=0.0,
        le=1e12,
    )  # fmt: skip
    relative_tolerance: float = setting(
        0.0, "The tolerance as a share of the row's number. The larger of the two counts.",
        label="Tolerance (share of the number)", used_if=when("metric", "number"), ge=0.0, le=1.0,
    )  # fmt: skip
    max_rows: int = setting(
        50, "Most held-out rows to score; the first ones are taken.", label="Scored rows (at most)", unit="rows",
        used_if=_IS_SCORED, ge=1, le=MOST_TASK_ROWS,
    )  # fmt: skip
    max_tokens: int = setting(
        128, "Longest reply that is scored; one that does not end within it is not right.",
        label="Longest scored reply", unit="tokens", used_if=_IS_SCORED, ge=1, le=8192,
    )  # fmt: skip

    @property
    def is_active(self) -> bool:
        """Whether replies are scored."""
        return self.metric != "none"

    @property
    def compares(self) -> bool:
        """Whether a reply is compared with the row's own reply, rather than judged by itself."""
        if self.metric == "regex":
            return group_count(self.pattern) > 0
        return self.metric in ("exact_match", "choice", "number")

    @field_validator("pattern")
    @classmethod
    def _is_pattern(cls, pattern: str) -> str:
        if pattern:  # without one, nothing has to be loaded that compiles it
            check_pattern(pattern)
        return pattern

    @field_validator("json_schema")
    @classmethod
    def _is_schema(cls, text: str) -> str:
        if text.strip():
            try:
                parse_schema(text)
            except ValueError as error:
                raise ValueError(f"is no JSON Schema that can be checked: {error}") from None
        return text

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> TaskSection:
        if self.metric == "regex" and not self.pattern:
            raise ValueError('pattern is empty, and metric = "regex" needs one, such as pattern = "^[A-Z]{3}-[0-9]+$"')
        if self.metric == "choice" and self.choices and len({one.strip().casefold() for one in self.choices}) < 2:
            raise ValueError(f"choices must name at least two different ones, not {self.choices}")
        if any(not choice.strip() for choice in self.choices):
            raise ValueError("choices holds an empty one")
        return self
