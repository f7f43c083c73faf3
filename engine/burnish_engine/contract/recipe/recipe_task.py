"""The recipe's section on the score of the task."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator, model_validator

from burnish_engine.contract.recipe.json_schema import parse_schema
from burnish_engine.contract.recipe.patterns import check_pattern, group_count
from burnish_engine.contract.recipe.recipe_section import Section, setting

TaskMetric = Literal["none", "exact_match", "regex", "json", "choice", "number"]
MOST_TASK_ROWS = 200
"""Most rows that are scored: each costs a reply. They are among the held-out rows that a run keeps in its folder."""

TASK_USES: dict[TaskMetric, tuple[str, ...]] = {
    "none": (),
    "exact_match": ("ignore_case",),
    "regex": ("pattern",),
    "json": ("json_schema",),
    "choice": ("choices",),
    "number": ("tolerance", "relative_tolerance"),
}
"""Settings that each metric reads, besides `max_rows` and `max_tokens`."""


class TaskSection(Section):
    """A score of the task: which greedy replies to held-out rows are right, before and after training."""

    metric: TaskMetric = setting(
        "none",
        "What makes a reply right, compared with the row's own reply. none: replies are not scored. exact_match: the "
        "same text but for white space; of JSON, the same value. regex: `pattern` is found in it. json: it is valid "
        "JSON, by `json_schema` where given. choice: the row's choice is the only one it names. number: its last "
        "number is the row's, within the tolerance.",
    )
    pattern: str = setting(
        "",
        "regex: the regular expression (Python's syntax). With a group in parentheses, what the group finds in the "
        "reply must equal what it finds in the row's own reply. A search that takes more than a second finds nothing.",
        max_length=2000,
    )
    json_schema: str = setting(
        "",
        "json: a JSON Schema as text that replies must follow. Known are type, enum, const, properties, required, "
        "additionalProperties, items, limits, pattern, anyOf, oneOf, allOf, not, $defs and $ref within the schema.",
        max_length=100_000,
    )
    choices: list[str] = setting(
        list,
        "choice: the choices; upper and lower case count alike. Empty: the different replies of the scored rows.",
        max_length=1000,
    )
    ignore_case: bool = setting(False, "exact_match: upper and lower case count alike.")
    tolerance: float = setting(0.0, "number: largest difference that is still right.", ge=0.0, le=1e12)
    relative_tolerance: float = setting(
        0.0, "number: the same as a share of the row's number. The larger of the two counts.", ge=0.0, le=1.0
    )
    max_rows: int = setting(
        50, "Most held-out rows to score; the first ones are taken.", unit="rows", ge=1, le=MOST_TASK_ROWS
    )
    max_tokens: int = setting(
        128, "Longest reply that is scored; one that does not end within it is not right.", unit="tokens", ge=1, le=8192
    )

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
