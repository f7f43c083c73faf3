"""Say whether a reply is right, by the metric of a recipe. Pure: no model, no file."""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable
from decimal import Decimal
from functools import lru_cache
from typing import Any

from burnish_engine.contract.recipe.checks.json_schema import parse_json, parse_schema, same_json, schema_problem
from burnish_engine.contract.recipe.checks.patterns import SlowPatternError, find
from burnish_engine.contract.recipe.recipe_task import TaskSection
from burnish_engine.scoring.numbers_in_text import numbers_in

_FENCE = re.compile(r"\A```[\w-]*[ \t]*\n(.*?)\n?```\Z", re.DOTALL)
_SLOW = "the pattern took too long to search it"


class Metric(ABC):
    """Judges replies. Replies and rows' own replies come without white space around them."""

    def why_not_scorable(self, wanted: str) -> str:  # noqa: ARG002  most metrics score every row
        """Say why a row cannot be scored, in half a sentence about its own reply; empty where it can.

        Args:
            wanted: the row's own reply.
        """
        return ""

    @abstractmethod
    def why_wrong(self, reply: str, wanted: str) -> str:
        """Say what is wrong with a reply, in half a sentence; empty where it is right.

        Args:
            reply: reply of a model.
            wanted: the row's own reply.
        """


def make_metric(section: TaskSection, wanted: Iterable[str] = ()) -> Metric:
    """Make the metric that a recipe asks for.

    Args:
        section: section of the recipe, with a metric that is not "none".
        wanted: own replies of all rows, of which `choice` takes its choices where the recipe names none.
    """
    match section.metric:
        case "exact_match":
            return _ExactMatch(ignore_case=section.ignore_case)
        case "regex":
            return _Pattern(section.pattern, compares=section.compares)
        case "json":
            return _ValidJson(parse_schema(section.json_schema) if section.json_schema.strip() else {})
        case "choice":
            return _Choice(section.choices or wanted)
        case "number":
            return _Number(section.tolerance, section.relative_tolerance)
        case _:
            raise ValueError("there is no metric")


def same_text(text: str, *, ignore_case: bool = False) -> str:
    """Return a text in the form in which texts are compared: composed letters (NFC), single spaces, none around it."""
    joined = " ".join(unicodedata.normalize("NFC", text).split())
    return joined.casefold() if ignore_case else joined


class _ExactMatch(Metric):
    def __init__(self, *, ignore_case: bool) -> None:
        self._ignore_case = ignore_case

    def why_wrong(self, reply: str, wanted: str) -> str:
        if same_text(reply, ignore_case=self._ignore_case) == same_text(wanted, ignore_case=self._ignore_case):
            return ""
        structured = json_value(wanted)
        if structured is not None:
            value = json_value(reply)
            return "" if value is not None and same_json(value, structured) else "another JSON value"
        return "another text"


class _Pattern(Metric):
    def __init__(self, pattern: str, *, compares: bool) -> None:
        self._pattern, self._compares = pattern, compares

    def why_not_scorable(self, wanted: str) -> str:
        if not self._compares:
            return ""
        try:
            return "" if self._found(wanted) is not None else "the pattern finds nothing in it"
        except SlowPatternError:
            return _SLOW

    def why_wrong(self, reply: str, wanted: str) -> str:
        try:
            found = self._found(reply)
            if found is None:
                return "the pattern finds nothing in it"
            if self._compares and found != self._found(wanted):
                return f"the pattern finds {_quoted(found)}"
        except SlowPatternError:
            return _SLOW
        return ""

    def _found(self, text: str) -> str | None:
        """Return what the groups find, or the whole match; None where there is no match."""
        match = find(self._pattern, text)
        if match is None:
            return None
        groups = [group or "" for group in match.groups()] or [match[0]]
        return same_text(" ".join(groups))


class _ValidJson(Metric):
    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema

    def why_wrong(self, reply: str, wanted: str) -> str:
        # A code fence is no JSON; but where the rows themselves have one, the model shall write it.
        text = _unfenced(reply) if _unfenced(wanted) != wanted else reply
        try:
            return schema_problem(parse_json(text), self._schema)
        except ValueError:
            return "it is no valid JSON"
        except SlowPatternError:
            return "the check by the schema took too long"


class _Choice(Metric):
    """The choices that a text names are whole words of it; a longer choice hides shorter ones within it.

    Parts of a word with hyphens (non-positive) and of a decimal number (4.5) are no whole words.
    """

    def __init__(self, choices: Iterable[str]) -> None:
        self._choices = {same_text(choice, ignore_case=True): choice.strip() for choice in choices}
        longest_first = sorted(self._choices, key=len, reverse=True)
        words = "|".join(re.escape(choice) for choice in longest_first)
        self._named = re.compile(rf"(?<!\w)(?<!\w-)(?<!\d[.,])(?:{words})(?!\w|-\w|[.,]\d)" if words else r"(?!)")

    def why_not_scorable(self, wanted: str) -> str:
        return "" if len(self._names(wanted)) == 1 else "it does not name one of the choices"

    def why_wrong(self, reply: str, wanted: str) -> str:
        named = self._names(reply)
        if not named:
            return "it names none of the choices"
        if len(named) > 1:
            return f"it names {' and '.join(self._choices[one] for one in sorted(named))}"
        return "" if named == self._names(wanted) else f"it names {self._choices[named.pop()]}"

    def _names(self, text: str) -> set[str]:
        plain = same_text(text, ignore_case=True)
        return {plain} if plain in self._choices else set(self._named.findall(plain))


class _Number(Metric):
    def __init__(self, tolerance: float, relative: float) -> None:
        self._tolerance, self._relative = Decimal(str(tolerance)), Decimal(str(relative))

    def why_not_scorable(self, wanted: str) -> str:
        return "" if numbers_in(wanted) else "it has no number"

    def why_wrong(self, reply: str, wanted: str) -> str:
        found = numbers_in(reply)
        if not found:
            return "it has no number"
        right = numbers_in(wanted)[-1]
        room = max(self._tolerance, self._relative * abs(right))
        return "" if abs(found[-1] - right) <= room else f"its number is {found[-1]}"


@lru_cache(maxsize=1024)
def json_value(text: str) -> Any:
    """Parse a text that is a JSON object or list, in a code fence or not; None where it is none of the two."""
    try:
        value = parse_json(_unfenced(text.strip()))
    except ValueError:
        return None
    return value if isinstance(value, dict | list) else None


def _unfenced(text: str) -> str:
    match = _FENCE.match(text)
    return match[1] if match else text


def _quoted(text: str) -> str:
    return f'"{text}"' if len(text) <= 40 else f'"{text[:37]}..."'
