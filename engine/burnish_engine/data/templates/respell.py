"""Writes a conversation in an equal form, where the chat template leaves out a part of the row's own form.

Parallel calls become turns of their own, each followed by its result. Thoughts go into the text of their reply, with
a private-use mark in place of `</think>`, by which templates find and cut them. A call that the template writes only
without a text beside it loses that text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from burnish_engine.data.rows.conversation import Conversation, Message
from burnish_engine.data.templates.template_dialect import split_thoughts
from burnish_engine.data.templates.template_forms import THOUGHTS
from burnish_engine.data.templates.written import BESIDE_CALL, CALL, EARLIER_THOUGHTS, LAST_THOUGHTS, Lost

THINKING_ENDS = "</think>"
_THOUGHTS = (LAST_THOUGHTS, EARLIER_THOUGHTS)


def has_parallel_calls(conversation: Conversation) -> bool:
    """Whether a turn calls several tools whose results follow it."""
    return any(
        _is_parallel(message) and after.role == "tool"
        for message, after in zip(conversation.messages, conversation.messages[1:], strict=False)
    )


def respelled(
    conversation: Conversation, lost: Sequence[Lost], mark: str, *, inline: Collection[bool]
) -> tuple[Conversation, list[Lost]]:
    """Write a conversation in another form; the same object where there is none.

    Args:
        conversation: row with messages.
        lost: what the template does not write of it; empty where the template refuses it.
        mark: character that the conversation does not have, put in place of `</think>`.
        inline: turns whose thoughts the template takes within the text alone: False for replies, True for calls.

    Returns:
        The other form, and what it leaves out itself, by the turns of `conversation`.
    """
    calls = {one.turn for one in lost if one.kind == CALL}
    parallel = {turn for turn, message in enumerate(conversation.messages) if _is_parallel(message)}
    if has_parallel_calls(conversation) and (not lost or calls & parallel):
        return _with_messages(conversation, _one_by_one(conversation.messages)), []
    messages, left_out = list(conversation.messages), list[Lost]()
    for turn in calls:
        message = messages[turn]
        if message.content or THOUGHTS in message.extras:
            messages[turn] = replace(message, content="", extras=_without_thoughts(message))
            left_out += [Lost(turn, BESIDE_CALL)] if split_thoughts(message.content)[1] else []
            left_out += [Lost(turn, EARLIER_THOUGHTS)] if _thoughts_of(message) else []
    for turn in {one.turn for one in lost if one.kind in _THOUGHTS} - calls:
        if ("tool_calls" in messages[turn].extras) in inline:  # else it would be another form than the model's own
            messages[turn] = _with_thoughts_inline(messages[turn], mark)
    return (
        (conversation, [])
        if tuple(messages) == conversation.messages
        else (
            _with_messages(conversation, messages),
            left_out,
        )
    )


def _is_parallel(message: Message) -> bool:
    return len(message.extras.get("tool_calls", ())) > 1


def _one_by_one(messages: Sequence[Message]) -> Iterator[Message]:
    """Yield the turns with each call of several in a turn of its own, followed by its results."""
    turn = 0
    while turn < len(messages):
        message = messages[turn]
        turn += 1
        results = list[Message]()
        while _is_parallel(message) and turn < len(messages) and messages[turn].role == "tool":
            results.append(messages[turn])
            turn += 1
        if not results:
            yield message
            continue
        calls = message.extras["tool_calls"]
        ids = [call.get("id") for call in calls]
        for place, call in enumerate(calls):
            alone = {**(message.extras if place == 0 else {}), "tool_calls": [call]}
            yield replace(message, content=message.content if place == 0 else "", extras=alone)
            yield from _results_of(place, ids, results)


def _results_of(place: int, ids: Sequence[str | None], results: Sequence[Message]) -> Iterator[Message]:
    """Yield the results of a call: those with its id, or the one in its place; the last call takes all others."""
    for index, result in enumerate(results):
        name = result.extras.get("tool_call_id")
        owner = ids.index(name) if name in ids else min(index, len(ids) - 1)
        if owner == place:
            yield result


def _with_thoughts_inline(message: Message, mark: str) -> Message:
    thoughts, said = _thoughts_of(message), message.content
    if THOUGHTS not in message.extras:
        said = said.partition(THINKING_ENDS)[2].lstrip("\n")
    if not thoughts:
        return message
    return replace(message, content=f"<think>\n{thoughts}\n{mark}\n\n{said}", extras=_without_thoughts(message))


def _thoughts_of(message: Message) -> str:
    own = message.extras.get(THOUGHTS)
    opening, ended, _ = message.content.partition(THINKING_ENDS)
    return str(own) if own else opening.strip().removeprefix("<think>").strip("\n") if ended else ""


def _without_thoughts(message: Message) -> dict[str, object]:
    return {name: value for name, value in message.extras.items() if name != THOUGHTS}


def _with_messages(conversation: Conversation, messages: Iterator[Message] | Collection[Message]) -> Conversation:
    return replace(conversation, messages=tuple(messages))
