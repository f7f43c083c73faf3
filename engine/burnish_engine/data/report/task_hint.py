"""Recognize how the task of a dataset can be scored, from its held-out rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from burnish_engine.contract.facts.data_report import TaskHint
from burnish_engine.scoring.recognize import recognize_task, replies_of

_MOST_ROWS = 200


def task_hint(chats: Sequence[Sequence[Mapping[str, Any]]], tokenizer: Any) -> TaskHint | None:
    """Recognize how replies can be scored; None where nothing fits.

    Args:
        chats: conversations of held-out rows.
        tokenizer: tokenizer of the model, which says how long replies have to be.
    """
    replies = replies_of(chats[:_MOST_ROWS])
    hint = recognize_task(replies)
    if hint is None:
        return None
    longest = max(len(tokenizer(reply, add_special_tokens=False)["input_ids"]) for reply in replies)
    return hint.model_copy(update={"reply_tokens": longest})
