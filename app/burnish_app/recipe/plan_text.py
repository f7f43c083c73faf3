"""Says in words whether a plan fits, what its time is made of, and what a change does to it. Pure functions, no Qt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from burnish_app.look.language import say, tr
from burnish_app.wording.numbers import duration_text, plural, unbroken
from burnish_app.wording.plain_words import model_name
from burnish_engine.contract.facts.advice import ModelFacts, RunPlan
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.units import file_size, memory_size
from burnish_engine.contract.wording.sentences import fit_sentence, time_sentence
from burnish_engine.contract.wording.tables import LOADING

_LEAST_CHANGE = 0.005  # share of the former value from which a change is worth a word
_LEAST_BYTES = 10 * 2**20
_LEAST_S = 1.0


class Effect(NamedTuple):
    """One figure of a plan that a change moved.

    Attributes:
        text: difference with its sign and name, such as "-12 % speed".
        better: whether it became better; None: neither.
    """

    text: str
    better: bool | None


def run_subject(recipe: Recipe, model: ModelFacts | None) -> str:
    """Return what a run of a recipe trains, on what; empty without data.

    Args:
        recipe: recipe of the run.
        model: facts about its model; None: not known yet.
    """
    files, start = recipe.data.files, recipe.adapter.start
    if not files:
        return ""
    name = model.name if model is not None else model_name(recipe.model.path)
    further = tr("{name}, continued from {start}").format(name=name, start=Path(start).name) if start else name
    data = Path(files[0]).name if len(files) == 1 else plural(len(files), "file")
    return tr("{model} on {data}").format(model=further, data=data)


def time_text(plan: RunPlan) -> str:
    """Return what the predicted time is made of, a line each; empty where that is not known."""
    lines = [say(time_sentence(part, duration_text)) for part in plan.times]
    return "\n".join([*lines, tr(LOADING)]) if lines else ""


def plan_line(plan: RunPlan) -> str:
    """Return the verdict with memory and time in one line, for the foot of the page."""
    memory = tr("{memory_bytes} of {memory_free_bytes} free").format(
        memory_bytes=memory_size(plan.memory_bytes), memory_free_bytes=memory_size(plan.memory_free_bytes)
    )
    time = (
        tr(", about {seconds}").format(seconds=duration_text(plan.total_seconds))
        if plan.total_seconds is not None
        else ""
    )
    return f"{say(fit_sentence(plan))} {memory}{time}."


def effects(before: RunPlan, after: RunPlan) -> list[Effect]:
    """Return what a change did to memory, speed, time, steps and disk; small differences are left out.

    Args:
        before: plan before the change.
        after: plan after it.
    """
    found = [
        _bytes_effect(after.memory_bytes - before.memory_bytes, memory_size, tr("memory")),
        _bytes_effect(after.host_bytes - before.host_bytes, memory_size, tr("system memory")),
        _speed_effect(before.tokens_per_s, after.tokens_per_s),
        _time_effect(before.total_seconds, after.total_seconds),
    ]
    if before.steps is not None and after.steps is not None and before.steps != after.steps:
        steps = after.steps - before.steps
        found.append(Effect(tr("{sign}{count:,} steps").format(sign=_sign(steps), count=abs(steps)), None))
    found.append(_bytes_effect(after.disk_bytes - before.disk_bytes, file_size, tr("on disk")))
    return [effect for effect in found if effect is not None]


def effects_text(found: list[Effect]) -> str:
    """Join effects as "+0.40 GiB memory, -12 % speed"; none of them is broken over two lines."""
    return ", ".join(unbroken(effect.text) for effect in found) or tr("No difference in memory, speed, time or disk.")


def _sign(value: float) -> str:
    return "+" if value > 0 else "\N{MINUS SIGN}"


def _bytes_effect(difference: int, size_text: Callable[[int], str], name: str) -> Effect | None:
    if abs(difference) < _LEAST_BYTES:
        return None
    return Effect(f"{_sign(difference)}{size_text(abs(difference))} {name}", difference < 0)


def _speed_effect(before: float, after: float) -> Effect | None:
    if before <= 0 or after <= 0 or abs(after / before - 1) < _LEAST_CHANGE:
        return None
    change = after / before - 1
    if change >= 1:
        return Effect(tr("{times:.1f} times the speed").format(times=after / before), better=True)
    share = abs(change) * 100
    return Effect(
        tr("{sign}{share} % speed").format(sign=_sign(change), share=f"{share:.0f}" if share >= 1 else f"{share:.1f}"),
        change > 0,
    )


def _time_effect(before: float | None, after: float | None) -> Effect | None:
    if before is None or after is None:
        return None
    difference = after - before
    if abs(difference) < _LEAST_S or abs(difference) < _LEAST_CHANGE * before:
        return None
    return Effect(f"{_sign(difference)}{duration_text(abs(difference))}", difference < 0)
