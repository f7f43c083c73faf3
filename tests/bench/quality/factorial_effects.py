"""Effects found by the factorial experiments: main effects and two-way interactions with 95 % intervals.

    python tests/bench factorial_effects RESULTS.jsonl... [--plot FILE.svg]

Prints Markdown tables of the rows that `factorial` wrote, and draws the effects on the held-out loss.

An effect is the mean at a factor's second level less that at its first; an interaction is an effect at the second
level of another factor less that at its first. Each level is -1/2 or +1/2, and least squares fits these terms with a
constant for each seed, so that runs of a seed are compared with each other; intervals are Student's t on the residuals.
Speed and energy have one run a cell, and their logarithms are fitted. SkipUpdate has one cell: it is compared with the
same cell of AdamW, by pairs of seeds.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from burnish_engine.duel.report.plots import IntervalRow, interval_plot
from burnish_engine.duel.report.report_style import STYLE
from burnish_engine.duel.verdict.statistics import paired_interval, t_quantile

from bench.shared.rows import read_rows

Row = dict[str, Any]
FACTORS = {
    "lora": {"masking": "magma", "products": "int8", "schedule": "wsd", "clipping": "off"},
    "scratch": {"masking": "magma", "precision": "fp16", "schedule": "wsd"},
}
"""Second level of each factor of each design."""
NAMES = {
    "masking": "Magma", "products": "INT8 products", "precision": "fp16", "schedule": "warmup-stable-decay",
    "clipping": "no clipping",
}  # fmt: skip
TITLES = {"lora": "LoRA, embedded model", "scratch": "55M from scratch"}
_LEAST_FREEDOM = 4
"""Fewest residual degrees of freedom; where interactions would leave fewer, they are not fitted."""


@dataclass(frozen=True)
class Measure:
    """A measure of runs.

    Attributes:
        title: head of its column.
        phase: runs that it is read from.
        value: function that reads it; None where it was not measured.
        ratio: whether effects are ratios, in percent.
        digits: decimal places.
    """

    title: str
    phase: str
    value: Callable[[Row], float | None]
    ratio: bool = False
    digits: int = 4


@dataclass(frozen=True)
class Effect:
    """An effect with the ends of its 95 % interval."""

    name: str
    mean: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def _log(value: float | None) -> float | None:
    return math.log(value) if value else None


def _energy(row: Row) -> float | None:
    return 1000 * row["joules"] / row["tokens"] if row.get("joules") and row["tokens"] else None


LOSS = Measure("held-out loss, nats", "seeds", lambda row: row["held_out_loss"])
MEASURES = (
    LOSS,
    Measure("perplexity, %", "seeds", lambda row: row["held_out_loss"], ratio=True, digits=2),
    Measure("spikes a run", "seeds", lambda row: row["loss_spikes"] + row["gradient_spikes"], digits=2),
    Measure("skipped steps a run", "seeds", lambda row: row["skipped_steps"] + row["non_finite"], digits=2),
    Measure("tokens/s, %", "alone", lambda row: _log(row.get("tokens_per_s")), ratio=True, digits=1),
    Measure("J per token, %", "alone", lambda row: _log(_energy(row)), ratio=True, digits=1),
)


def values(rows: Sequence[Row], design: str, measure: Measure) -> list[tuple[Row, float]]:
    """List the runs of a design that have a finite value of a measure, with it; diverged ones have no loss."""
    found = []
    for row in rows:
        if row["design"] == design and row["phase"] == measure.phase:
            value = measure.value(row) if row["ended"] == "finished" else None
            if value is not None and math.isfinite(value):
                found.append((row, value))
    return found


def effects(rows: Sequence[Row], design: str, measure: Measure) -> list[Effect]:
    """Fit the effects of a design's factors on a measure; none where the runs do not suffice."""
    factors = FACTORS[design]
    known = [(row, value) for row, value in values(rows, design, measure) if row["masking"] != "skip_update"]
    seeds = sorted({row["seed"] for row, _ in known})
    mains = {name: [0.5 if row[name] == level else -0.5 for row, _ in known] for name, level in factors.items()}
    columns = {NAMES[name]: column for name, column in mains.items()}
    pairs = {
        f"{NAMES[one]} x {NAMES[other]}": [a * b for a, b in zip(mains[one], mains[other], strict=True)]
        for one, other in combinations(factors, 2)
    }
    if len(known) - len(seeds) - len(columns) - len(pairs) >= _LEAST_FREEDOM:
        columns |= pairs
    blocks = [[float(row["seed"] == seed) for row, _ in known] for seed in seeds]
    fitted = least_squares([*columns.values(), *blocks], [value for _, value in known])
    return [Effect(name, *ends) for name, ends in zip(columns, fitted, strict=False)]


def least_squares(terms: Sequence[Sequence[float]], wanted: Sequence[float]) -> list[tuple[float, float, float]]:
    """Fit values by a sum of terms; return each coefficient with the ends of its 95 % interval.

    Args:
        terms: a term's factor for every value.
        wanted: values to fit.

    Returns:
        Coefficients in the order of the terms; none where they are not determined, or leave nothing to judge them by.
    """
    matrix, freedom = np.array(terms).T, len(wanted) - len(terms)
    if freedom < 1 or np.linalg.matrix_rank(matrix) < len(terms):
        return []
    inverse = np.linalg.inv(matrix.T @ matrix)
    fitted = inverse @ matrix.T @ np.array(wanted)
    spread = math.sqrt(float(np.sum((np.array(wanted) - matrix @ fitted) ** 2)) / freedom)
    halves = t_quantile(0.975, freedom) * spread * np.sqrt(np.diag(inverse))
    return [(float(one), float(one - half), float(one + half)) for one, half in zip(fitted, halves, strict=True)]


def skip_update(rows: Sequence[Row], design: str, measure: Measure) -> Effect | None:
    """Compare SkipUpdate with AdamW alone at the same levels, by seed; None where there are fewer than two pairs."""
    own = [row for row in rows if row["design"] == design and row["masking"] == "skip_update"]
    usual = {name: own[0][name] for name in FACTORS[design] if name != "masking"} if own else {}
    by_kind: dict[str, dict[int, float]] = {"skip_update": {}, "off": {}}
    for row, value in values(rows, design, measure):
        if row["masking"] in by_kind and all(row[name] == level for name, level in usual.items()):
            by_kind[row["masking"]][row["seed"]] = value
    mine, other = by_kind["skip_update"], by_kind["off"]
    differences = [mine[seed] - other[seed] for seed in sorted(mine) if seed in other]
    if len(differences) < 2:
        return Effect("SkipUpdate", *[differences[0]] * 3) if differences and measure.phase == "alone" else None
    found = paired_interval(differences)
    return Effect("SkipUpdate", found.mean, found.low, found.high)


def shown(effect: Effect | None, measure: Measure) -> str:
    """Format an effect for a table: bold where its interval excludes zero; one reading has no interval."""
    if effect is None:
        return ""
    numbers = [effect.mean, effect.low, effect.high]
    if measure.ratio:
        numbers = [100 * math.expm1(number) for number in numbers]
    mean, low, high = (f"{number:+.{measure.digits}f}" for number in numbers)
    if effect.low == effect.high:
        return "0" if effect.mean == 0 else mean
    text = f"{mean} ({low} to {high})"
    return f"**{text}**" if effect.is_clear else text


def table(rows: Sequence[Row], design: str) -> Iterator[str]:
    """Write the table of a design's effects, a line at a time."""
    fits = {measure: {one.name: one for one in effects(rows, design, measure)} for measure in MEASURES}
    names = list(dict.fromkeys(name for fit in fits.values() for name in fit))
    yield f"| {TITLES[design]} | {' | '.join(measure.title for measure in MEASURES)} |"
    yield f"|---|{'---|' * len(MEASURES)}"
    for name in names:
        yield f"| {name} | {' | '.join(shown(fits[measure].get(name), measure) for measure in MEASURES)} |"
    skipped = [skip_update(rows, design, measure) for measure in MEASURES]
    if any(skipped):
        cells = [shown(effect, measure) for effect, measure in zip(skipped, MEASURES, strict=True)]
        yield f"| SkipUpdate, one cell | {' | '.join(cells)} |"


def cells(rows: Sequence[Row], design: str) -> Iterator[str]:
    """Write the table of a design's cells: rate, mean held-out loss, events, speed and energy."""
    factors = [*FACTORS[design]]
    yield f"| {' | '.join(factors)} | rate | runs | held-out loss | perplexity | spikes | skipped | tok/s | J/1,000 |"
    yield f"|{'---|' * (len(factors) + 8)}"
    own = [row for row in rows if row["design"] == design]
    for cell in sorted({row["cell"] for row in own}):
        seeds = [row for row in own if row["cell"] == cell and row["phase"] == "seeds"]
        alone = [row for row in own if row["cell"] == cell and row["phase"] == "alone" and row["ended"] == "finished"]
        losses = [value for row, value in values(seeds, design, LOSS)]
        if not seeds:
            continue
        mean = sum(losses) / len(losses) if losses else math.nan
        spikes = sum(row["loss_spikes"] + row["gradient_spikes"] for row in seeds)
        skipped = sum(row["skipped_steps"] + row["non_finite"] for row in seeds)
        speed = f"{alone[0]['tokens_per_s'] / 1000:.1f}k" if alone else ""
        energy = _energy(alone[0]) if alone else None
        count = f"{len(losses)} of {len(seeds)}" if len(losses) < len(seeds) else f"{len(seeds)}"
        figures = [f"{seeds[0]['rate']:g}", count, f"{mean:.4f}", f"{math.exp(mean):.2f}", f"{spikes}", f"{skipped}"]
        levels = [str(seeds[0][factor]) for factor in factors]
        yield f"| {' | '.join([*levels, *figures, speed, f'{energy:.2f}' if energy else ''])} |"


def drawing(rows: Sequence[Row]) -> str:
    """Draw the effects on the held-out loss, both designs below each other."""
    spans = []
    for design in FACTORS:
        found = [*effects(rows, design, LOSS), *filter(None, [skip_update(rows, design, LOSS)])]
        for one in found:
            label = f"{TITLES[design].split(',')[0]}: {one.name}"
            spans.append(IntervalRow(label, one.low, one.high, one.mean, spots=(), decided=one.is_clear))
    plot = interval_plot(spans, "Effects on the held-out loss, nats, with 95 % intervals", lambda value: f"{value:g}")
    colors = STYLE[: STYLE.index(":root { color-scheme")]
    look = f"<style>{colors}text {{ font-family: system-ui, sans-serif; }}</style>"
    page = '<rect width="100%" height="100%" fill="var(--card)"/>'
    return plot.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace(
        "</title>", f"</title>{look}{page}", 1
    )


def main() -> None:
    """Print the tables, and draw the plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    rows = [row for file in options.results for row in read_rows(file)]
    for design in FACTORS:
        own = [row for row in rows if row["design"] == design]
        if own:
            diverged = [row for row in own if row["ended"] == "diverged"]
            print(f"{TITLES[design]}: {len(own)} runs, {len(diverged)} diverged\n")
            print("\n".join([*cells(own, design), "", *table(own, design), ""]))
    if options.plot:
        options.plot.write_text(drawing(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
