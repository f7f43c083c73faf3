"""Two runs beside each other: what their recipes do differently, what they were made of, and what came of it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict

from burnish_engine.contract.events import EvaluationDone, Number, StepDone
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe import Recipe
from burnish_engine.contract.state import Standing
from burnish_engine.runs.compare_cards import CardLine, compare_cards
from burnish_engine.runs.events_file import read_events
from burnish_engine.runs.store import read_recipe, summarize


class _Compared(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=True)


class Outcome(_Compared):
    """What came of a run so far. None: not measured.

    Attributes:
        run: Name of its folder.
        standing: Where it stands.
        step: Optimizer steps done.
        total_steps: Steps it makes in all.
        loss: Training loss of the last step, nats per learned token.
        held_out_loss: Newest held-out loss, nats per learned token.
        held_out_step: The step it was measured after.
        held_out_tokens: Held-out tokens it was measured on.
        tokens_per_s: Median over the steps.
        memory_bytes: Peak over the steps.
        training_s: Time spent in steps, without loading, evaluation and saving.
    """

    run: str
    standing: Standing
    step: int
    total_steps: int
    loss: Number | None = None
    held_out_loss: Number | None = None
    held_out_step: int | None = None
    held_out_tokens: int | None = None
    tokens_per_s: Number | None = None
    memory_bytes: int | None = None
    training_s: Number | None = None


class Difference(_Compared):
    """A recipe key whose values differ.

    Attributes:
        key: Dotted, such as train.learning_rate.
        values: Of the first run and of the second.
    """

    key: str
    values: tuple[Any, Any]


class Comparison(_Compared):
    """Two runs beside each other.

    Attributes:
        recipe: What their recipes do differently, in the recipe's order.
        outcomes: Of the first run and of the second.
        cards: What their cards say of versions, device and the contents of files.
        notes: What makes the figures hard to compare.
    """

    recipe: list[Difference]
    outcomes: tuple[Outcome, Outcome]
    cards: list[CardLine]
    notes: list[str]


def compare(first: RunPaths, second: RunPaths) -> Comparison:
    """Compare two runs, finished or not.

    Raises:
        UsageError: The recipe or state of one cannot be read.
    """
    recipes = read_recipe(first), read_recipe(second)
    outcomes = outcome_of(first), outcome_of(second)
    return Comparison(
        recipe=list(_differences(*recipes)),
        outcomes=outcomes,
        cards=compare_cards(first, second),
        notes=list(_notes(recipes, outcomes)),
    )


def outcome_of(paths: RunPaths) -> Outcome:
    """What came of a run so far. A step that was made again after a crash counts once."""
    summary = summarize(paths)
    steps: dict[int, StepDone] = {}
    evaluation: EvaluationDone | None = None
    for event in read_events(paths.events):
        if isinstance(event, StepDone):
            steps[event.step] = event
        elif isinstance(event, EvaluationDone):
            evaluation = event
    last = steps[max(steps)] if steps else None
    return Outcome(
        run=summary.state.run,
        standing=summary.standing,
        step=last.step if last else summary.state.step,
        total_steps=summary.state.total_steps,
        loss=last.loss if last else None,
        held_out_loss=evaluation.loss if evaluation else None,
        held_out_step=evaluation.step if evaluation else None,
        held_out_tokens=evaluation.tokens if evaluation else None,
        tokens_per_s=statistics.median(step.tokens_per_s for step in steps.values()) if steps else None,
        memory_bytes=max(step.memory_bytes for step in steps.values()) if steps else None,
        training_s=sum(step.step_s for step in steps.values()) if steps else None,
    )


def _differences(first: Recipe, second: Recipe) -> Iterator[Difference]:
    ours, theirs = _flat(first), _flat(second)
    for key, value in ours.items():
        if value != theirs[key]:
            yield Difference(key=key, values=(value, theirs[key]))


def _flat(recipe: Recipe) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in recipe.model_dump(mode="json").items():
        if isinstance(value, dict):
            found.update({f"{name}.{key}": entry for key, entry in value.items()})
        else:
            found[name] = value
    return found


def _notes(recipes: tuple[Recipe, Recipe], outcomes: tuple[Outcome, Outcome]) -> Iterator[str]:
    measured = [outcome for outcome in outcomes if outcome.held_out_loss is not None]
    if len(measured) == 2 and measured[0].held_out_tokens != measured[1].held_out_tokens:
        yield "The held-out losses were measured on different rows; they do not say which run is better."
    elif recipes[0].model.path != recipes[1].model.path:
        yield "The models differ, and so may their tokens: losses per token are not quite the same measure."
    if len({outcome.step for outcome in outcomes}) == 2:
        yield "The runs made different numbers of steps."
