"""Computes the state of the card of rewards: their lines, what is wrong with them, and what a trial found. No Qt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from burnish_app.look.language import tr
from burnish_app.page_states.page_state import ButtonState
from burnish_app.recipe.rewards import RewardLine, can_add, reward_name
from burnish_app.wording.numbers import percent, reward_text
from burnish_app.wording.run_text import Tone
from burnish_engine.contract.serve.reward_trial import RewardTrial, TriedRow

TRIED_ROWS = 10
"""Rows of a trial."""
_NO_BUTTON = ButtonState(is_enabled=False)
_LONGEST = 240  # characters of a text that is shown


@dataclass(frozen=True, kw_only=True)
class RewardFacts:
    """The rewards of a recipe as far as they are known.

    Attributes:
        learns: whether the recipe learns from rewards.
        has_data: whether there are rows to try them on.
        lines: rewards as they were edited.
        problems: what is wrong with which line; -1: with all of them.
        trial: newest trial; None: there is none of these rewards.
        failure: why the newest trial failed; empty: it did not.
        is_trying: whether a trial is running.
    """

    learns: bool
    has_data: bool = True
    lines: Sequence[RewardLine] = ()
    problems: Mapping[int, str] = field(default_factory=dict)
    trial: RewardTrial | None = None
    failure: str = ""
    is_trying: bool = False


@dataclass(frozen=True)
class TriedText:
    """A tried reply in words.

    Attributes:
        asked: end of the prompt, and the row's own reply.
        reply: reply of the model.
        total: weighted sum of its rewards.
        parts: each reward before its weight.
        tone: `success` for the best of the trial, `warning` for no reward, else `plain`.
    """

    asked: str
    reply: str
    total: str
    parts: str
    tone: Tone


@dataclass(frozen=True, kw_only=True)
class RewardsState:
    """The card of rewards, as it is shown.

    Attributes:
        is_seen: whether the card is seen.
        lines: rewards to edit.
        problems: what is wrong with which line; -1: with all of them.
        can_add: whether there may be another one.
        can_remove: whether one may go: the last one stays.
        is_busy: whether a trial is running.
        button: button that starts a trial.
        verdict: what a trial says of the rewards, with its tone; empty: nothing.
        tried: replies of the trial.
    """

    is_seen: bool = False
    lines: tuple[RewardLine, ...] = ()
    problems: Mapping[int, str] = field(default_factory=dict)
    can_add: bool = False
    can_remove: bool = False
    is_busy: bool = False
    button: ButtonState = _NO_BUTTON
    verdict: tuple[str, Tone] = ("", "plain")
    tried: tuple[TriedText, ...] = ()


def rewards_state(known: RewardFacts) -> RewardsState:
    """Return the state of the card for the rewards of a recipe."""
    if not known.learns:
        return RewardsState()
    shown = known.trial if not known.is_trying else None
    return RewardsState(
        is_seen=True,
        lines=tuple(known.lines),
        problems=known.problems,
        can_add=can_add(known.lines),
        can_remove=len(known.lines) > 1,
        is_busy=known.is_trying,
        button=_button(known),
        verdict=_verdict(known),
        tried=_tried(shown.rows) if shown is not None else (),
    )


def _button(known: RewardFacts) -> ButtonState:
    text = tr("Try on {rows} rows").format(rows=TRIED_ROWS)
    if known.trial is not None:
        text = tr("Try again")
    return ButtonState(text=text, is_enabled=known.has_data and not known.problems and not known.is_trying)


def _verdict(known: RewardFacts) -> tuple[str, Tone]:
    """Say whether rewards tell the replies of a trial apart."""
    if known.is_trying:
        return "", "plain"
    if known.failure:
        return known.failure, "error"
    trial = known.trial
    if trial is None or not trial.rows:
        return "", "plain"
    if trial.is_flat:
        return tr("All replies have the same reward: nothing could be learned from these."), "warning"
    never = [name for name, mean in trial.means.items() if not mean]
    if never:
        named = ", ".join(map(reward_name, never))
        return tr("No reply is rewarded by: {names}.").format(names=named), "warning"
    right = sum(row.sum > trial.mean for row in trial.rows) / len(trial.rows)
    text = tr("Mean reward {mean} ± {spread}; {share} of the replies are better than that.")
    return text.format(mean=reward_text(trial.mean), spread=reward_text(trial.spread), share=percent(right)), "success"


def _tried(rows: Sequence[TriedRow]) -> tuple[TriedText, ...]:
    best = max((row.sum for row in rows), default=0.0)
    flat = len({row.sum for row in rows}) < 2
    return tuple(_text_of(row, best, is_flat=flat) for row in rows)


def _text_of(row: TriedRow, best: float, *, is_flat: bool) -> TriedText:
    tone: Tone = "plain"
    if not is_flat and row.sum == best:
        tone = "success"
    elif row.sum <= 0:
        tone = "warning"
    reply = _short(row.reply) or tr("(empty)")
    return TriedText(
        asked=f"{_short(row.prompt, from_end=True)}  →  {_short(row.wanted)}",
        reply=reply if row.ended else tr("{reply} (cut)").format(reply=reply),
        total=reward_text(row.sum),
        parts="  ·  ".join(f"{reward_name(name)} {reward_text(value)}" for name, value in row.rewards.items()),
        tone=tone,
    )


def _short(text: str, *, from_end: bool = False) -> str:
    line = " ".join(text.split())
    if len(line) <= _LONGEST:
        return line
    return f"... {line[-_LONGEST:]}" if from_end else f"{line[:_LONGEST]} ..."
