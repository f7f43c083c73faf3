"""Recognize how the task of a dataset can be scored, from its held-out rows, and how many of them a score finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from burnish_engine.contract.facts.data_report import TaskFit, TaskHint
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_task import TaskSection
from burnish_engine.data.files.problems import RowError
from burnish_engine.data.templates.template import ChatTemplate
from burnish_engine.scoring.recognize import recognize_task, replies_of
from burnish_engine.scoring.score import find_rows

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


def task_fit(
    recipe: Recipe, chats: Sequence[Sequence[Mapping[str, Any]]], template: ChatTemplate, tokenizer: Any
) -> TaskFit:
    """Count the held-out rows that a recipe's score finds; where it scores nothing, those that it could.

    Args:
        recipe: recipe of the run.
        chats: conversations of held-out rows.
        template: chat template that renders the turns before a reply.
        tokenizer: tokenizer of the model.
    """
    counter, longest = prompt_counter(template, tokenizer), recipe.data.max_length
    any_row = TaskSection(metric="exact_match", max_rows=1)
    section = recipe.task if recipe.task.is_active else any_row
    found = find_rows(section, chats[:_MOST_ROWS], counter, longest)
    usable = len(found.rows) or len(find_rows(any_row, chats[:_MOST_ROWS], counter, longest).rows)
    # The token that ends a reply is one of max_tokens.
    lengths = [len(tokenizer(row.wanted, add_special_tokens=False)["input_ids"]) for row in found.rows]
    return TaskFit(
        section=recipe.task,
        rows=len(found.rows) if recipe.task.is_active else 0,
        usable_rows=usable,
        long_replies=sum(length >= section.max_tokens for length in lengths),
        left_out=found.left_out,
    )


def prompt_ids(template: ChatTemplate, tokenizer: Any, messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """Render the turns before a reply, ready for it, and return their token ids.

    Raises:
        RowError: The template refuses them.
    """
    text = template.formed.render([dict(turn) for turn in messages], add_generation_prompt=True)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def prompt_counter(template: ChatTemplate, tokenizer: Any) -> Callable[[list[dict[str, str]]], int | None]:
    """Return a function that counts the tokens of the turns before a reply; None of turns that the template refuses."""

    def count(messages: list[dict[str, str]]) -> int | None:
        try:
            return len(prompt_ids(template, tokenizer, messages))
        except RowError:
            return None

    return count
