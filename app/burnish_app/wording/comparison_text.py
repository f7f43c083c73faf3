"""The table of a comparison as text: outcomes first, then what recipes, models, data, machines and versions differ in.

Pure: from the engine's comparison to rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from burnish_app.look.language import tr
from burnish_app.wording.numbers import count_text, duration_text, percent
from burnish_app.wording.recipe_text import setting_term, setting_text
from burnish_app.wording.run_text import RUN_STATUS_TEXT
from burnish_engine.contract.run.comparison import ComparedRun, DifferenceRow, RunsComparison
from burnish_engine.contract.units import memory_size

_GROUPS = {
    "recipe": tr("Recipe"),
    "model": tr("Base model"),
    "data": tr("Data"),
    "machine": tr("Machine"),
    "versions": tr("Versions"),
}
_FACTS = {
    "base model": tr("Weights"),
    "training files": tr("Training files"),
    "held-out files": tr("Held-out files"),
    "tokenized data": tr("Tokens (hash)"),
    "training rows": tr("Training rows"),
    "held-out rows": tr("Held-out rows"),
    "training tokens": tr("Training tokens"),
    "memory": tr("Device memory"),
    "memory_plan": tr("Memory plan"),
    "compute_capability": tr("Compute capability"),
    "threads": tr("Processor threads"),
    "layout": tr("Passes"),
    "weights": tr("Frozen weights in"),
    "products": tr("Matrix products in"),
    "os": tr("System"),
    "driver": tr("NVIDIA driver"),
}


@dataclass(frozen=True)
class ComparedRow:
    """A row of the table of a comparison.

    Attributes:
        label: name of the row; of a heading, that of the group below it.
        cells: text of each run; empty: a heading.
        best: places of the cells with the best value.
        hint: tooltip.
    """

    label: str
    cells: tuple[str, ...] = ()
    best: frozenset[int] = frozenset()
    hint: str = ""

    @property
    def is_heading(self) -> bool:
        """Whether the row is the heading of a group."""
        return not self.cells


def comparison_rows(found: RunsComparison) -> list[ComparedRow]:
    """Return the rows of a comparison's table.

    Args:
        found: comparison of the engine.
    """
    rows = [ComparedRow(tr("Outcome")), *_outcome_rows(found.outcomes)]
    for group, title in _GROUPS.items():
        different = [row for row in found.rows if row.group == group]
        if different:
            rows.append(ComparedRow(title))
            rows += [_difference_row(row) for row in different]
    if len(found.folders) > 1 and not found.rows:
        rows.append(ComparedRow(tr("Recipe, data and versions are the same")))
    return rows


def best_sentence(titles: Sequence[str], found: RunsComparison) -> str:
    """Say which run has the lowest held-out loss, and how far that can be trusted; empty while two are not measured.

    Args:
        titles: title of each run.
        found: comparison of the engine.
    """
    best = best_place(found)
    if best is None:
        return ""
    losses = _finite([outcome.held_out_loss for outcome in found.outcomes])
    others = sorted(losses[place] for place in losses if place != best)
    return tr(
        "{title} has the lowest held-out loss, {gap} below the next. One run each: a duel tells chance apart."
    ).format(title=titles[best], gap=f"{others[0] - losses[best]:.3f}")


def best_place(found: RunsComparison) -> int | None:
    """Return the place of the run with the lowest held-out loss; None unless several were measured on the same rows.

    Args:
        found: comparison of the engine.
    """
    losses = _finite([outcome.held_out_loss for outcome in found.outcomes])
    return min(losses, key=lambda place: losses[place]) if len(losses) > 1 and _same_rows(found.outcomes) else None


def difference_text(key: str, value: Any) -> str:
    """Format a value of a recipe key or of a fact; a dash if it is not known."""
    if value is None:
        return "–"
    if isinstance(value, list):
        return ", ".join(difference_text("", entry) for entry in value) or tr("none")
    if isinstance(value, bool):
        return tr("on") if value else tr("off")
    if isinstance(value, int) and "." not in key:
        return f"{value:,}"
    return setting_text(key, value) or tr("none")


def key_text(key: str) -> str:
    """Name a recipe key or a fact for people."""
    return _FACTS.get(key) or setting_term(key)


def _difference_row(row: DifferenceRow) -> ComparedRow:
    hint = tr("In the recipe: {key}").format(key=row.key) if row.group == "recipe" else ""
    return ComparedRow(key_text(row.key), tuple(difference_text(row.key, value) for value in row.values), hint=hint)


def _outcome_rows(outcomes: Sequence[ComparedRun]) -> Iterator[ComparedRow]:
    comparable = _same_rows(outcomes)
    yield ComparedRow(tr("Status"), tuple(RUN_STATUS_TEXT[outcome.standing] for outcome in outcomes))
    yield _numbers(
        tr("Held-out loss"),
        [outcome.held_out_loss for outcome in outcomes],
        lambda loss: f"{loss:.4f}",
        best=min if comparable else None,
        hint="" if comparable else tr("Measured in different ways: they do not say which run is better."),
    )
    if any(outcome.accuracy is not None for outcome in outcomes):
        yield _numbers(tr("Preferred, held out"), [outcome.accuracy for outcome in outcomes], percent, best=max)
        yield _numbers(tr("Margin, held out"), [outcome.margin for outcome in outcomes], lambda margin: f"{margin:.3g}")
    if any(outcome.forgetting for outcome in outcomes):
        yield ComparedRow(
            tr("Loss on general text"),
            tuple(outcome.forgetting.figures if outcome.forgetting else "–" for outcome in outcomes),
            hint=tr("Before training and after: what the model forgets."),
        )
    if any(outcome.task for outcome in outcomes):
        scored = {(one.task.after.metric, one.task.after.rows) for one in outcomes if one.task}
        yield _numbers(
            tr("Score of the task"),
            [outcome.task.after.share if outcome.task else None for outcome in outcomes],
            percent,
            best=max if len(scored) == 1 else None,
            hint="\n".join(f"{one.run}: {one.task.figures}" for one in outcomes if one.task),
        )
    if any(outcome.votes for outcome in outcomes):
        yield ComparedRow(
            tr("Blind votes"),
            tuple(outcome.votes or "–" for outcome in outcomes),
            hint=tr("Replies that were found best on the page Try it, without knowing which model wrote them."),
        )
    yield _numbers(tr("Training loss"), [outcome.loss for outcome in outcomes], lambda loss: f"{loss:.4f}")
    yield ComparedRow(tr("Steps"), tuple(f"{one.step:,} / {one.total_steps:,}" for one in outcomes))
    yield _numbers(tr("Tokens/s"), [one.tokens_per_s for one in outcomes], count_text, best=max)
    yield _numbers(
        tr("Memory, peak"), [one.memory_bytes for one in outcomes], lambda size: memory_size(int(size)), best=min
    )
    yield _numbers(tr("Training time"), [one.training_s for one in outcomes], duration_text)


def _same_rows(outcomes: Sequence[ComparedRun]) -> bool:
    measured = [outcome for outcome in outcomes if outcome.held_out_loss is not None]
    return len({(outcome.objective, outcome.held_out_tokens) for outcome in measured}) < 2


def _numbers(
    label: str,
    values: Sequence[float | None],
    text: Callable[[float], str],
    *,
    best: Callable[..., float] | None = None,
    hint: str = "",
) -> ComparedRow:
    """Make a row of numbers; the best of several that differ is marked."""
    known = _finite(values)
    top: frozenset[int] = frozenset()
    if best is not None and len(set(known.values())) > 1:
        top = frozenset(place for place, value in known.items() if value == best(known.values()))
    cells = tuple("–" if value is None else text(value) if math.isfinite(value) else str(value) for value in values)
    return ComparedRow(label, cells, top, hint)


def _finite(values: Sequence[float | None]) -> dict[int, float]:
    return {place: value for place, value in enumerate(values) if value is not None and math.isfinite(value)}
