"""Check from cards and events that the runs of a duel were made under the same conditions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.run.duels import DuelCheck
from burnish_engine.duel.measures.outcome import RunOutcome
from burnish_engine.duel.sides.spec import Side

_BY_SEED = {
    "data": "learned from: the same tokens in the same order",
    "order": "every step: the same number of tokens and of learned tokens",
    "held_out": "evaluated on: the same number of rows and tokens",
    "steps": "length: the same steps and tokens",
    "schedule": "schedule: the same share of the peak learning rate at every step",
}
_OF_ALL = {
    "precision": "precision",
    "device": "device",
    "base": "weights of the base model",
    "versions": "versions",
}


def fairness_checks(
    outcomes: Sequence[RunOutcome], sides: Sequence[Side], varied: Mapping[str, Sequence[Hashable]] | None = None
) -> list[DuelCheck]:
    """Check every condition over all runs so far; those that depend on the seed, among the runs of each seed.

    Args:
        outcomes: outcomes of the runs so far.
        sides: compared recipes.
        varied: conditions that the duel's factors change, each with what the factors are for every side: such a
            condition is the same only among sides of the same value.
    """
    if not outcomes:
        return []
    found = []
    for key, what in {**_BY_SEED, **_OF_ALL}.items():
        values = (varied or {}).get(key)
        groups: dict[Hashable, list[RunOutcome]] = {}
        for one in outcomes:
            seed = one.spec.seed if key in _BY_SEED else None
            groups.setdefault((seed, values[one.spec.side] if values else None), []).append(one)
        checks = [_check(key, what, group, sides) for group in groups.values()]
        found.append(next(one for kind in ("differs", "unknown", "same") for one in checks if one.verdict == kind))
    return found


def refuse_unlike(checks: Sequence[DuelCheck]) -> None:
    """Raise where a condition differs.

    Raises:
        UsageError: A condition differs.
    """
    unlike = [one for one in checks if one.verdict == "differs"]
    if unlike:
        words = "; ".join(f"{one.what}: {one.detail}" for one in unlike)
        raise UsageError(
            f"The runs of this duel were not held under the same conditions ({words}).",
            "Find out what changed and begin a new duel; with --anyway it continues, and the report says so.",
        )


def _check(key: str, what: str, outcomes: Sequence[RunOutcome], sides: Sequence[Side]) -> DuelCheck:
    values = [(outcome, getattr(outcome.conditions, key)) for outcome in outcomes]
    known = [(outcome, value) for outcome, value in values if value]
    if not known:
        return DuelCheck(what=what, verdict="unknown", detail="no run tells")
    first, reference = known[0]
    for outcome, value in known:
        if value != reference:
            return DuelCheck(what=what, verdict="differs", detail=_unlike(first, reference, outcome, value, sides))
    if len(known) < len(values):
        missing = len(values) - len(known)
        detail = f"the same in {len(known)} runs; {missing} broke off or did not tell"
        return DuelCheck(what=what, verdict="same" if len(known) > 1 else "unknown", detail=detail)
    return DuelCheck(what=what, verdict="same", detail=_shown(reference))


def _unlike(first: RunOutcome, reference: object, other: RunOutcome, value: object, sides: Sequence[Side]) -> str:
    if isinstance(reference, dict) and isinstance(value, dict):
        names = [name for name in {**reference, **value} if reference.get(name) != value.get(name)]
        pairs = [f"{name} {reference.get(name, 'none')} / {value.get(name, 'none')}" for name in names]
        what = ", ".join(pairs)
    else:
        shown = _shown(reference), _shown(value)
        what = " / ".join(shown) if all(shown) else "its hash differs"
    names_of = [f"{sides[one.spec.side].name} (seed {one.spec.seed})" for one in (first, other)]
    return f"{what} in {' and '.join(names_of)}"


def _shown(value: object) -> str:
    """Describe a condition in words; empty where it is a hash."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {version}" for name, version in value.items())
    text = str(value)
    is_hash = len(text) == 64 and all(sign in "0123456789abcdef" for sign in text)
    return "" if is_hash else text
