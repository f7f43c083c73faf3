"""Render a duel's report: one self-contained HTML page for light and dark screens and for screen readers."""

from __future__ import annotations

import html
import time
from collections.abc import Iterable, Sequence
from typing import Any

from burnish_engine.duel.measures.instability import RULE
from burnish_engine.duel.measures.outcome import WARM_UP_STEPS, RunOutcome
from burnish_engine.duel.report.curves import (
    course_plots,
    grid_plot,
    held_out_plots,
    judge_intervals,
    share_intervals,
    training_plot,
)
from burnish_engine.duel.report.figures import figures, preferred_percent
from burnish_engine.duel.report.report_style import STYLE
from burnish_engine.duel.report.svg import legend_sample
from burnish_engine.duel.sides.differences import shown
from burnish_engine.duel.state import DuelState
from burnish_engine.duel.verdict.conclude import joules_per_1000
from burnish_engine.duel.verdict.rates import SECOND_LOOKS
from burnish_engine.duel.verdict.verdict import DuelVerdict, few_seeds_note, headline

_LEGEND = "Circles are single pairs of runs, the square is their mean, the bar its confidence interval."
_CURVES = (
    "Thin lines are single runs, thick ones the mean of a side; nats per learned token, with preferences per pair or "
    "reply. The fall at the beginning is cut off. Time is that of optimizer steps, without loading, evaluation and "
    "saving."
)
_CONDITIONS = "Read from the cards and events of the runs: of each seed over all sides, or of all runs."
_AGAIN = (
    "The first line repeats the duel. The others are for the duel's folder: the second writes this page again, the "
    "rest repeat the last run of each side."
)
_KINDS = {"compared": "compared", "unfair": "unfair", "decided": "not compared"}


def render(state: DuelState) -> str:
    """Render the report of a finished or unfinished duel."""
    title = state.title
    sections = (
        _notes, _differences, _verdicts, _figures, _curves, _rates, _conditions, _runs, _method, _again,
    )  # fmt: skip
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(title)}: a duel</title><style>{STYLE}</style></head><body><main>\n"
        f'<h1>{_text(title)}</h1><p class="headline">{_text(headline(state.verdicts))}</p>'
        f'<p class="dim">{_text(_about(state))}</p>\n{"".join(section(state) for section in sections)}'
        "</main></body></html>\n"
    )


def _notes(state: DuelState) -> str:
    return "".join(f'<p class="note">{_text(note)}</p>' for note in _remarks(state))


def _differences(state: DuelState) -> str:
    rows = []
    for one in state.differences:
        why = f"{_KINDS[one.kind]}: {one.why}" if one.why else _KINDS[one.kind]
        values = (f"<td><code>{_text(shown(value))}</code></td>" for value in one.values)
        rows.append([_head(one.key), *values, f'<td class="dim">{_text(why)}</td>'])
    table = _table(["recipe key", *(side.name for side in state.sides), ""], rows)
    return f"<h2>What the recipes do differently</h2>{table if rows else '<p>Nothing.</p>'}\n"


def _verdicts(state: DuelState) -> str:
    if not state.verdicts:
        return ""
    names = [side.name for side in state.sides]
    table = _table(["measure", "verdict"], [[_head(one.title), _verdict(one)] for one in state.verdicts])
    alone = len(names) == 2 and not state.tried
    against = f"{names[0]} against {names[1]}" if alone else "The first against the second"
    cards = _card(*judge_intervals(state))
    cards += _card(against, share_intervals(state))
    few = few_seeds_note(state.options.seeds, state.level)
    small = f'<p class="dim small">{_text(_LEGEND if cards else "")} {_text(few)}</p>'
    return f"<h2>Verdict</h2>{table}{cards}{small}\n"


def _verdict(one: DuelVerdict) -> str:
    """Render a verdict, with its grounds below."""
    result, dot, rest = one.text.partition(". ")
    mark = ' class="live"' if one.winner is not None else ""
    below = f'<br><span class="dim">{_text(rest)}</span>' if rest else ""
    return f"<td><span{mark}>{_text(result + dot.strip())}</span>{below}</td>"


def _figures(state: DuelState) -> str:
    rows = [
        [_head(row.title), *(f'<td class="num">{_text(cell)}</td>' for cell in row.cells)] for row in figures(state)
    ]
    titles = ["", *(side.name for side in state.sides)]
    table = _table(titles, rows, numbers=True, caption="Mean over the seeds, with the least and the most in brackets.")
    return f"<h2>Figures</h2>{table}\n"


def _curves(state: DuelState) -> str:
    plots = [(title, plot) for title, plot in held_out_plots(state) if plot]
    if not plots:
        return ""
    cards = "".join(_card(title, plot) for title, plot in plots)
    return (
        f'<h2>Curves</h2>{_legend(state)}<div class="plots">{cards}</div>{_card(*training_plot(state))}'
        f'<p class="dim small">{_text(_CURVES)}</p>{_courses(state)}\n'
    )


def _courses(state: DuelState) -> str:
    cards = "".join(_card(title, plot) for title, plot in course_plots(state))
    what = "Speed, memory, energy and instability events over steps, tokens and time"
    return f'<details><summary>{what}</summary><div class="plots">{cards}</div></details>' if cards else ""


def _rates(state: DuelState) -> str:
    runs = [one for one in state.outcomes if one.spec.phase == "grid"]
    if not runs:
        return ""
    caption = f"One run each, on seed {state.seed}, which is not among the seeds that are compared."
    if any(one.ended == "diverged" for one in runs):
        caption += " A cross is a run that diverged."
    plot = _card(*grid_plot(state))
    return f'<h2>Learning rates</h2>{_legend(state)}{plot}<p class="dim small">{_text(caption)}</p>\n'


def _conditions(state: DuelState) -> str:
    rows = []
    for one in state.checks:
        mark = ' class="bad"' if one.verdict == "differs" else ""
        rows.append(
            [_head(one.what), f"<td{mark}>{_text(one.verdict)}</td>", f'<td class="dim">{_text(one.detail)}</td>']
        )
    table = _table(["condition", "", ""], rows, caption=_CONDITIONS)
    return f"<h2>Were the conditions the same?</h2>{table}\n" if rows else ""


def _runs(state: DuelState) -> str:
    titles = ["run", "held-out loss", "tokens/s", "peak GiB", "J per 1,000 tokens", "seconds", "events", "how it ran"]
    if state.judge == "pair_error":
        titles.insert(1, "pairs preferred, %")
    rows = [[_head(one.spec.id), *_cells(one)] for one in state.outcomes]
    table = _table(titles, rows, numbers=True)
    return f'<h2>Every run</h2><details class="runs"><summary>{len(rows)} runs</summary>{table}</details>\n'


def _cells(one: RunOutcome) -> Iterable[str]:
    memory = None if one.memory_bytes is None else one.memory_bytes / 2**30
    preferred = [(preferred_percent(one), ".1f")] if one.judge == "pair_error" else []
    numbers = (
        *preferred, (one.held_out_loss, ".4f"), (one.tokens_per_s, ",.0f"), (memory, ".2f"),
        (joules_per_1000(one), ",.2f"), (one.training_s, ",.1f"), (one.instability.total, "d"),
    )  # fmt: skip
    for value, form in numbers:
        yield f'<td class="num">{"-" if value is None else format(value, form)}</td>'
    caption = f"diverged after step {one.steps}: {one.message}" if one.ended == "diverged" else f"{one.steps:,} steps"
    again = f"; continued after {one.resumes} interruption{'s' if one.resumes > 1 else ''}" if one.resumes else ""
    yield f'<td class="dim">{_text(caption + again)}; {_text(one.engine)}</td>'


def _method(state: DuelState) -> str:
    return f'<h2>How it was done</h2><p class="small">{_text(_how(state))}</p><p class="small">{_text(RULE)}</p>\n'


def _again(state: DuelState) -> str:
    versions = next((one.conditions.versions for one in state.outcomes if one.conditions.versions), {})
    known = ", ".join(f"{name} {number}" for name, number in versions.items())
    last = {one.spec.side: one.spec.id for one in state.outcomes}
    runs = [f"burnish train recipes/{name}.toml" for _, name in sorted(last.items())]
    lines = "\n".join([state.command, "burnish duel --resume .", *runs])
    caption = "".join(f'<p class="dim small">{_text(line)}</p>' for line in (_AGAIN, known))
    return f"<h2>To do it again</h2><pre>{_text(lines)}</pre>{caption}\n"


def _card(title: str, plot: str) -> str:
    """Render a plot with its title; empty without a plot."""
    return f'<div class="card"><h3>{_text(title)}</h3><div class="scroll">{plot}</div></div>' if plot else ""


def _legend(state: DuelState) -> str:
    entries = (f"<span>{legend_sample(place)}{_text(side.name)}</span>" for place, side in enumerate(state.sides))
    return f'<div class="legend">{"".join(entries)}</div>'


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = False, caption: str = "") -> str:
    kind = ' class="num"' if numbers else ""
    head = "".join(f'<th scope="col"{kind if place else ""}>{_text(title)}</th>' for place, title in enumerate(titles))
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    above = f"<caption>{_text(caption)}</caption>" if caption else ""
    return f'<div class="scroll"><table>{above}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _head(caption: str) -> str:
    return f'<th scope="row">{_text(caption)}</th>'


def _text(value: Any) -> str:
    return html.escape(str(value))


def _about(state: DuelState) -> str:
    """State the date, the number of runs and the device."""
    when = time.strftime("%Y-%m-%d", time.gmtime(state.created))
    device = next((one.conditions.device for one in state.outcomes if one.conditions.device), "")
    return ", ".join(part for part in (when, f"{len(state.outcomes)} runs", device) if part) + "."


def _remarks(state: DuelState) -> list[str]:
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


def _how(state: DuelState) -> str:
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
    effects, equal = "", f"Of sides that are equal in truth, about {wrong} of 100 duels would give a measure a winner"
    if state.tried:
        equal = f"Of effects that are none in truth, about {wrong} of 100 would be called one"
        effects = (
            "An effect is the mean of all sides with a factor's second value less that of those with its first, within "
            "each seed; an interaction is an effect at the second value of another factor less that at its first. "
        )
    return (
        f"{grid}Then each ran {options.seeds} seeds at its best rate; sides took turns, and who began changed from "
        "seed to seed. Runs of the same seed are pairs: they saw the same rows in the same order. A side is called "
        "worse only if it is worse at its best rate and at those that the grid could not tell from it (at most "
        f"{SECOND_LOOKS}, with the same seeds). {effects}The intervals are Student's t of the paired differences (of "
        f"logarithms of ratios for speed, memory and energy). {equal}, or fewer. Speed leaves out the first "
        f"{WARM_UP_STEPS} steps of a "
        "process. Speed, memory and energy are of the runs that took turns. Energy is of the whole GPU while steps "
        f"are made: {energy}."
    )
