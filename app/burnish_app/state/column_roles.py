"""The roles of a data file's columns, as a person chooses them, and the recipe's `data.columns` for them. No Qt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

ROLES = (
    *("prompt", "reply", "system", "context", "history", "conversation", "chosen", "rejected", "label", "text"),
    *("segments", "tools", "reasoning"),
)
"""Roles that a column can have; a column without one is ignored."""

_ROLE_OF = {"instruction": "prompt", "completion": "reply", "output": "reply", "input": "context"}
"""Role of the recipe's meanings that are called otherwise; both ways to say what is asked and replied are one role."""
_INSTRUCTION = {"prompt": "instruction", "reply": "output", "context": "input"}
_PROMPT = {"prompt": "prompt", "reply": "completion", "context": "context"}
_KINDS = (
    {"prompt", "context", "history", "system", "tools", "reasoning", "reply", "label"},
    {"prompt", "context", "history", "system", "tools", "chosen", "rejected"},
    {"conversation", "system", "tools", "label", "rejected"},
    {"text"},
    {"segments"},
)
"""Roles that rows of one kind can have; two roles that no kind has together exclude each other."""
_TOGETHER = {frozenset(pair) for kind in _KINDS for pair in combinations(kind, 2)}


def roles_of(columns: Mapping[str, str]) -> dict[str, str]:
    """Return column to role, from meaning to column."""
    return {column: _ROLE_OF.get(meaning, meaning) for meaning, column in columns.items()}


def meanings_of(pairs: Sequence[str]) -> dict[str, str]:
    """Return meaning to column, from the recipe's `data.columns`."""
    split = [pair.partition("=") for pair in pairs]
    return {meaning.strip(): column.strip() for meaning, _, column in split}


def with_role(roles: Mapping[str, str], column: str, role: str) -> dict[str, str]:
    """Give a column a role. Columns lose theirs where it is the same one, or one that excludes it.

    Args:
        roles: column to role.
        column: column to change.
        role: one of `ROLES`; empty: the column is ignored.
    """
    kept = {name: own for name, own in roles.items() if name != column}
    if not role:
        return kept
    kept = {name: own for name, own in kept.items() if own != role and frozenset((own, role)) in _TOGETHER}
    return {**kept, column: role}


def missing_roles(roles: Mapping[str, str]) -> list[str]:
    """Return the roles that some column still must have before rows can be read; empty: they can."""
    given = set(roles.values())
    if given & {"conversation", "text", "segments"}:
        return []
    needed = ("chosen", "rejected") if given & {"chosen", "rejected"} else ("prompt", "reply")
    return [role for role in needed if role not in given]


def column_pairs(roles: Mapping[str, str], before: Mapping[str, str]) -> list[str]:
    """Return the recipe's `data.columns` for some roles.

    Args:
        roles: column to role.
        before: meaning to column, as the rows are read now; rows read as instructions stay so.
    """
    names = _INSTRUCTION if before.keys() & {"instruction", "output"} else _PROMPT
    return [f"{names.get(role, role)}={column}" for column, role in roles.items()]
