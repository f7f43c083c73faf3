"""Computes what the card of judged replies shows: the best and the worst group of a round. No Qt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from burnish_app.look.language import tr
from burnish_app.wording.numbers import reward_text
from burnish_engine.contract.run.events import JudgedGroup, RewardsGiven


@dataclass(frozen=True)
class GroupText:
    """A group of replies in words.

    Attributes:
        title: whether it is the best or the worst, and its mean reward.
        prompt: what was asked.
        replies: (reward, reply) of each reply that is shown.
    """

    title: str
    prompt: str
    replies: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class JudgedRepliesState:
    """The card of judged replies, as it is shown.

    Attributes:
        is_seen: whether there are any.
        place: index of the round that is shown.
        rounds: number of all rounds.
        step: which round it is, in words.
        groups: its groups, the best one first; one where there is but one.
    """

    is_seen: bool = False
    place: int = 0
    rounds: int = 0
    step: str = ""
    groups: tuple[GroupText, ...] = ()


def judged_replies_state(given: Sequence[RewardsGiven], wanted: int | None) -> JudgedRepliesState:
    """Return the state of the card.

    Args:
        given: rewards of each round.
        wanted: index of the round to show; None: the newest.
    """
    if not given:
        return JudgedRepliesState()
    place = len(given) - 1 if wanted is None else min(max(wanted, 0), len(given) - 1)
    one = given[place]
    titles = (tr("Best group"), one.best_group), (tr("Worst group"), one.worst_group)
    groups = [_group(title, group) for title, group in titles if group is not None]
    if one.groups == 1:
        groups = groups[:1]
    return JudgedRepliesState(
        is_seen=bool(groups),
        place=place,
        rounds=len(given),
        step=tr("Step {step}").format(step=f"{one.step:,}"),
        groups=tuple(groups),
    )


def _group(title: str, group: JudgedGroup) -> GroupText:
    named = tr("{title}, mean reward {reward}").format(title=title, reward=reward_text(group.reward))
    replies = tuple((reward_text(one.reward), one.reply.strip() or tr("(empty)")) for one in group.replies)
    return GroupText(named, group.prompt.strip(), replies)
