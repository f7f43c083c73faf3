"""Find numbers in text, as people and models write them."""

from __future__ import annotations

import re
from decimal import Decimal

_APART = "'\u2019\u202f\u00a0\u2009 "  # besides a comma, what separates groups of three digits
_LARGEST = Decimal("1e308")  # a double holds no more
_NUMBER = re.compile(
    rf"""
    (?<![\w.,])                             # not within a word or another number
    (?P<sign>[-+\u2212]?)(?:[$\u20ac\u00a3\u00a5]\s?)?
    (?:(?P<grouped>\d{{1,3}}(?:(?:,\d{{3}})+(?:\.\d+)?|(?P<apart>[{_APART}])\d{{3}}(?:(?P=apart)\d{{3}})*(?:[.,]\d+)?))
       |(?P<dotted>\d{{1,3}}(?:(?:\.\d{{3}})+,\d+|(?:\.\d{{3}}){{2,}}))
       |(?P<plain>\d+(?:[.,]\d+)?|\.\d+))
    (?P<power>[eE][-+]?\d{{1,3}})?
    (?!\d|[.,]\d)                           # so that 1.2.3 is no number
    (?=(?:[a-zA-Z\u00b5]{{1,3}}[\u00b2\u00b3]?)?(?!\w))  # a unit such as kg or m\u00b2
    """,
    re.VERBOSE,
)


def numbers_in(text: str) -> list[Decimal]:
    """Return the numbers of a text, in order and exactly; what no double can hold is left out.

    A comma, an apostrophe or a space before groups of three digits separates thousands (1,234.5 and 1 234,5), and so do
    several points (1.234.567); any other comma is a decimal one (3,5 and 1.234,5). A currency before a number and up to
    three letters behind it, such as a unit, do not belong to it; digits within a word or a version are none.
    """
    found = [_value(match) for match in _NUMBER.finditer(text)]
    return [value for value in found if abs(value) <= _LARGEST]


def _value(match: re.Match[str]) -> Decimal:
    if match["apart"]:
        digits = match["grouped"].replace(match["apart"], "").replace(",", ".")
    elif match["grouped"]:
        digits = match["grouped"].replace(",", "")
    elif match["dotted"]:
        digits = match["dotted"].replace(".", "").replace(",", ".")
    else:
        digits = match["plain"].replace(",", ".")
    value = Decimal(digits + (match["power"] or ""))
    return -value if match["sign"] in ("-", "\u2212") else value
