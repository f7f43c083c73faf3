"""Find numbers in text, as people and models write them."""

from __future__ import annotations

import math
import re

_SPACES = "'\u2019\u202f\u00a0"  # besides a comma, what separates groups of three digits
_NUMBER = re.compile(
    rf"""
    (?<![\w.,])                             # not within a word or another number
    (?P<sign>[-+\u2212]?)(?:[$\u20ac\u00a3\u00a5]\s?)?
    (?:(?P<grouped>\d{{1,3}}(?:[,{_SPACES}]\d{{3}})+(?:\.\d+)?)
       |(?P<dotted>\d{{1,3}}(?:\.\d{{3}})+,\d+)
       |(?P<plain>\d+(?:[.,]\d+)?|\.\d+))
    (?P<power>[eE][-+]?\d{{1,3}})?
    (?!\d|[.,]\d)                           # so that 1.2.3 is no number
    (?=[a-zA-Z\u00b5]{{0,3}}(?!\w))         # a unit such as kg
    """,
    re.VERBOSE,
)


def numbers_in(text: str) -> list[float]:
    """Return the finite numbers of a text, in order.

    A comma, an apostrophe or a narrow space before groups of three digits separates thousands (1,234.5); any other
    comma is a decimal one (3,5 and 1.234,5). A currency before a number and up to three letters behind it, such as a
    unit, do not belong to it; digits within a word or a version are none.
    """
    found = [_value(match) for match in _NUMBER.finditer(text)]
    return [value for value in found if math.isfinite(value)]


def _value(match: re.Match[str]) -> float:
    if match["grouped"]:
        digits = re.sub(r"[^\d.]", "", match["grouped"])
    elif match["dotted"]:
        digits = match["dotted"].replace(".", "").replace(",", ".")
    else:
        digits = match["plain"].replace(",", ".")
    value = float(digits + (match["power"] or ""))
    return -value if match["sign"] in ("-", "\u2212") else value
