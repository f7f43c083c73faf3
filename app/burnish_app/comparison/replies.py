"""Replies of several runs to the same prompts, side by side."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from burnish_engine.contract.run.events import SampleDone
from burnish_engine.contract.run.fold import RunState

_ALIKE = 0.3  # share of words in common below which replies are no versions of each other


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


def different_words(texts: Sequence[str]) -> list[list[tuple[int, int]]]:
    """Find what replies to one question do not share with each other, word by word.

    Args:
        texts: replies. Each is compared with the first one, and that with the last one.

    Returns:
        For each reply the begin and end of each stretch that differs, in characters. Nothing of replies that share too
        little: all of them would be marked.
    """
    words = [list(re.finditer(r"\S+", text)) for text in texts]
    found: list[list[tuple[int, int]]] = []
    for at, own in enumerate(words):
        other = words[-1 if at == 0 else 0]
        match = SequenceMatcher(None, [one[0] for one in own], [one[0] for one in other], autojunk=False)
        alike = len(texts) > 1 and match.ratio() >= _ALIKE
        spans = [(i, j) for kind, i, j, _, _ in match.get_opcodes() if kind != "equal" and j > i] if alike else []
        found.append([(own[i].start(), own[j - 1].end()) for i, j in spans])
    return found
