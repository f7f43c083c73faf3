"""The reward of replies: the weighted sum of a recipe's tables, with its parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.scoring.rewards import Reward, TriedReply, make_reward
from burnish_engine.train.reinforce.code_reward import CodeReward
from burnish_engine.train.reinforce.judge_reward import JudgeReward
from burnish_engine.train.reinforce.python_reward import PythonReward

RunReward = PythonReward | CodeReward | JudgeReward
"""A reward by something that runs beside this process."""
_RUN: dict[str, type[RunReward]] = {"python": PythonReward, "code": CodeReward, "judge": JudgeReward}


@dataclass(frozen=True)
class Scores:
    """Rewards of N replies.

    Attributes:
        parts: name of each table to the [N] rewards by it, before weights.
        total_N: weighted sum.
    """

    parts: dict[str, npt.NDArray[np.float64]]
    total_N: npt.NDArray[np.float64]


class RewardSum:
    """Judges replies by all rewards of a recipe.

    Args:
        recipe: recipe that learns from rewards.
        wanted: own replies of all rows.
    """

    def __init__(self, recipe: Recipe, wanted: Sequence[str]) -> None:
        self._sections = recipe.rewards
        self._rules: dict[str, Reward] = {
            section.title: make_reward(section, recipe.task, wanted)
            for section in self._sections
            if section.kind not in _RUN
        }
        self._run = {one.title: _RUN[one.kind](one) for one in self._sections if one.kind in _RUN}

    def why_not(self, wanted: str) -> str:
        """Say why replies to a row cannot be judged, in half a sentence about its own reply; empty where they can."""
        return next((why for rule in self._rules.values() if (why := rule.why_not(wanted))), "")

    def scores(self, replies: Sequence[TriedReply]) -> Scores:
        """Judge replies.

        Raises:
            UsageError: A function of the person's own fails.
            SetupError: A judge or the sandbox of code does not start.
        """
        parts = {}
        for section in self._sections:
            values = self._by(section.title)(replies)
            parts[section.title] = np.array(values, dtype=np.float64)
        total_N = np.zeros(len(replies))
        for section in self._sections:
            total_N += section.weight * parts[section.title]
        return Scores(parts, total_N)

    def close(self) -> None:
        """End the processes that rewards run."""
        for one in self._run.values():
            one.close()

    def _by(self, title: str) -> Callable[[Sequence[TriedReply]], list[float]]:
        if title in self._run:
            return self._run[title].scores
        rule = self._rules[title]
        return lambda replies: [rule.score(reply) for reply in replies]
