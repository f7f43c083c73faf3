"""Render a duel's report: one self-contained HTML page for light and dark screens and for screen readers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import groupby

from burnish_engine.contract.plain_text import typed
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
from burnish_engine.duel.report.figures import compared_runs, figures, preferred_percent
from burnish_engine.duel.sides.differences import shown
from burnish_engine.duel.state import DuelState
from burnish_engine.duel.verdict.conclude import joules_per_1000
from burnish_engine.duel.verdict.rates import SECOND_LOOKS
from burnish_engine.duel.verdict.verdict import DuelVerdict, few_seeds_note, headline
from burnish_engine.html_page.page import (
    card,
    cell,
    code_cell,
    commands,
    head_cell,
    heading,
    number,
    page,
    paragraph,
    section,
    table,
    text,
)
from burnish_engine.html_page.svg import legend_sample

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
_USE = "To be typed in the duel's folder."
_SPREAD = "Mean over the seeds, with the least and the most in brackets."
_KINDS = {"compared": "compared", "unfair": "unfair", "decided": "not compared"}


def render(state: DuelState) -> str:
    """Render the report of a finished or unfinished duel."""
    title = state.title
    sections = (
        _notes, _differences, _verdicts, _figures, _curves, _rates, _conditions, _runs, _method, _use, _again,
    )  # fmt: skip
    top = heading(title, headline(state.verdicts), _about(state))
    return page(f"{title}: a duel", "Duel report", [top, *(part(state) for part in sections)])


def _notes(state: DuelState) -> str:
    return "".join(paragraph(note, "note") for note in _remarks(state))


def _differences(state: DuelState) -> str:
    rows = []
    for one in state.differences:
        why = f"{_KINDS[one.kind]}: {one.why}" if one.why else _KINDS[one.kind]
        values = (code_cell(shown(value)) for value in one.values)
        rows.append([head_cell(one.key), *values, cell(why, "muted")])
    known = table(["recipe key", *(side.name for side in state.sides), ""], rows)
    return section("What the recipes do differently", known or paragraph("Nothing."))


def _verdicts(state: DuelState) -> str:
    if not state.verdicts:
        return ""
    names = [side.name for side in state.sides]
    alone = len(names) == 2 and not state.tried
    against = f"{names[0]} against {names[1]}" if alone else "The first against the second"
    plots = card(*judge_intervals(state)) + card(against, share_intervals(state), "more")
    few = few_seeds_note(state.options.seeds, state.level)
    small = paragraph(" ".join(part for part in (_LEGEND if plots else "", few) if part), "muted small more")
    return section("Verdict", table(["measure", "verdict"], list(_verdict_rows(state.verdicts))), plots, small)


def _verdict_rows(verdicts: Iterable[DuelVerdict]) -> Iterator[list[str]]:
    """Yield a row for each verdict; a measure is named once for all pairs of sides."""
    for title, group in groupby(verdicts, key=lambda one: one.title):
        of_measure = list(group)
        first, *rest = map(_verdict, of_measure)
        yield [head_cell(title, len(of_measure)), first]
        yield from ([one] for one in rest)


def _verdict(one: DuelVerdict) -> str:
    """Render a verdict, with its grounds below."""
    result, dot, rest = one.text.partition(". ")
    mark = ' class="live"' if one.winner is not None else ""
    below = f'<br><span class="muted">{text(rest)}</span>' if rest else ""
    return f"<td><span{mark}>{text(result + dot.strip())}</span>{below}</td>"


def _figures(state: DuelState) -> str:
    rows = [[head_cell(row.title), *map(number, row.cells)] for row in figures(state)]
    titles = ["", *(side.name for side in state.sides)]
    return section("Figures", table(titles, rows, numbers=True, caption=_SPREAD))


def _curves(state: DuelState) -> str:
    plots = [(title, plot) for title, plot in held_out_plots(state) if plot]
    if not plots:
        return ""
    cards = "".join(card(title, plot) for title, plot in plots)
    return section(
        "Curves",
        _legend(state),
        f'<div class="plots">{cards}</div>',
        card(*training_plot(state)),
        paragraph(_CURVES, "muted small"),
        _courses(state),
        printed=False,
    )


def _courses(state: DuelState) -> str:
    cards = "".join(card(title, plot) for title, plot in course_plots(state))
    what = "Speed, memory, energy and instability events over steps, tokens and time"
    return f'<details><summary>{what}</summary><div class="plots">{cards}</div></details>' if cards else ""


def _rates(state: DuelState) -> str:
    runs = [one for one in state.outcomes if one.spec.phase == "grid"]
    if not runs:
        return ""
    caption = f"One run each, on seed {state.seed}, which is not among the seeds that are compared."
    if any(one.ended == "diverged" for one in runs):
        caption += " A cross is a run that diverged."
    plot = card(*grid_plot(state))
    return section("Learning rates", _legend(state), plot, paragraph(caption, "muted small"), printed=False)


def _conditions(state: DuelState) -> str:
    rows = [
        [head_cell(one.what), cell(one.verdict, "bad" if one.verdict == "differs" else ""), cell(one.detail, "muted")]
        for one in state.checks
    ]
    known = table(["condition", "", ""], rows, caption=_CONDITIONS)
    return section("Were the conditions the same?", known, printed=False)


def _runs(state: DuelState) -> str:
    titles = ["run", "held-out loss", "tokens/s", "peak GiB", "J per 1,000 tokens", "seconds", "events", "how it ran"]
    if state.judge == "pair_error":
        titles.insert(1, "pairs preferred, %")
    rows = [[head_cell(one.spec.id), *_cells(one)] for one in state.outcomes]
    known = table(titles, rows, numbers=True)
    details = f'<details class="runs"><summary>{len(rows)} runs</summary>{known}</details>'
    return section("Every run", details, printed=False)


def _cells(one: RunOutcome) -> Iterable[str]:
    memory = None if one.memory_bytes is None else one.memory_bytes / 2**30
    preferred = [(preferred_percent(one), ".1f")] if one.judge == "pair_error" else []
    numbers = (
        *preferred, (one.held_out_loss, ".4f"), (one.tokens_per_s, ",.0f"), (memory, ".2f"),
        (joules_per_1000(one), ",.2f"), (one.training_s, ",.1f"), (one.instability.total, "d"),
    )  # fmt: skip
    for value, form in numbers:
        yield number("-" if value is None else format(value, form))
    caption = f"diverged after step {one.steps}: {one.message}" if one.ended == "diverged" else f"{one.steps:,} steps"
    again = f"; continued after {one.resumes} interruption{'s' if one.resumes > 1 else ''}" if one.resumes else ""
    yield cell(f"{caption}{again}; {one.engine}", "muted")


def _method(state: DuelState) -> str:
    return section("How it was done", paragraph(_how(state)), paragraph(RULE), printed=False)


def _use(state: DuelState) -> str:
    """Render the commands that use the trained models: of each side its best compared run, the lowest loss first."""
    compared = [compared_runs(state, side) for side in range(len(state.sides))]
    best = [min(runs, key=lambda one: one.score) for runs in compared if runs]
    usable = sorted((one for one in best if one.ended != "diverged"), key=lambda one: one.score)
    return section("Talk to them", commands([f"burnish chat {typed(f'runs/{one.spec.id}')}" for one in usable], _USE))


def _again(state: DuelState) -> str:
    versions = next((one.conditions.versions for one in state.outcomes if one.conditions.versions), {})
    known = ", ".join(f"{name} {version}" for name, version in versions.items())
    last = {one.spec.side: one.spec.id for one in state.outcomes}
    runs = [f"burnish train {typed(f'recipes/{name}.toml')}" for _, name in sorted(last.items())]
    lines = commands([state.command, "burnish duel --resume .", *runs], _AGAIN)
    return section("To do it again", lines, paragraph(known, "muted small"), printed=False)


def _legend(state: DuelState) -> str:
    entries = (f"<span>{legend_sample(place)}{text(side.name)}</span>" for place, side in enumerate(state.sides))
    return f'<div class="legend">{"".join(entries)}</div>'


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
    looked = f"those that the grid could not tell from it (at most {SECOND_LOOKS}, with the same seeds)"
    judged = f"A side is called worse only if it is worse at its best rate and at {looked}. "
    equal = f"Of sides that are equal in truth, about {wrong} of 100 duels would give a measure a winner, or fewer"
    if state.tried:
        equal = (
            f"Of effects that are none in truth, about {wrong} of 100 would be called one, in simulated duels up to "
            "1.8 times as many"
        )
        judged = (
            f"A side that was worse than another tried {looked} too, and counts at the best of them. An effect is the "
            "mean of all sides with a factor's second value less that of those with its first, within each seed; an "
            "interaction is an effect at the second value of another factor less that at its first. "
        )
    return (
        f"{grid}Then each ran {options.seeds} seeds at its best rate; sides took turns, and who began changed from "
        f"seed to seed. Runs of the same seed are pairs: they saw the same rows in the same order. {judged}"
        "The intervals are Student's t of the paired differences (of "
        f"logarithms of ratios for speed, memory and energy). {equal}. Speed leaves out the first "
        f"{WARM_UP_STEPS} steps of a "
        "process. Speed, memory and energy are of the runs that took turns. Energy is of the whole GPU while steps "
        f"are made: {energy}."
    )
