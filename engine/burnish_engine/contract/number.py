"""Floats in JSON, which has no NaN or infinity: those travel as the strings "NaN", "Infinity" and "-Infinity"."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer

_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def _to_json_number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


Number = Annotated[
    float,
    BeforeValidator(lambda value: _SPECIAL.get(value, value) if isinstance(value, str) else value),
    PlainSerializer(_to_json_number, when_used="json"),
]
"""A float whose non-finite values survive JSON."""

Moment = Annotated[float, Field(ge=0.0, le=253_402_300_799.0, allow_inf_nan=False)]
"""Wall-clock time in seconds since the epoch, up to the year 9999: every calendar has it."""
