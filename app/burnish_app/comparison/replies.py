"""Replies of several runs to the same prompts, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from burnish_engine.contract.run.events import SampleDone
from burnish_engine.contract.run.fold import RunState


@dataclass(frozen=True)
class PromptReplies:
    """The replies to one prompt.

    Attributes:
        prompt: prompt.
        before: reply of the first run that asked the untrained model; None: none did.
        replies: newest reply of each run, in their order; None: the run has not asked it.
    """

    prompt: str
    before: SampleDone | None
    replies: tuple[SampleDone | None, ...]


def replies_side_by_side(states: Sequence[RunState]) -> list[PromptReplies]:
    """List the prompts that at least one run asked, those first that most runs share.

    Args:
        states: folded events of the runs.
    """
    newest: list[dict[str, SampleDone]] = []
    before: dict[str, SampleDone] = {}
    for state in states:
        replies: dict[str, SampleDone] = {}
        for sample in state.samples.items():
            if sample.step:
                replies[sample.prompt] = sample
            else:
                before.setdefault(sample.prompt, sample)
        newest.append(replies)
    prompts = dict.fromkeys(prompt for replies in (*newest, before) for prompt in replies)
    found = [
        PromptReplies(prompt, before.get(prompt), tuple(replies.get(prompt) for replies in newest))
        for prompt in prompts
    ]
    return sorted(found, key=lambda one: -sum(reply is not None for reply in one.replies))
