"""Reads the labels that call a reply good or bad: true and false, 1 and 0, and the words that people write."""

from __future__ import annotations

from typing import Any

_GOOD = {"true", "good", "chosen", "accepted", "desirable"}
_BAD = {"false", "bad", "rejected", "undesirable"}
_MAYBE_GOOD = {"1", "1.0", "+1", "yes", "positive"}
_MAYBE_BAD = {"0", "0.0", "-1", "-1.0", "no", "negative"}


def is_sure_label(value: Any) -> bool:
    """Whether a value says by itself that a reply is good or bad; a number may be a class instead."""
    return isinstance(value, bool) or _word(value) in _GOOD | _BAD


def is_label(value: Any) -> bool:
    """Whether a value can label a reply as good or bad."""
    if isinstance(value, (bool, int, float)):
        return value in (0, 1, -1)
    return _word(value) in _GOOD | _BAD | _MAYBE_GOOD | _MAYBE_BAD


def is_good(label: Any) -> bool:
    """Whether a label (see `is_label`) calls the reply good."""
    return label == 1 if isinstance(label, (bool, int, float)) else _word(label) in _GOOD | _MAYBE_GOOD


def _word(value: Any) -> str:
    return value.strip().lower() if isinstance(value, str) else ""
