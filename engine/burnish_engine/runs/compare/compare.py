"""Compare two runs: differences of their recipes and cards, and their outcomes."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, ConfigDict

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.votes import count_votes, read_votes
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.comparison import ComparedRun
from burnish_engine.runs.compare.compare_cards import CardLine, compare_cards
from burnish_engine.runs.events_file import read_run
from burnish_engine.runs.store import read_recipe, summarize


class _Compared(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=True)


class RecipeDifference(_Compared):
    """A recipe key whose values differ.

    Attributes:
        key: dotted key, such as train.learning_rate.
        values: values of the first and of the second run.
    """

    key: str
    values: tuple[Any, Any]


class RunComparison(_Compared):
    """Comparison of two runs.

    Attributes:
        recipe: differences of the recipes, in the recipe's order.
        outcomes: outcome of the first and of the second run.
        cards: differences of the cards in versions, device and contents of files.
        notes: remarks on what makes the figures hard to compare.
    """

    recipe: list[RecipeDifference]
    outcomes: tuple[ComparedRun, ComparedRun]
    cards: list[CardLine]
    notes: list[str]


def compare(first: RunPaths, second: RunPaths) -> RunComparison:
    """Compare two runs, finished or not.

    Raises:
        UsageError: The recipe or state of one cannot be read.
    """
    recipes = read_recipe(first), read_recipe(second)
    outcomes = compared_run(first), compared_run(second)
    return RunComparison(
        recipe=list(_differences(*recipes)),
        outcomes=outcomes,
        cards=compare_cards(first, second),
        notes=list(comparison_notes(recipes, outcomes)),
    )


def compared_run(paths: RunPaths) -> ComparedRun:
    """Read the outcome of a run so far."""
    summary, run = summarize(paths), read_run(paths.events)
    steps, evaluations = run.steps, run.evaluations
    held_out_step, held_out_loss = run.result or (None, None)
    return ComparedRun(
        run=summary.state.run,
        standing=summary.status,
        step=run.step or summary.state.step,
        total_steps=summary.state.total_steps,
        loss=steps.loss.last,
        held_out_loss=held_out_loss,
        held_out_step=held_out_step,
        held_out_tokens=evaluations.tokens.last,
        objective=read_recipe(paths).preference.objective,
        accuracy=run.of_result(evaluations.accuracy),
        margin=run.of_result(evaluations.margin),
        forgetting=run.forgetting,
        task=run.task,
        votes=_votes_text(paths),
        tokens_per_s=statistics.median(steps.tokens_per_s.values()) if len(steps) else None,
        memory_bytes=run.highest_bytes or None,
        training_s=sum(steps.step_s.values()) if len(steps) else None,
    )


def _votes_text(paths: RunPaths) -> str:
    with suppress(UsageError):
        return count_votes(read_votes(paths)).text
    return ""


def _differences(first: Recipe, second: Recipe) -> Iterator[RecipeDifference]:
    ours, theirs = flat_recipe(first), flat_recipe(second)
    for key, value in ours.items():
        if value != theirs[key]:
            yield RecipeDifference(key=key, values=(value, theirs[key]))


def flat_recipe(recipe: Recipe) -> dict[str, Any]:
    """Return the values of a recipe by dotted key, in its order."""
    found: dict[str, Any] = {}
    for name, value in recipe.model_dump(mode="json").items():
        if isinstance(value, dict):
            found.update({f"{name}.{key}": entry for key, entry in value.items()})
        else:
            found[name] = value
    return found


def comparison_notes(recipes: Sequence[Recipe], outcomes: Sequence[ComparedRun]) -> Iterator[str]:
    """Say what makes the figures of runs hard to compare.

    Args:
        recipes: recipes of the runs.
        outcomes: their outcomes, in the same order.
    """
    measured = [outcome for outcome in outcomes if outcome.held_out_loss is not None]
    if len({outcome.objective for outcome in outcomes}) > 1:
        yield "The objectives differ, and each has a loss of its own: the losses do not say which run is better."
    elif len({outcome.held_out_tokens for outcome in measured}) > 1:
        yield "The held-out losses were measured on different rows; they do not say which run is better."
    elif len({recipe.model.path for recipe in recipes}) > 1:
        yield "The models differ, and so may their tokens: losses per token are not quite the same measure."
    scored = [outcome.task.after for outcome in outcomes if outcome.task is not None]
    if len({(score.metric, score.rows) for score in scored}) > 1:
        yield "The scores of the task are of different metrics or rows; they do not say which run is better."
    if len({outcome.step for outcome in outcomes}) > 1:
        yield "The runs made different numbers of steps."
