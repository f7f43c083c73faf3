"""Rows that a teacher wrote: of several tries at each question the best one by the rewards, if it is good enough."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_reinforce import RewardSection
from burnish_engine.models.generation.sampling import GeneratedReply, Sampling
from burnish_engine.scoring.rewards import TriedReply
from burnish_engine.train.reinforce.reward_sum import RewardSum

_WITHOUT_OWN = {"format", "tags", "length", "judge", "python"}


@dataclass(frozen=True)
class TaughtRow:
    """A teacher's best reply to a question.

    Attributes:
        question: place of the question.
        reply: text of the reply.
        reward: weighted sum of its rewards.
        is_kept: whether it is good enough to learn from.
    """

    question: int
    reply: str
    reward: float
    is_kept: bool


def alone_rewards(recipe: Recipe) -> list[RewardSection]:
    """Return the rewards of a recipe that judge a reply alone, without a row's own to compare with.

    Raises:
        UsageError: There are none, or none with a weight above 0.
    """
    found = [one for one in recipe.rewards if one.kind in _WITHOUT_OWN or (one.kind == "task" and _alone(recipe))]
    if not any(one.weight > 0 for one in found):
        raise UsageError(
            f"None of the recipe's rewards ({', '.join(one.title for one in recipe.rewards)}) can judge a reply to a "
            "row without one.",
            f"Add one of kind {', '.join(sorted(_WITHOUT_OWN))}.",
        )
    return found


def try_rewards(recipe: Recipe, question: str) -> None:
    """Judge one made-up reply, so that what is wrong with a reward is known before replies are written.

    Raises:
        UsageError: No reward can judge a reply alone, or a function of the person's own fails.
        SetupError: A judge or the sandbox of code does not start.
    """
    with closing(_sum_of(recipe, alone_rewards(recipe))) as rewards:
        rewards.scores([TriedReply(question, "This is a reply.", "", ended=True, tokens=5)])


def tries(recipe: Recipe, questions: int, each: int) -> list[list[Sampling]]:
    """Return how each try at each question is drawn; the first is the likeliest reply."""
    section, seed = recipe.reinforce, recipe.train.seed
    return [
        [Sampling(section.max_tokens)]
        + [
            Sampling(section.max_tokens, section.temperature, seed=_seed(seed, one, number))
            for number in range(1, each)
        ]
        for one in range(questions)
    ]


def choose_rows(
    recipe: Recipe, asked: Sequence[str], written: Sequence[Sequence[GeneratedReply]], least: float
) -> list[TaughtRow]:
    """Choose the best try at each question.

    Args:
        recipe: recipe that learns from rewards.
        asked: text of each question.
        written: tries at each question.
        least: share of the highest reward that a reply needs to be kept, 0 to 1.

    Raises:
        UsageError: No reward can judge a reply alone, or a function of the person's own fails.
        SetupError: A judge does not start.
    """
    sections = alone_rewards(recipe)
    highest = sum(max(one.weight, 0.0) for one in sections)
    rewards = _sum_of(recipe, sections)
    places = [(one, made) for one, tried in enumerate(written) for made in tried]
    with closing(rewards):
        replies = [TriedReply(asked[one], made.text, "", made.stopped, made.tokens) for one, made in places]
        total_N = rewards.scores(replies).total_N
    best: dict[int, TaughtRow] = {}
    for (one, made), reward in zip(places, total_N.tolist(), strict=True):
        is_good = made.stopped and bool(made.text.strip()) and reward >= least * highest
        row = TaughtRow(one, made.text.strip(), reward, is_good)
        if one not in best or (row.is_kept, row.reward) > (best[one].is_kept, best[one].reward):
            best[one] = row
    return [best[one] for one in range(len(written))]


def _sum_of(recipe: Recipe, sections: list[RewardSection]) -> RewardSum:
    return RewardSum(recipe.model_copy(update={"reward": sections}), [])


def _seed(seed: int, question: int, number: int) -> int:
    return int(np.random.SeedSequence([seed, question, number]).generate_state(1)[0])


def _alone(recipe: Recipe) -> bool:
    return recipe.task.is_active and not recipe.task.compares
