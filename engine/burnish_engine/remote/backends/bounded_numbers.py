"""Numbers that other machines and services tell: typed and bounded before they are used."""

from __future__ import annotations

import math
import re

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.recipe.recipe import MOST_GPUS

MOST_GIB = 2.0**20
"""Largest memory or disk of a machine that is believed, GiB."""
_NUMBER = re.compile(r"\s*(\d{1,12})(?!\d)", flags=re.ASCII)
_MOST_CORES = 2**16


def first_number(text: str) -> int:
    """Read the whole number that a text begins with; 0 where it begins with none, or with one of over 12 digits."""
    found = _NUMBER.match(text)
    return int(found[1]) if found else 0


def gpu_count(said: float) -> int:
    """Return a number of GPUs, at most as many as can share a run; 0 for a negative one."""
    return int(min(said, MOST_GPUS)) if said > 0 else 0


def core_count(said: float) -> int:
    """Return a number of processor cores, at least 1."""
    return int(min(said, _MOST_CORES)) if said >= 1 else 1


def gib(said: float) -> float:
    """Return a size in GiB; 0 for a negative one."""
    return min(said, MOST_GIB) if said > 0 else 0.0


def price(said: float) -> float | None:
    """Return a price; None where it is no number."""
    return said if math.isfinite(said) and said >= 0 else None


def job_number(text: str, place: str) -> str:
    """Check the number of a job or process.

    Args:
        text: what a machine answered, or what a record of the job says.
        place: machine that gave it, for messages.

    Raises:
        SetupError: The text is no such number.
    """
    if not re.fullmatch(r"[1-9]\d{0,17}", text, flags=re.ASCII):
        raise SetupError(f"{place} gave no number of a job: {text[:200]!r}.", "Look at the run there.")
    return text
