"""The rewards of a recipe as lines to edit: kind, the setting that it needs, and weight. Pure functions, no Qt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from burnish_app.look.language import tr
from burnish_app.wording.numbers import as_sentence, decimal_text
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import recipe_problems
from burnish_engine.contract.recipe.recipe_reinforce import MOST_REWARDS, RewardKind, RewardSection


class KindText(NamedTuple):
    """The words of a kind of reward, and the setting that it needs.

    Attributes:
        name: name of the kind.
        pays: what it pays for, in half a sentence.
        setting: field of the reward's table; empty: it needs none.
        example: what stands in the empty line of the setting.
    """

    name: str
    pays: str
    setting: str = ""
    example: str = ""


KINDS: dict[RewardKind, KindText] = {
    "task": KindText(tr("Right reply"), tr("1 for a reply that the score of the task calls right")),
    "distance": KindText(
        tr("Near number"), tr("more, the nearer the last number is"), "span", tr("nothing from this distance on")
    ),
    "keys": KindText(tr("Right keys"), tr("the share of the JSON's keys whose value is right")),
    "format": KindText(tr("Pattern"), tr("1 where a regular expression is found"), "pattern", "^[0-9]+$"),
    "tags": KindText(
        tr("Tags"), tr("the share of tags that are opened and closed, in order"), "tags", tr("such as think, answer")
    ),
    "length": KindText(tr("Short reply"), tr("1 up to so many tokens, 0 at twice as many"), "tokens", "64"),
    "script": KindText(tr("Same writing system"), tr("the share of letters like those of the row's own reply")),
    "judge": KindText(tr("Judge"), tr("what another model says of it"), "model", tr("folder or .gguf file")),
    "code": KindText(
        tr("Code that runs"), tr("1 where its code passes the row's own tests, run apart from your files")
    ),
    "python": KindText(tr("Python function"), tr("what `reward` of your file returns"), "file", "reward.py"),
}
"""Kinds of rewards, in the order in which they are offered."""
_WHOLE, _NUMBER, _NAMES = {"tokens"}, {"span"}, {"tags"}
_ADDED: RewardKind = "length"
_ADDED_SETTING = "64"


@dataclass(frozen=True)
class RewardLine:
    """A reward as it is edited; its texts may be invalid.

    Attributes:
        kind: kind of the reward.
        setting: text of the setting that the kind needs; empty where it needs none.
        weight: text of the weight.
        rest: other fields of its table, such as its name.
    """

    kind: RewardKind
    setting: str = ""
    weight: str = "1"
    rest: Mapping[str, Any] = field(default_factory=dict)

    def of_kind(self, kind: RewardKind) -> RewardLine:
        """Return the line with another kind, whose setting is empty yet."""
        return self if kind == self.kind else RewardLine(kind, weight=self.weight)

    def values(self) -> dict[str, Any]:
        """Return the table of the reward; what is no number stays a text, which the schema refuses."""
        name, found = KINDS[self.kind].setting, {**self.rest, "kind": self.kind, "weight": _number(self.weight, float)}
        text = self.setting.strip()
        if name in _NAMES:
            found[name] = [part.strip() for part in text.split(",") if part.strip()]
        elif name in _WHOLE | _NUMBER:
            found[name] = _number(text, int if name in _WHOLE else float) if text else 0
        elif name:
            found[name] = text
        return found


def reward_lines(recipe: Recipe) -> tuple[RewardLine, ...]:
    """Return the rewards of a recipe as lines."""
    return tuple(map(_line, recipe.rewards))


def reward_name(title: str) -> str:
    """Return what a reward is called: its own name, or its kind's, with its number among those of the kind.

    Args:
        title: name of its curve, such as "mine", "length" or "length 2".
    """
    named = {str(kind): text.name for kind, text in KINDS.items()}
    kind, _, number = title.rpartition(" ")
    return f"{named[kind]} {number}" if kind in named and number.isdecimal() else named.get(title, title)


def with_another(lines: Sequence[RewardLine]) -> tuple[RewardLine, ...]:
    """Return lines with one more: a short reply, or the first kind that is not there yet."""
    used = {line.kind for line in lines}
    if _ADDED not in used:
        return (*lines, RewardLine(_ADDED, _ADDED_SETTING, "0.2"))
    unused: list[RewardKind] = [kind for kind in KINDS if kind not in used]
    return (*lines, RewardLine(unused[0] if unused else "format"))


def can_add(lines: Sequence[RewardLine]) -> bool:
    """Whether there may be another reward."""
    return len(lines) < MOST_REWARDS


def with_rewards(recipe: Recipe, lines: Sequence[RewardLine]) -> tuple[Recipe | None, dict[int, str]]:
    """Put edited rewards into a recipe.

    Args:
        recipe: recipe that learns from rewards.
        lines: its rewards as they were edited.

    Returns:
        The recipe, None where it would be invalid, and what is wrong with which line; -1: with all of them.
    """
    values = recipe.model_dump() | {"reward": [line.values() for line in _named(lines)]}
    problems = recipe_problems(values)
    if not problems:
        return Recipe.model_validate(values), {}
    found = dict[int, str]()
    for key, text in problems.items():
        section, _, place = key.partition(".")
        is_line = section == "reward" and place.isdecimal()
        said = text.removeprefix(key).removeprefix(".").strip() if is_line else text
        found.setdefault(int(place) if is_line else -1, as_sentence(said))
    return None, found


def _named(lines: Sequence[RewardLine]) -> list[RewardLine]:
    """Give rewards of the same kind names of their own, since each has a curve."""
    found, used = list[RewardLine](), set[str]()
    for line in lines:
        title, number = line.rest.get("name") or line.kind, 2
        rest = dict(line.rest)
        while title in used:
            title = rest["name"] = f"{line.kind} {number}"
            number += 1
        used.add(title)
        found.append(replace(line, rest=rest))
    return found


def _line(section: RewardSection) -> RewardLine:
    name = KINDS[section.kind].setting
    rest = section.model_dump(exclude={"kind", "weight", name}, exclude_defaults=True)
    return RewardLine(section.kind, _text(getattr(section, name)) if name else "", decimal_text(section.weight), rest)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value)
    if isinstance(value, str):
        return value
    return decimal_text(value) if value else ""


def _number(text: str, kind: type[int] | type[float]) -> Any:
    try:
        return kind(text)
    except ValueError:
        return text
