"""Renders a run's report: its curve, what it said before and after, and its card, which has what repeats the run."""

from __future__ import annotations

import math
from collections.abc import Sequence

from burnish_engine.cli.training.card import card_lines
from burnish_engine.contract.run.card import RunCard
from burnish_engine.contract.run.fold import RunState
from burnish_engine.contract.units import memory_size, percent
from burnish_engine.html_page.page import (
    Figure,
    card,
    commands,
    figures,
    heading,
    page,
    paragraph,
    replies,
    section,
)
from burnish_engine.html_page.plots import loss_plot

_MOST_POINTS = 400
_MOST_REPLIES = 3


def render(title: str, run: RunState, run_card: RunCard | None, command: str) -> str:
    """Render the report of a run.

    Args:
        title: name of the run.
        run: what its events add up to.
        run_card: card of the run; None: it has none.
        command: name or folder of the run, as it is typed.
    """
    pairs = _replies(run)
    return page(
        f"{title}: a run",
        "Run report",
        [
            heading(title, run.guard.sentence if run.guard else "", _about(run, run_card)),
            figures(_figures(run)),
            section("Loss", card("", _plot(run), "wide"), paragraph(_LINES, "muted small")),
            section("What it forgot", *(paragraph(line) for line in _forgotten(run))),
            section("Before and after", *pairs[:1]),
            section("More replies", *pairs[1:], printed=False),
            section("Use it", commands([f"burnish chat {command}", f"burnish export {command}"])),
            section("How it was made", *(paragraph(f"{line}.") for line in (card_lines(run_card) if run_card else ()))),
        ],
    )


_LINES = "The solid line is each step; squares are the held-out rows, which it never learns from."


def _about(run: RunState, run_card: RunCard | None) -> str:
    model = run_card.base.name if run_card else ""
    device = run.started.device if run.started else ""
    steps = f"{run.step:,} of {run.total_steps:,} steps" if run.total_steps else f"{run.step:,} steps"
    return ", ".join(part for part in (model, steps, device) if part) + "."


def _figures(run: RunState) -> list[Figure]:
    found = []
    if len(run.evaluations) and run.result is not None:
        before, after = run.evaluations.loss.values()[0], run.result[1]
        if before > 0 and len(run.evaluations) > 1:
            what = f"lower held-out loss ({before:.3f} to {after:.3f} nats)"
            if after > before:
                what = f"higher held-out loss ({before:.3f} to {after:.3f} nats)"
            found.append(Figure(percent(abs(1 - after / before)), what, live=True))
    seconds = sum(one for one in run.steps.step_s.values() if math.isfinite(one))
    if seconds > 0:
        found.append(Figure(f"{seconds / 60:.1f} min", "in optimizer steps"))
        found.append(Figure(f"{sum(run.steps.tokens.values()) / seconds:,.0f}", "tokens a second"))
    if run.highest_bytes:
        found.append(Figure(memory_size(run.highest_bytes), "peak of memory"))
    return found


def _forgotten(run: RunState) -> list[str]:
    """Say how the loss on general text changed; where it rose much also what helps."""
    found = run.forgetting
    if found is None:
        return []
    return [found.warning if found.is_marked else f"L{found.text[1:]}, over {found.tokens:,} tokens."]


def _plot(run: RunState) -> str:
    losses = [
        point for point in zip(run.steps.step.values(), run.steps.loss.values(), strict=True) if math.isfinite(point[1])
    ]
    held_out = list(zip(run.evaluations.step.values(), run.evaluations.loss.values(), strict=True))
    return loss_plot(_thinned(losses), held_out=held_out)


def _thinned(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Keep the least and the greatest of each stretch of a long line, so that spikes stay."""
    each = max(2 * len(points) // _MOST_POINTS, 1)
    if each == 1:
        return list(points)
    kept = set[tuple[int, float]]()
    for start in range(0, len(points), each):
        stretch = points[start : start + each]
        kept |= {min(stretch, key=lambda one: one[1]), max(stretch, key=lambda one: one[1])}
    return sorted(kept)


def _replies(run: RunState) -> list[str]:
    """Render the first and the last reply to each fixed prompt."""
    by_prompt: dict[str, list[str]] = {}
    for sample in run.samples.items():
        by_prompt.setdefault(sample.prompt, []).append(sample.reply)
    pairs = [(prompt, given) for prompt, given in by_prompt.items() if len(given) > 1]
    return [replies(prompt, [("base", given[0]), ("tuned", given[-1])]) for prompt, given in pairs[:_MOST_REPLIES]]
