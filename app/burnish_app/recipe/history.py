"""The changes of a recipe's form, to undo and redo, and what each did to the plan. Pure, no Qt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

from burnish_app.look.language import tr
from burnish_app.recipe.plan_text import Effect, effects
from burnish_app.recipe.recipe_fields import RecipeField, recipe_fields
from burnish_app.wording.recipe_text import setting_term
from burnish_engine.contract.facts.advice import RunPlan
from burnish_engine.contract.recipe.recipe import Recipe

_MOST = 100
_LONGEST = 24  # letters of a value
_TOGETHER_S = 1.2  # keys of one number, or presses of its stepper, within this time are one change


@dataclass(frozen=True)
class _State:
    recipe: Recipe
    what: str


class RecipeHistory:
    """Keeps the valid recipes of the form, one for each change.

    Args:
        recipe: recipe to begin with.
        clock: function that returns the time, seconds.
    """

    def __init__(self, recipe: Recipe, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._states = [_State(recipe, "")]
        self._at = 0
        self._last: tuple[str, float] = ("", 0.0)
        self._moves = 0
        self._is_spoiled = False

    @property
    def step(self) -> tuple[int, int]:
        """A key that stays while one field is typed into, and is another one after each change, undo and redo."""
        return self._moves, self._at

    @property
    def recipe(self) -> Recipe:
        """The recipe as of now."""
        return self._states[self._at].recipe

    @property
    def changes(self) -> list[str]:
        """Sentences that say what each change did, oldest first; those that were undone too."""
        return [state.what for state in self._states[1:]]

    @property
    def done(self) -> int:
        """The number of changes that are not undone."""
        return self._at

    @property
    def before_spoiled(self) -> int:
        """The number of changes that are done before a value became invalid, its valid beginning not counted."""
        return self._at - 1 if self._is_spoiled else self._at

    @property
    def before(self) -> Recipe:
        """The recipe before the last change that is done; the recipe itself if there is none."""
        return self._states[max(self._at - 1, 0)].recipe

    def restart(self, recipe: Recipe) -> None:
        """Forget all changes: the recipe became another one."""
        self._states, self._at, self._last, self._is_spoiled = [_State(recipe, "")], 0, ("", 0.0), False

    def record(self, recipe: Recipe, key: str = "") -> None:
        """Add a change; what was undone is forgotten.

        Args:
            recipe: recipe after the change.
            key: field that the person edited; quick edits of one field are one change. Empty: several fields.
        """
        if recipe == self.recipe:
            return
        now, self._is_spoiled = self._clock(), False
        del self._states[self._at + 1 :]
        together = bool(key) and self._at and self._last[0] == key and now - self._last[1] < _TOGETHER_S
        if together:
            self._states.pop()
        else:
            self._moves += 1
        what = change_text(self._states[-1].recipe, recipe)
        if what or not together:  # typed back to what it was: no change
            self._states.append(_State(recipe, what))
        del self._states[: max(len(self._states) - _MOST, 0)]
        self._at = len(self._states) - 1
        self._last = key, now

    def spoil(self, key: str) -> None:
        """Note that a field's value became invalid; what was typed of it just before is no value that was meant.

        Args:
            key: field that the person edited; empty: several fields.
        """
        now = self._clock()
        if self._at and key and self._last[0] == key and now - self._last[1] < _TOGETHER_S:
            self._last, self._is_spoiled = (key, now), True

    def amend(self, recipe: Recipe) -> None:
        """Give the last change another outcome; what was undone is forgotten.

        Args:
            recipe: recipe after that change.
        """
        before = self.before
        self._states[self._at :] = [_State(recipe, change_text(before, recipe))]

    def go_to(self, done: int) -> Recipe:
        """Undo or redo until so many changes are done, and return the recipe of that time.

        Args:
            done: number of changes that are to be done; a number out of range is taken to the nearest end.
        """
        self._at = min(max(done, 0), len(self._states) - 1)
        self._last, self._is_spoiled = ("", 0.0), False
        self._moves += 1
        return self.recipe


def changed_keys(before: Recipe, after: Recipe) -> list[str]:
    """Return the keys of the form's fields that have other values."""
    old, new = before.model_dump(), after.model_dump()
    return [field.key for field in recipe_fields() if field.read(old) != field.read(new)]


def change_text(before: Recipe, after: Recipe) -> str:
    """Say what differs between two recipes, such as "Rank: 16 → 32"; empty: nothing that the form shows."""
    keys = changed_keys(before, after)
    old, new = before.model_dump(), after.model_dump()
    fields = {field.key: field for field in recipe_fields()}
    if len(keys) > 1:
        names = ", ".join(setting_term(key) for key in keys[:3])
        return f"{names} ..." if len(keys) > 3 else names
    if not keys:
        return tr("Rewards") if before.reward != after.reward else ""
    field = fields[keys[0]]
    return tr("{name}: {old} → {new}").format(
        name=setting_term(field.key), old=_short(field, field.read(old)), new=_short(field, field.read(new))
    )


def _short(field: RecipeField, value: Any) -> str:
    if isinstance(value, bool):
        return tr("on") if value else tr("off")
    line = " ".join(field.choice_text(field.as_text(value)).split())
    return (line if len(line) <= _LONGEST else f"{line[: _LONGEST - 4]} ...") or tr("none")


class PlannedChange:
    """Compares the plan before a change with the one after it."""

    def __init__(self) -> None:
        self._before: tuple[Recipe, RunPlan] | None = None
        self._now: tuple[Recipe, RunPlan] | None = None
        self._step: tuple[int, int] | None = None
        self._found: tuple[str, list[Effect]] | None = None

    def forget(self) -> None:
        """Begin anew: plans from now on are about other data, or another suggestion."""
        self._before = self._now = self._step = self._found = None

    def take(self, recipe: Recipe, plan: RunPlan, step: tuple[int, int]) -> tuple[str, list[Effect]] | None:
        """Take a new plan, and return what the last change was and did; None: nothing changed.

        A recipe that is planned again, as after an inspection of its data, leaves the answer as it was: the person did
        not make that difference.

        Args:
            recipe: recipe that was planned.
            plan: its plan.
            step: `RecipeHistory.step` of the recipe.
        """
        recipe = recipe.model_copy(update={"name": ""})  # a name does nothing to the plan
        is_other = self._now is None or recipe != self._now[0]
        if is_other and step != self._step:
            self._before = self._now
        self._now, self._step = (recipe, plan), step
        if is_other and self._before is not None:
            what = change_text(self._before[0], recipe)
            self._found = (what, effects(self._before[1], plan)) if what else None
        return self._found
