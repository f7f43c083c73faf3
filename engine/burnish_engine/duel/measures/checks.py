"""Check from cards and events that the runs of a duel were made under the same conditions."""

from __future__ import annotations

from collections.abc import Collection, Sequence

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
    outcomes: Sequence[RunOutcome], sides: Sequence[Side], besides: Collection[str] = ()
) -> list[DuelCheck]:
    """Check every condition over all runs so far; those that depend on the seed, among the runs of each seed.

    Args:
        outcomes: outcomes of the runs so far.
        sides: compared recipes.
        besides: conditions that the duel itself varies.
    """
    if not outcomes:
        return []
    found = []
    by_seed_keys = {key: what for key, what in _BY_SEED.items() if key not in besides}
    of_all_keys = {key: what for key, what in _OF_ALL.items() if key not in besides}
    for key, what in by_seed_keys.items():
        by_seed = [[one for one in outcomes if one.spec.seed == seed] for seed in _seeds(outcomes)]
        checks = [_check(key, what, group, sides) for group in by_seed]
        worst = [one for kind in ("differs", "unknown", "same") for one in checks if one.verdict == kind]
        found.append(worst[0])
    return [*found, *(_check(key, what, outcomes, sides) for key, what in of_all_keys.items())]


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


def _seeds(outcomes: Sequence[RunOutcome]) -> list[int]:
    return list(dict.fromkeys(outcome.spec.seed for outcome in outcomes))


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
