"""Rewards replies whose code does what the row wants; it runs set apart from the machine (`data.sandbox`)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from burnish_engine.contract.recipe.recipe_reinforce import RewardSection
from burnish_engine.data.sandbox.code_runner import CodeLimits, CodeOutcome, run_programs
from burnish_engine.scoring.rewards import TriedReply, answer

_BLOCK = re.compile(r"```[ \t]*(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)


def code_of(reply: str) -> str:
    """Return the Python code of a reply: its first block of code, else all of it."""
    text = answer(reply)
    block = _BLOCK.search(text)
    return block.group(1) if block else text


class CodeReward:
    """A reward by running a reply's code: 1 if it is right, else 0.

    Args:
        section: table of the recipe, of kind code.
    """

    def __init__(self, section: RewardSection) -> None:
        self._compares = section.check == "output"
        self._limits = CodeLimits(seconds=section.seconds, isolated=section.isolation == "full")

    def scores(self, replies: Sequence[TriedReply]) -> list[float]:
        """Return the rewards of replies; the same program is run once.

        Raises:
            SetupError: The system does not let a process be set apart.
        """
        programs = [self._program(reply) for reply in replies]
        different = list(dict.fromkeys(programs))
        outcomes = dict(zip(different, run_programs(different, self._limits), strict=True))
        return [
            float(self._is_right(outcomes[program], reply)) for program, reply in zip(programs, replies, strict=True)
        ]

    def close(self) -> None:
        """Do nothing: no process stays."""

    def _program(self, reply: TriedReply) -> str:
        code = code_of(reply.text)
        return code if self._compares else f"{code}\n\n{code_of(reply.wanted)}\n"

    def _is_right(self, outcome: CodeOutcome, reply: TriedReply) -> bool:
        same = not self._compares or outcome.output.split() == reply.wanted.split()
        return outcome.finished and same
