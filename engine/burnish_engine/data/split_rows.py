"""Long rows in several pieces, where the recipe says so (`data.overlong = "split"`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from burnish_engine.data.conversation import Conversation, Message
from burnish_engine.data.tokenize import Flags, Ids


def windows(ids: Ids, learned: Flags, longest: int) -> Iterator[tuple[Ids, Flags]]:
    """A plain text's tokens in pieces of a length. A piece's first token is not learned: nothing predicts it.

    Args:
        ids: Token ids.
        learned: Whether each is learned.
        longest: Tokens of a piece; 0: all in one.
    """
    if not longest or len(ids) <= longest:
        yield ids, learned
        return
    for start in range(0, len(ids), longest):
        flags = learned[start : start + longest].copy()
        flags[:1] = False
        if flags.any():
            yield ids[start : start + longest], flags


def exchanges(
    conversation: Conversation, longest: int, length: Callable[[Conversation], int]
) -> Sequence[Conversation]:
    """A chat in pieces of whole exchanges, each with the system message, as many exchanges a piece as fit.

    An exchange that does not fit alone is a piece of its own, and is cut later.

    Args:
        conversation: The chat.
        longest: Tokens of a piece.
        length: Gives the tokens of a chat.
    """
    if length(conversation) <= longest:
        return [conversation]
    system = conversation.messages[:1] if conversation.messages[0].role == "system" else ()
    pieces, held = list[Conversation](), tuple[Message, ...]()
    for exchange in _exchanges(conversation.messages[len(system) :]):
        wider = replace(conversation, messages=(*system, *held, *exchange))
        if held and length(wider) > longest:
            pieces.append(replace(conversation, messages=(*system, *held)))
            held = exchange
        else:
            held = (*held, *exchange)
    pieces.append(replace(conversation, messages=(*system, *held)))
    return [piece for piece in pieces if any(message.role == "assistant" for message in piece.messages)]


def _exchanges(messages: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Turns from one question of a person to before the next that follows a reply."""
    found = list[list[Message]]()
    for index, message in enumerate(messages):
        begins = message.role == "user" and index and messages[index - 1].role == "assistant"
        if begins or not found:
            found.append([])
        found[-1].append(message)
    return [tuple(exchange) for exchange in found]
