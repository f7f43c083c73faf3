"""Recognize from a dataset's own replies how its task can be scored."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from burnish_engine.contract.facts.data_report import TaskHint
from burnish_engine.contract.recipe.recipe_task import TaskSection
from burnish_engine.scoring.metrics import json_value, same_text
from burnish_engine.scoring.numbers_in_text import numbers_in

_FEWEST_ROWS = 10  # fewer tell nothing
_MOST_LABELS = 20
_ROWS_OF_A_LABEL = 3  # rows for each label on average, or they are no labels
_LABEL_CHARACTERS = 60
_NUMBER_CHARACTERS = 40
_NEARLY_ALL = 0.95
_MOST_KEYS = 40
_LONGEST_SCORED = 1024  # tokens of a reply that is scored by suggestion
_NAMES: dict[type, str] = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


def recognize_task(replies: Sequence[str]) -> TaskHint | None:
    """Say how replies can be scored, where they look like JSON, like labels or like numbers; None of others.

    Args:
        replies: own replies of held-out rows.
    """
    texts = [reply.strip() for reply in replies]
    if len(texts) < _FEWEST_ROWS:
        return None
    return _json(texts) or _labels(texts) or _numbers(texts)


def suggested_section(hint: TaskHint) -> TaskSection:
    """Return the section of a recipe that scores replies as they were recognized."""
    schema = ""
    if hint.schema_keys:
        properties = {key: {"type": kind} if kind else {} for key, kind in hint.schema_keys.items()}
        schema = json.dumps(
            {"type": "object", "properties": properties, "required": list(properties)}, ensure_ascii=False
        )
    # Replies that are half as long again as the longest one are not right anyway.
    longest = 16 * math.ceil(max(1.5 * hint.reply_tokens, 16) / 16)
    return TaskSection(metric=hint.metric, json_schema=schema, max_tokens=min(longest, _LONGEST_SCORED))


def is_suggested(section: TaskSection, hint: TaskHint | None) -> bool:
    """Whether a recipe scores what its own rows suggest, rather than what somebody chose."""
    if hint is None:
        return False
    suggested = suggested_section(hint)
    return (section.metric, section.json_schema) == (suggested.metric, suggested.json_schema)


def _json(texts: Sequence[str]) -> TaskHint | None:
    values = [json_value(text) for text in texts]
    known = [value for value in values if value is not None]
    if len(known) < _NEARLY_ALL * len(texts):
        return None
    keys = _shared_keys(known)
    named = f" with the keys {_few(list(keys))}" if keys else ""
    return TaskHint(metric="json", rows=len(texts), schema_keys=keys, says=f"The rows' replies are JSON{named}.")


def _shared_keys(values: Sequence[Any]) -> dict[str, str]:
    """Map the keys that all objects have to the JSON type of their values, empty where it varies; none of lists."""
    if not all(isinstance(value, dict) for value in values):
        return {}
    shared = [key for key in values[0] if all(key in value for value in values)]
    types = {key: {_NAMES.get(type(value[key]), "") for value in values} for key in shared[:_MOST_KEYS]}
    return {key: kinds.pop() if len(kinds) == 1 else "" for key, kinds in types.items()}


def _labels(texts: Sequence[str]) -> TaskHint | None:
    labels = dict.fromkeys(same_text(text, ignore_case=True) for text in texts)
    if not 2 <= len(labels) <= _MOST_LABELS or len(labels) * _ROWS_OF_A_LABEL > len(texts):
        return None
    if any(not label or len(label) > _LABEL_CHARACTERS for label in labels):
        return None
    return TaskHint(
        metric="choice", rows=len(texts), says=f"The rows' replies are {len(labels)} labels: {_few(list(labels))}."
    )


def _numbers(texts: Sequence[str]) -> TaskHint | None:
    fitting = [text for text in texts if len(text) <= _NUMBER_CHARACTERS and len(numbers_in(text)) == 1]
    if len(fitting) < _NEARLY_ALL * len(texts):
        return None
    return TaskHint(metric="number", rows=len(texts), says=f"The rows' replies are numbers, such as {fitting[0]}.")


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")


def replies_of(chats: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return the last reply of each conversation that ends with one in text."""
    ends = [chat[-1] for chat in chats if chat and chat[-1].get("role") == "assistant"]
    return [end["content"] for end in ends if isinstance(end.get("content"), str) and end["content"].strip()]
