"""The next number that a field's stepper offers, larger or smaller. Pure functions, no Qt."""

from __future__ import annotations

import math

from burnish_app.recipe.recipe_fields import RecipeField

_DOUBLED = {
    "adapter.rank", "adapter.expert_rank", "adapter.alpha", "data.max_length", "train.micro_batch_tokens",
    "train.accumulation", "memory.mlp_rows", "memory.head_rows", "target.context", "export.importance_tokens",
}  # fmt: skip
"""Fields whose usual values are powers of two, or come from one by doubling."""
_FROM_ZERO = {
    "train.max_steps": 10, "train.max_tokens": 100_000, "evaluation.every": 10, "evaluation.max_rows": 50,
    "memory.mlp_rows": 1024, "memory.head_rows": 1024, "memory.budget_gib": 4.0, "train.checkpoint_every": 50,
    "train.checkpoint_minutes": 5.0, "train.momentum": 0.9, "export.size_limit_mb": 1000, "adapter.expert_rank": 1,
}  # fmt: skip
"""First value of fields whose 0 means something else than nothing."""
_SHARE_STEP = 0.05


def stepped(field: RecipeField, value: float, *, up: bool) -> float:
    """Return the next value: twice or half of it, 0.05 more or less of a share, else one more in its leading digit.

    A value within the field's bounds stays within them; at a bound it stays as it is.

    Args:
        field: field of a number.
        value: value now; not necessarily allowed.
        up: whether a larger value is wanted.
    """
    following = _next(field, value, up=up)
    found = int(following) if field.kind == "whole" else float(following)
    return found if _is_allowed(field, found) else value


def _next(field: RecipeField, value: float, *, up: bool) -> float:
    if value <= 0:
        return _FROM_ZERO.get(field.key, _SHARE_STEP if field.unit == "share" else 1.0) if up else value
    if field.unit == "share":
        return round(value + (_SHARE_STEP if up else -_SHARE_STEP), 6)
    if not up and field.low <= 0 and not field.low_is_open and value <= _FROM_ZERO.get(field.key, 0):
        return 0.0
    if field.key in _DOUBLED:
        return value * 2 if up else max(value / 2, min(value, field.low)) if field.kind == "number" else value // 2
    size = 10.0 ** math.floor(math.log10(value) + (1e-9 if up else -1e-9))  # below 1, 10, 100 the step is a tenth
    if field.kind == "whole":
        size = max(size, 1.0)
    count = value / size
    count = math.floor(count + 1 + 1e-6) if up else math.ceil(count - 1 - 1e-6)
    return float(f"{count * size:.6g}")


def _is_allowed(field: RecipeField, value: float) -> bool:
    above = value > field.low if field.low_is_open else value >= field.low
    return above and (value < field.high if field.high_is_open else value <= field.high)
