"""Find the differences between recipes: those that are compared, those that are unfair, those that the duel decides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from pydantic import BaseModel, ConfigDict

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.sweep import SweepSetting
from burnish_engine.contract.run.duels import DifferenceKind

_DECIDED = {
    "name": "only a name",
    "train.seed": "the duel gives every side the same seeds",
    "train.learning_rate": "the middle of the side's own grid",
    "train.checkpoint_every": "the same for all sides in a duel",
    "train.checkpoint_minutes": "the same for all sides in a duel",
    "train.keep_checkpoints": "the same for all sides in a duel",
    "evaluation.every": "the same for all sides in a duel",
    "evaluation.general_text": "changes no result",
    "evaluation.prompts": "not asked in a duel",
    "evaluation.sample_tokens": "not asked in a duel",
    "evaluation.sample_share": "not asked in a duel",
    "evaluation.patience": "no run of a duel stops early",
    "evaluation.min_improvement": "no run of a duel stops early",
    "guard": "as by default, but never back and on at a lower rate",
    "data.workers": "changes no result",
    "export": "nothing is exported in a duel",
    "target": "nothing is exported in a duel",
}
_UNFAIR = {
    "data.validation_files": "other evaluation rows",
    "data.validation_share": "other evaluation rows",
    "evaluation.max_rows": "other evaluation rows",
    "data": "other data",
    "model.path": "another base model",
    "train.epochs": "another token budget",
    "train.max_steps": "another token budget",
    "train.max_tokens": "another token budget",
    "train.micro_batch_tokens": "another token budget",
    "train.accumulation": "another token budget",
    "train.pack": "another order of the data",
    "train.schedule": "another schedule",
    "train.warmup_share": "another schedule",
    "train.final_share": "another schedule",
    "train.decay_share": "another schedule",
    "train.precision": "another precision",
    "task": "another score of the task",
    "devices": "another device",
}
"""Keys, or whole sections, that every side must share. A duel compares everything that is in neither table."""


class DuelDifference(BaseModel):
    """A recipe key whose values differ between sides.

    Attributes:
        key: dotted key, such as train.optimizer.
        values: values of the sides, in their order.
        kind: compared: the subject of the duel. unfair: a difference that would decide the duel by something else.
            decided: a key that the duel sets.
        why: short reason; empty for compared keys.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: str
    values: list[Any]
    kind: DifferenceKind
    why: str = ""


CHANGED_BY = {
    "train.precision": "precision", "train.schedule": "schedule", "train.warmup_share": "schedule",
    "train.final_share": "schedule", "train.decay_share": "schedule",
}  # fmt: skip
"""Condition of a run that a factor changes. Where every combination of values runs, such a difference is fair."""


def changed_conditions(tried: Sequence[SweepSetting]) -> dict[str, list[tuple[object, ...]]]:
    """Return the conditions that a duel's factors change, each with those factors' values of every side.

    Args:
        tried: factors; sides are the combinations of their values, the first factor changes slowest.
    """
    cells = list(product(*(factor.values for factor in tried)))
    found: dict[str, list[tuple[object, ...]]] = {}
    for condition in dict.fromkeys(CHANGED_BY[factor.key] for factor in tried if factor.key in CHANGED_BY):
        places = [place for place, factor in enumerate(tried) if CHANGED_BY.get(factor.key) == condition]
        found[condition] = [tuple(cell[place] for place in places) for cell in cells]
    return found


def differences(recipes: Sequence[Recipe], tried: Sequence[str] = ()) -> list[DuelDifference]:
    """List all differences: compared ones first, then unfair ones, then those that the duel decides.

    Args:
        recipes: recipes of the sides.
        tried: keys of the duel's factors, which are compared.
    """
    order: list[DifferenceKind] = ["compared", "unfair", "decided"]
    return sorted(_differences(recipes, tried), key=lambda found: order.index(found.kind))


def require_factor(key: str) -> None:
    """Check that a key can be a factor of a duel.

    Raises:
        UsageError: The duel sets the key itself, or it changes what runs learn from or for how long.
    """
    kind, why = _kind(key)
    if kind != "compared" and key not in CHANGED_BY:
        raise UsageError(f"{key} cannot be a factor of a duel ({why}).", "Take another setting.")


def refuse_unfair(found: Sequence[DuelDifference], names: Sequence[str]) -> None:
    """Refuse recipes with unfair differences.

    Args:
        found: differences from `differences`.
        names: names of the sides.

    Raises:
        UsageError: A difference is unfair.
    """
    unfair = [difference for difference in found if difference.kind == "unfair"]
    if not unfair:
        return
    words = "; ".join(f"{one.key} is {' / '.join(shown(value) for value in one.values)} ({one.why})" for one in unfair)
    raise UsageError(
        f"{' and '.join(names)} cannot be compared fairly: {words}.",
        "Give all recipes the same values there, or add --anyway: they are compared, and the report says so.",
    )


def shown(value: Any) -> str:
    """Shorten a recipe's value for display; of paths the last part is shown."""
    if isinstance(value, list):
        return f"[{', '.join(shown(entry) for entry in value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    text = str(value).replace("\\", "/")
    text = text.rpartition("/")[2] if text.startswith("/") or text[1:3] == ":/" else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _differences(recipes: Sequence[Recipe], tried: Sequence[str]) -> Iterator[DuelDifference]:
    documents = [recipe.model_dump(mode="json") for recipe in recipes]
    for section, content in documents[0].items():
        keys = [f"{section}.{key}" for key in content] if isinstance(content, dict) else [section]
        for key in keys:
            values = [_value(document, key) for document in documents]
            if any(value != values[0] for value in values):
                kind, why = ("compared", "") if key in tried else _kind(key)
                yield DuelDifference(key=key, values=values, kind=kind, why=why)


def _value(document: dict[str, Any], key: str) -> Any:
    section, _, name = key.partition(".")
    return document[section][name] if name else document[section]


def _kind(key: str) -> tuple[DifferenceKind, str]:
    tables: tuple[tuple[DifferenceKind, dict[str, str]], ...] = (("decided", _DECIDED), ("unfair", _UNFAIR))
    for part in (key, key.partition(".")[0]):  # a key of its own goes before its section
        for kind, table in tables:
            if part in table:
                return kind, table[part]
    return "compared", ""
