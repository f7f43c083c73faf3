"""Text about a duel: its plan, how far it is, and its verdicts. Pure: from the engine's facts to sentences."""

from __future__ import annotations

import re

from burnish_app.look.language import tr
from burnish_app.state.time_left import Remaining
from burnish_app.wording.numbers import decimal_text, duration_text, left_text, percent, plural
from burnish_app.wording.plain_words import plain_words
from burnish_app.wording.recipe_text import setting_name
from burnish_engine.contract.run.duels import DuelFacts, DuelRun, DuelVerdictFacts

_PHASES = {
    "grid": tr("finding the learning rate"),
    "seeds": tr("comparing"),
    "second look": tr("second look at a rate"),
}
_MINUS = "\N{MINUS SIGN}"  # a minus as wide as the plus
_FORMS = {"nats": tr("nats"), "share": "%", "count": tr("events"), "points": tr("points")}


def in_window(text: str) -> str:
    """Return a sentence of the engine about duels without the words of the command line.

    Args:
        text: what happened or what to do, as the command line says it.
    """
    text = text.replace("add --anyway", tr("press Compare anyway"))
    kept = [sentence for sentence in re.split(r"(?<=[.!?]) +", text) if "burnish " not in sentence]
    return plain_words(re.sub(r"--(?=[a-z])", "", " ".join(kept)))


def duel_name(duel: DuelFacts) -> str:
    """Return the name of a duel: its factors, or its sides."""
    if duel.tried:
        return " \N{MULTIPLICATION SIGN} ".join(setting_name(factor.key) for factor in duel.tried)
    return tr(" against ").join(side.name for side in duel.sides)


def plan_text(duel: DuelFacts) -> str:
    """Say how many runs a duel takes, and how long they train, such as "12 to 28 runs, 2 h to 5 h"."""
    least, most = duel.runs
    runs = plural(most, "run") if least == most else tr("{least} to {most} runs").format(least=least, most=most)
    if duel.seconds is None:
        return runs
    short, long = (duration_text(seconds) for seconds in duel.seconds)
    time = long if short == long else tr("{short} to {long}").format(short=short, long=long)
    return tr("{runs}, about {time}").format(runs=runs, time=time)


def progress_text(duel: DuelFacts) -> str:
    """Say how many runs of a duel were made, and what is done now."""
    least, most = duel.runs
    made = len(duel.made)
    if duel.status == "finished":
        return tr("{runs} made").format(runs=plural(made, "run"))
    of = str(least) if made < least else tr("at most {most}").format(most=most)
    return tr("{made} of {of} runs made").format(made=made, of=of)


def rate_text(rate: float) -> str:
    """Format a learning rate that was a factor times another, with four digits at most."""
    return decimal_text(float(f"{rate:.4g}"))


def run_text(duel: DuelFacts, run: DuelRun) -> str:
    """Describe a run of a duel: side, purpose, rate and seed."""
    words = tr("{side}: {purpose}, learning rate {rate}, seed {seed}")
    return words.format(
        side=duel.sides[run.side].name, purpose=_PHASES[run.phase], rate=rate_text(run.rate), seed=run.seed
    )


def result_text(duel: DuelFacts, run: DuelRun) -> str:
    """Format what came of a run in the measure that decides the duel."""
    value = run.held_out_loss if duel.judge == "held_out_loss" else run.preferred
    if run.ended == "diverged":
        return tr("diverged")
    if value is None:
        return "–"
    return f"{value:.4f}" if duel.judge == "held_out_loss" else tr("{share} preferred").format(share=percent(value))


def share_done(duel: DuelFacts) -> float:
    """Return how far a duel is, 0 to 1, counted in its smallest number of runs until that is passed."""
    if duel.status == "finished":
        return 1.0
    least, most = duel.runs
    made = len(duel.made)
    return min((made + _share_of_run(duel)) / (least if made < least else most), 1.0)


def _share_of_run(duel: DuelFacts) -> float:
    """Return how far the run is that is being made, 0 to 1."""
    run = duel.current
    return run.step / run.total_steps if run is not None and run.total_steps else 0.0


def time_left_text(duel: DuelFacts) -> str:
    """Say how long the rest of a duel takes, by the runs made so far; empty before the first has ended."""
    if not duel.made or duel.status != "running":
        return ""
    each = sum(run.seconds for run in duel.made) / len(duel.made)
    least = duel.runs[0]
    left = max((least if len(duel.made) < least else duel.runs[1]) - len(duel.made) - _share_of_run(duel), 0.0)
    return tr("about {time} of training left").format(time=left_text(Remaining.about(each * left))) if left else ""


def difference_text(verdict: DuelVerdictFacts) -> str:
    """Format the difference of a verdict with its interval; empty where there is none."""
    if verdict.difference is None or verdict.low is None or verdict.high is None:
        return ""
    if verdict.low == verdict.high:
        return f"{amount_text(verdict.form, verdict.difference)} {_FORMS[verdict.form]}"
    low, middle, high = (amount_text(verdict.form, one) for one in (verdict.low, verdict.difference, verdict.high))
    return tr("{middle} {unit}, between {low} and {high}").format(
        middle=middle, low=low, high=high, unit=_FORMS[verdict.form]
    )


def amount_text(form: str, value: float) -> str:
    """Format a difference with its sign: nats with four digits, a share in percent; what rounds to zero has none."""
    text = f"{value:+.4f}" if form == "nats" else f"{100 * value if form in ('share', 'points') else value:+.1f}"
    return text.replace("-", _MINUS) if float(text) else "0"


def conclusion_text(verdict: DuelVerdictFacts) -> str:
    """Say in a few words who is better in a measure."""
    if verdict.winner is not None:
        return tr("{name} is better").format(name=verdict.names[verdict.sides.index(verdict.winner)])
    return {
        "equal": tr("Equal"),
        "not measured": tr("Not measured"),
        "not distinguishable": tr("Not distinguishable"),
    }[verdict.kind]


def conditions_text(duel: DuelFacts) -> str:
    """Say whether the conditions of all runs were the same."""
    same = sum(check.verdict == "same" for check in duel.checks)
    differ = [check.what for check in duel.checks if check.verdict == "differs"]
    if differ:
        return tr("Conditions differed: {what}.").format(what="; ".join(differ))
    return tr("{same} of {all} conditions were checked and the same.").format(same=same, all=len(duel.checks))
