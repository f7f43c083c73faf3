"""Effects found by the factorial experiments: main effects and two-way interactions with 95 % intervals.

    python tests/bench factorial_effects RESULTS.jsonl... [--plot FILE.svg]

Prints Markdown tables of the rows that `factorial` wrote, and draws the effects on the held-out loss.

An effect is the mean difference between runs that differ in one factor alone, its second level less its first; an
interaction is the mean difference between such differences at the two levels of another factor. Seeds are the pairs
that intervals rest on (Student's t), since runs of one seed have much in common; where a cell has one run, as for speed
and energy, the pairs are those of the other factors' levels, and logarithms are compared. SkipUpdate has one cell: it
is compared with the same cell of AdamW.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any

from burnish_engine.duel.verdict.statistics import paired_interval
from burnish_engine.html_page.plots import IntervalRow, interval_plot
from burnish_engine.html_page.style import palette

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
Place = tuple[tuple[str, ...], int]
"""Levels of a run's factors, and its seed."""
Ends = tuple[float, float, float]
"""A mean with the ends of its interval."""


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
    """Return the effects of factors; of runs over seeds also Magma's with each schedule, and interactions."""
    factors = FACTORS[design]
    found = {(tuple(row[name] for name in factors), row["seed"]): value for row, value in values(rows, design, measure)}
    at = [*factors].index("schedule")
    parts: list[tuple[str, dict[Place, float], tuple[str, ...]]] = [(NAMES[name], found, (name,)) for name in factors]
    if measure.phase == "seeds":
        for level in _levels(design, "schedule"):
            own = {place: value for place, value in found.items() if place[0][at] == level}
            parts.append((f"Magma with {level}", own, ("masking",)))
        parts += [(" x ".join(NAMES[name] for name in pair), found, pair) for pair in combinations(factors, 2)]
    judged = ((title, _effect(known, [*factors], names, design)) for title, known, names in parts)
    return [Effect(title, *ends) for title, ends in judged if ends is not None]


def _effect(values: Mapping[Place, float], factors: Sequence[str], names: Sequence[str], design: str) -> Ends | None:
    """Return an effect, or the interaction of two factors, with its ends; None where there are fewer than two pairs."""
    both = [_levels(design, name) for name in names]
    by_seed: dict[int, list[float]] = {}
    for cell, seed in values:
        if any(cell[factors.index(name)] != levels[0] for name, levels in zip(names, both, strict=True)):
            continue
        total = 0.0
        for signs in product((0, 1), repeat=len(names)):
            other = list(cell)
            for name, levels, sign in zip(names, both, signs, strict=True):
                other[factors.index(name)] = levels[sign]
            total += (-1) ** (len(names) - sum(signs)) * values.get((tuple(other), seed), math.nan)
        if math.isfinite(total):
            by_seed.setdefault(seed, []).append(total)
    differences = [statistics.fmean(group) for group in by_seed.values()]
    if len(by_seed) == 1:
        differences = next(iter(by_seed.values()))
    return _ends(differences) if len(differences) > 1 else None


def _levels(design: str, name: str) -> tuple[str, str]:
    first = {"masking": "off", "products": "16", "precision": "bf16", "schedule": "cosine", "clipping": "1.0"}
    return first[name], FACTORS[design][name]


def _ends(differences: Sequence[float]) -> Ends:
    found = paired_interval(differences)
    return found.mean, found.low, found.high


def skip_update(rows: Sequence[Row], design: str, measure: Measure) -> Effect | None:
    """Compare SkipUpdate with AdamW alone at the same levels, by seed; of one run each there is no interval."""
    kinds: dict[str, dict[int, float]] = {"skip_update": {}, "off": {}}
    for row, value in values(rows, design, measure):
        usual = all(row[name] == _levels(design, name)[0] for name in FACTORS[design] if name != "masking")
        if usual and row["masking"] in kinds:
            kinds[row["masking"]][row["seed"]] = value
    mine, other = kinds["skip_update"], kinds["off"]
    differences = [mine[seed] - other[seed] for seed in mine if seed in other]
    if not differences:
        return None
    return Effect("SkipUpdate", *(_ends(differences) if len(differences) > 1 else differences * 3))


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
    look = f"<style>{palette()} text {{ font-family: system-ui, sans-serif; }}</style>"
    width, height = plot.partition('viewBox="0 0 ')[2].partition('"')[0].split()
    page = f'<rect width="{width}" height="{height}" fill="var(--surface)"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" height="{height}" '
    plot = plot.replace("<svg ", head, 1).replace('width="100%"', f'width="{width}"', 1)
    return plot.replace("</title>", f"</title>{look}{page}", 1)


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
