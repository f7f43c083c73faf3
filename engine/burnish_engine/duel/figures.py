"""The figures of a duel's sides, for the terminal and the report alike."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from burnish_engine.duel.conclude import joules_per_1000, settled_of
from burnish_engine.duel.outcome import RunOutcome
from burnish_engine.duel.rates import shown_rate
from burnish_engine.duel.state import DuelState

NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Row:
    """One figure of all sides.

    Attributes:
        title: What it is, with its unit.
        cells: Of the sides: mean over the runs, and least to most.
    """

    title: str
    cells: list[str]


def speaking_rates(state: DuelState) -> list[float | None]:
    """The learning rate that speaks for each side; None while that is not known."""
    settled = settled_of(len(state.sides), state.options, state.seed, state.outcomes)
    return [shown_rate(of_side) if of_side else None for of_side in settled]


def compared_runs(state: DuelState, side: int) -> list[RunOutcome]:
    """A side's runs that its loss is judged by, in the order of the seeds."""
    rate = speaking_rates(state)[side]
    runs = [
        one for one in state.outcomes
        if one.spec.side == side and one.spec.phase != "grid" and (rate is None or one.spec.rate == rate)
    ]  # fmt: skip
    return sorted(runs, key=lambda one: one.spec.seed)


def runs_in_turns(state: DuelState, side: int) -> list[RunOutcome]:
    """A side's runs that took turns with the others', which speed, memory and energy are judged by."""
    runs = [one for one in state.outcomes if one.spec.side == side and one.spec.phase == "seeds"]
    return sorted(runs, key=lambda one: one.spec.seed)


def figures(state: DuelState) -> list[Row]:
    """Figures of every side."""
    sides = range(len(state.sides))
    compared = [compared_runs(state, side) for side in sides]
    in_turns = [runs_in_turns(state, side) for side in sides]
    rates = speaking_rates(state)

    def row(
        title: str, runs: Sequence[list[RunOutcome]], value: Callable[[RunOutcome], float | None], form: str
    ) -> Row:
        return Row(title, [_cell([value(one) for one in of_side], form) for of_side in runs])

    events = {
        "loss_spikes": "loss spikes",
        "gradient_spikes": "gradient spikes",
        "skipped_steps": "skipped steps",
        "non_finite": "losses that are no numbers",
    }
    return [
        Row("learning rate", ["-" if rate is None else f"{rate:.4g}" for rate in rates]),
        row("held-out loss, nats per token", compared, lambda one: one.held_out_loss, ".4f"),
        row("held-out perplexity", compared, _perplexity, ",.3f"),
        row("speed, tokens/s", in_turns, lambda one: one.tokens_per_s, ",.0f"),
        row("peak memory, GiB", in_turns, lambda one: one.memory_bytes and one.memory_bytes / 2**30, ".2f"),
        row("energy, J per 1,000 tokens", in_turns, joules_per_1000, ",.2f"),
        row("training time, s", in_turns, lambda one: one.training_s, ",.1f"),
        Row("diverged runs", [f"{sum(one.ended == 'diverged' for one in runs)} of {len(runs)}" for runs in compared]),
        *(Row(title, [_total(runs, name) for runs in compared]) for name, title in events.items()),
    ]  # fmt: skip


def _total(runs: Sequence[RunOutcome], name: str) -> str:
    counts = [int(getattr(one.instability, name)) for one in runs]
    return f"{sum(counts)} in {len(counts)} runs"


def _perplexity(outcome: RunOutcome) -> float | None:
    loss = outcome.held_out_loss
    return None if loss is None else math.exp(min(loss, 700.0))


def _cell(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return NOT_MEASURED
    some = f", {len(known)} of {len(values)} runs" if len(known) < len(values) else ""
    spread = f" ({min(known):{form}} to {max(known):{form}}{some})"
    return f"{statistics.fmean(known):{form}}{spread}"
