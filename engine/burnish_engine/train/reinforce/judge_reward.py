"""Rewards by another model on this machine, which is asked for a number from 0 to 10 (Zheng et al. 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from burnish_engine.channel.child import Child
from burnish_engine.channel.job import FailedError, Job
from burnish_engine.contract.errors import ExitCode, SetupError, UsageError
from burnish_engine.contract.recipe.recipe_reinforce import RewardSection
from burnish_engine.contract.serve.model_requests import ChatMessage, ChatOptions, ChatRequest
from burnish_engine.scoring.numbers_in_text import numbers_in
from burnish_engine.scoring.rewards import TriedReply, answer

_WORKER = "burnish_engine.chat.worker"
_BEST = 10
_LONGEST = 256  # tokens of a judgment, thoughts included
_REMEMBERED = 4096  # newest judgments, which the next replies may repeat
_SHORT = TriedReply("Hello?", "Hello!", "Hello!", ended=True, tokens=2)
_FORM = """\
{question}

Asked:
{prompt}

Reply to judge:
{reply}

Reference:
{wanted}

Judge the reply. Answer with one number from 0 (bad) to 10 (good) and nothing else."""


class JudgeReward:
    """A reward by a judge; its process loads the model with the first replies.

    Its replies are greedy, so that the same reply is judged alike, and is judged once. A reply that the judge does not
    take, such as one that is longer with its prompt than the judge's context, gets 0.

    Args:
        section: table of the recipe, of kind judge.
    """

    def __init__(self, section: RewardSection) -> None:
        self._section = section
        self._judge: Child | None = None
        self._known: dict[tuple[str, str, str], float] = {}
        if section.model.lower().endswith(".gguf") and not Path(section.model).is_file():
            raise UsageError(
                f"There is no file {section.model} for the reward {section.title}.",
                "Correct reward.model in the recipe.",
            )

    def scores(self, replies: Sequence[TriedReply]) -> list[float]:
        """Return the rewards of replies.

        Raises:
            SetupError: The judge cannot be loaded, or does not reply.
        """
        found: dict[tuple[str, str, str], float] = {}
        for one in replies:
            key = one.prompt, one.text, one.wanted
            if key not in found:
                known = self._known.pop(key, None)
                found[key] = self._judged(one) if known is None else known
        newest = islice(reversed({**self._known, **found}.items()), _REMEMBERED)
        self._known = dict(reversed([*newest]))
        return [found[one.prompt, one.text, one.wanted] for one in replies]

    def close(self) -> None:
        """End the process."""
        judge, self._judge = self._judge, None
        if judge is not None:
            judge.close()

    def _judged(self, one: TriedReply) -> float:
        try:
            return _judgment(self._ask(one))
        except FailedError as error:
            failure = error.failure
        try:
            if failure.exit_code != ExitCode.USAGE:
                raise FailedError(failure)
            self._ask(_SHORT)  # raises where it is not this reply that the judge does not take
        except FailedError as error:
            raise SetupError(
                f"The judge {self._section.model} of the reward {self._section.title} failed: {error.failure.what}",
                error.failure.remedy or "Choose another reward.model.",
            ) from error
        return 0.0

    def _ask(self, one: TriedReply) -> str:
        if self._judge is None:
            self._judge = Child(_WORKER, "judge process")
        section = self._section
        text = _FORM.format(question=section.question, prompt=one.prompt.strip(), reply=one.text, wanted=one.wanted)
        request = ChatRequest(
            id="judge",
            target=section.model,
            messages=[ChatMessage(role="user", content=text)],
            options=ChatOptions(max_tokens=_LONGEST),
        )
        result = self._judge.ask(request, Job(request.id, lambda _message: None), about="a reply to judge")
        return result.reply.text if result.reply is not None else ""


def _judgment(text: str) -> float:
    """Return a judge's number as a reward of 0 to 1; of a text without one, 0."""
    found = numbers_in(answer(text))
    return min(max(float(found[0]) / _BEST, 0.0), 1.0) if found else 0.0
