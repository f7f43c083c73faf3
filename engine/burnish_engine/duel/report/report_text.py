"""Sentences of a duel's report."""

from __future__ import annotations

import time

from burnish_engine.duel.measures.outcome import WARM_UP_STEPS
from burnish_engine.duel.state import DuelState
from burnish_engine.duel.verdict.rates import SECOND_LOOKS

LEGEND = "Circles are single pairs of runs, the square is their mean, the bar its confidence interval."
CURVES = (
    "Thin lines are single runs, thick ones the mean of a side; nats per learned token, with preferences per pair or "
    "reply. The fall at the beginning is cut off. Time is that of optimizer steps, without loading, evaluation and "
    "saving."
)
CONDITIONS = "Read from the cards and events of the runs: of each seed over all sides, or of all runs."
AGAIN = (
    "The first line repeats the duel. The others are for the duel's folder: the second writes this page again, the "
    "rest repeat the last run of each side."
)


def about(state: DuelState) -> str:
    """State the date, the number of runs and the device."""
    when = time.strftime("%Y-%m-%d", time.gmtime(state.created))
    device = next((one.conditions.device for one in state.outcomes if one.conditions.device), "")
    return ", ".join(part for part in (when, f"{len(state.outcomes)} runs", device) if part) + "."


def notes(state: DuelState) -> list[str]:
    """List the remarks that a reader needs before everything else."""
    found = []
    if state.status != "finished":
        found.append("This duel is not finished: there are no verdicts yet.")
    unfair = [f"{one.key}: {one.why}" for one in state.differences if one.kind == "unfair"]
    if unfair:
        found.append(f"The conditions are not the same, and were compared anyway, as asked ({'; '.join(unfair)}).")
    broken = [one.what for one in state.checks if one.verdict == "differs"]
    if broken:
        found.append(f"The runs show that conditions were not the same ({'; '.join(broken)}).")
    return found


def method(state: DuelState) -> str:
    """Describe the method of the comparison."""
    options = state.options
    grid = "Each side ran at its recipe's own learning rate; none was searched for. "
    if len(options.factors) > 1:
        factors = ", ".join(f"{factor:.3g}" for factor in options.factors)
        grid = (
            f"Each side tried {len(options.factors)} learning rates on seed {state.seed} ({factors} times its own), "
            f"and up to {options.extensions} more where the best was at an edge. "
        )
    energy = state.energy or "not measured on this device"
    wrong = f"{100 * (1 - options.level):.3g}"
    return (
        f"{grid}Then each ran {options.seeds} seeds at its best rate; sides took turns, and who began changed from "
        "seed to seed. Runs of the same seed are pairs: they saw the same rows in the same order. A side is called "
        "worse only if it is worse at its best rate and at those that the grid could not tell from it (at most "
        f"{SECOND_LOOKS}, with the same seeds). The intervals are Student's t of the paired differences (of "
        f"logarithms of ratios for speed, memory and energy). Of sides that are equal in truth, about {wrong} of 100 "
        f"duels would give a measure a winner, or fewer. Speed leaves out the first {WARM_UP_STEPS} steps of a "
        "process. Speed, memory and energy are of the runs that took turns. Energy is of the whole GPU while steps "
        f"are made: {energy}."
    )
