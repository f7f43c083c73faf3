"""Compute the figures of a duel's sides for the terminal and the report."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from burnish_engine.duel.measures.outcome import RunOutcome
from burnish_engine.duel.state import DuelState
from burnish_engine.duel.verdict.conclude import complete_rates_of, forgetting_of, joules_per_1000
from burnish_engine.duel.verdict.rates import best_rate

NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class FigureRow:
    """One figure of all sides.

    Attributes:
        title: name of the figure, with its unit.
        cells: text of each side: mean over the runs, and range.
    """

    title: str
    cells: list[str]


def best_rates(state: DuelState) -> list[float | None]:
    """Best learning rate of each side; None while unknown."""
    rate_scores = complete_rates_of(len(state.sides), state.options, state.seed, state.outcomes)
    return [best_rate(of_side) if of_side else None for of_side in rate_scores]


def compared_runs(state: DuelState, side: int) -> list[RunOutcome]:
    """List a side's runs that its loss is judged by, in the order of the seeds."""
    rate = best_rates(state)[side]
    runs = [
        one for one in state.outcomes
        if one.spec.side == side and one.spec.phase != "grid" and (rate is None or one.spec.rate == rate)
    ]  # fmt: skip
    return sorted(runs, key=lambda one: one.spec.seed)


def interleaved_runs(state: DuelState, side: int) -> list[RunOutcome]:
    """List a side's runs that took turns with the others', by which speed, memory and energy are judged."""
    runs = [one for one in state.outcomes if one.spec.side == side and one.spec.phase == "seeds"]
    return sorted(runs, key=lambda one: one.spec.seed)


def figures(state: DuelState) -> list[FigureRow]:
    """Compute the figures of every side."""
    sides = range(len(state.sides))
    compared = [compared_runs(state, side) for side in sides]
    in_turns = [interleaved_runs(state, side) for side in sides]
    rates = best_rates(state)

    def row(
        title: str, runs: Sequence[list[RunOutcome]], value: Callable[[RunOutcome], float | None], form: str
    ) -> FigureRow:
        return FigureRow(title, [_cell([value(one) for one in of_side], form) for of_side in runs])

    loss = "held-out loss, nats per token" if state.judge == "held_out_loss" else "held-out loss of its own objective"
    pairs = [
        row("held-out pairs preferred, %", compared, preferred_percent, ".1f"),
        row("held-out loss of chosen replies, nats per token", compared, lambda one: one.chosen_loss, ".4f"),
    ]
    events = {
        "loss_spikes": "loss spikes",
        "gradient_spikes": "gradient spikes",
        "skipped_steps": "skipped steps",
        "non_finite": "losses that are no numbers",
    }
    return [
        FigureRow("learning rate", ["-" if rate is None else f"{rate:.4g}" for rate in rates]),
        row(loss, compared, lambda one: one.held_out_loss, ".4f"),
        *([row("held-out perplexity", compared, _perplexity, ",.3f")] if state.judge == "held_out_loss" else pairs),
        row("rise of the loss on general text, nats", in_turns, forgetting_of, "+.3f"),
        row("score of the task, %", in_turns, task_percent, ".1f"),
        row("speed, tokens/s", in_turns, lambda one: one.tokens_per_s, ",.0f"),
        row("peak memory, GiB", in_turns, lambda one: one.memory_bytes and one.memory_bytes / 2**30, ".2f"),
        row("energy, J per 1,000 tokens", in_turns, joules_per_1000, ",.2f"),
        row("training time, s", in_turns, lambda one: one.training_s, ",.1f"),
        FigureRow("diverged runs", [_diverged_of(runs) for runs in compared]),
        *(FigureRow(title, [_total(runs, name) for runs in compared]) for name, title in events.items()),
    ]  # fmt: skip


def _total(runs: Sequence[RunOutcome], name: str) -> str:
    counts = [int(getattr(one.instability, name)) for one in runs]
    return f"{sum(counts)} in {len(counts)} runs"


def preferred_percent(outcome: RunOutcome) -> float | None:
    """Return the share of held-out pairs whose chosen reply is the likelier one, percent; None: not measured."""
    return None if outcome.pair_accuracy is None else 100 * outcome.pair_accuracy


def task_percent(outcome: RunOutcome) -> float | None:
    """Return the share of scored held-out rows that are answered rightly, percent; None: not measured."""
    return None if outcome.task_share is None else 100 * outcome.task_share


def _perplexity(outcome: RunOutcome) -> float | None:
    loss = outcome.held_out_loss
    return None if loss is None else math.exp(min(loss, 700.0))


def _diverged_of(runs: Sequence[RunOutcome]) -> str:
    return f"{sum(one.ended == 'diverged' for one in runs)} of {len(runs)}"


def _cell(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return NOT_MEASURED
    some = f", {len(known)} of {len(values)} runs" if len(known) < len(values) else ""
    spread = f" ({min(known):{form}} to {max(known):{form}}{some})"
    return f"{statistics.fmean(known):{form}}{spread}"
