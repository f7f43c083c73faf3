"""A sweep with its runs: the result of each, which is best, and how far all are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from burnish_app.comparison.best_run import deltas_to_best
from burnish_app.wording.recipe_text import changes_text, setting_text
from burnish_engine.contract.facts.sweeps import SweepFile, SweepPlan, SweepRunPlan
from burnish_engine.contract.recipe.recipe import Recipe, setting_of
from burnish_engine.contract.recipe.sweep import sweepable_keys, value_text
from burnish_engine.contract.serve.replies import RunSummary

_ENDED = ("finished", "stopped", "suspended", "failed", "interrupted")
_MOST_VARIED = "train.learning_rate"


@dataclass(frozen=True)
class SweepRow:
    """A run of a sweep.

    Attributes:
        values: value of each setting, as text.
        run: summary of the run.
        delta: held-out loss less that of the best run of the sweep; None: there is nothing to compare with.
    """

    values: tuple[str, ...]
    run: RunSummary
    delta: float | None


def sweep_rows(sweep: SweepFile, runs: Sequence[RunSummary]) -> list[SweepRow]:
    """Return the runs of a sweep, in the order of its values, without those that were deleted.

    Args:
        sweep: the sweep.
        runs: summaries of all runs.
    """
    by_folder = {run.folder: run for run in runs}
    there = [(swept, by_folder[swept.folder]) for swept in sweep.runs if swept.folder in by_folder]
    deltas = deltas_to_best([run for _, run in there])
    keys = [setting.key for setting in sweep.settings]
    return [
        SweepRow(
            tuple(setting_text(key, value) for key, value in zip(keys, swept.values, strict=True)),
            run,
            deltas.get(run.folder),
        )
        for swept, run in there
    ]


def row_title(sweep: SweepFile, row: SweepRow) -> str:
    """Return the title of a run of a sweep: its values."""
    return changes_text({setting.key: value for setting, value in zip(sweep.settings, row.values, strict=True)})


def planned_title(plan: SweepPlan, run: SweepRunPlan) -> str:
    """Return the title of a planned run of a sweep: its values."""
    return changes_text({setting.key: value for setting, value in zip(plan.settings, run.values, strict=True)})


def ranked(rows: Sequence[SweepRow]) -> list[SweepRow]:
    """Return the runs with a held-out loss, lowest first, then the others in their order."""

    def loss(row: SweepRow) -> float:
        found = row.run.state.evaluation_loss
        return found if found is not None and math.isfinite(found) else math.inf

    return sorted(rows, key=loss)


def unfinished(rows: Sequence[SweepRow]) -> list[SweepRow]:
    """Return the runs that are running, or wait."""
    return [row for row in rows if row.run.standing not in _ENDED]


def offered_settings() -> list[str]:
    """List the keys of settings to choose from: the learning rate, those that decide most, then all others."""

    def place(key: str) -> tuple[bool, bool, int]:
        info = setting_of(key)
        return key != _MOST_VARIED, info.page != "first", info.order if info.page == "first" else 0

    return sorted(sweepable_keys(), key=place)


def draft_value(recipe: Recipe, key: str) -> object:
    """Return a setting's value in a recipe."""
    section, _, name = key.partition(".")
    return getattr(getattr(recipe, section), name)


def usual_values(recipe: Recipe, key: str) -> str:
    """Propose values around a recipe's own, as a person would type them; empty where there is no usual step.

    Args:
        recipe: recipe whose value is in the middle.
        key: dotted key of the setting.
    """
    value = draft_value(recipe, key)
    if isinstance(value, bool):
        return ", ".join(value_text(choice) for choice in (True, False))
    if isinstance(value, int) and value > 1 and setting_of(key).step.doubles:
        return ", ".join(str(number) for number in (max(value // 2, 1), value, value * 2))
    if isinstance(value, float) and value > 0 and key == _MOST_VARIED:
        return ", ".join(f"{value * factor:.4g}" for factor in (0.5, 1.0, 2.0))
    return "" if value is None else value_text(value)
