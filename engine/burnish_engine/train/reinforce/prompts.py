"""The prompts that a run writes replies to, from its training rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.errors import DataError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.units import plural
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.scoring.rewards import answer
from burnish_engine.train.reinforce.reward_sum import RewardSum

Ids = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Prompt:
    """A row as a prompt.

    Attributes:
        row: index among the training documents.
        tokens: number of tokens before the row's own last reply.
        wanted: text of that reply, without thoughts before it.
    """

    row: int
    tokens: int
    wanted: str


@dataclass(frozen=True)
class PromptRows:
    """Rows that replies are written to.

    Attributes:
        rows: rows that can be used, in their order.
        left_out: reason to number of rows.
    """

    rows: Sequence[Prompt]
    left_out: dict[str, int]

    @property
    def left_out_text(self) -> str:
        """Half a sentence on rows that no replies are written to; empty where there are none."""
        return "; ".join(f"{plural(count, 'row')}: {why}" for why, count in self.left_out.items())


def last_reply(document: Document) -> tuple[int, int]:
    """Return the first token of a row's last reply, and one past its last; (0, 0) where there is none."""
    learned = np.flatnonzero(document.supervised)
    if not len(learned):
        return 0, 0
    gaps = np.flatnonzero(np.diff(learned) > 1)
    return int(learned[gaps[-1] + 1] if len(gaps) else learned[0]), int(learned[-1]) + 1


def own_replies(documents: Sequence[Document], tokenizer: Any) -> list[str]:
    """Return the text of each row's last reply, without thoughts before it; empty where there is none."""
    found = []
    for number in range(len(documents)):
        document = documents[number]
        begin, end = last_reply(document)
        text = tokenizer.decode(
            document.input_ids[begin:end].tolist(), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        found.append(answer(text))
    return found


def find_prompts(
    recipe: Recipe, documents: Sequence[Document], wanted: Sequence[str], rewards: RewardSum
) -> PromptRows:
    """Find the rows that replies can be written to and judged.

    Args:
        recipe: recipe of the run.
        documents: training rows.
        wanted: own reply of each, from `own_replies`.
        rewards: rewards of the run.

    Raises:
        DataError: No row can be used.
    """
    longest = recipe.train.micro_batch_tokens - recipe.reinforce.max_tokens
    found, left_out = list[Prompt](), Counter[str]()
    for number, text in enumerate(wanted):
        document = documents[number]
        begin, _ = last_reply(document)
        if not begin or not text:
            left_out["no reply with a prompt before it"] += 1
        elif document.truncated:
            left_out["cut to data.max_length"] += 1
        elif begin > longest:
            left_out[f"a prompt of more than {longest:,} tokens, beside which no reply fits into a pass"] += 1
        elif why := rewards.why_not(text):
            left_out[f"the row's own reply cannot be compared with, as {why}"] += 1
        else:
            found.append(Prompt(number, begin, text))
    prompts = PromptRows(found, dict(left_out))
    if not found:
        raise DataError(
            f"No training row can be learned from by rewards ({prompts.left_out_text}).",
            "Choose rewards that fit the rows, or correct the rows.",
        )
    return prompts
