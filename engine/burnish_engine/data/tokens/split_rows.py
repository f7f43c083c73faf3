"""Splits long rows into several pieces, as `data.overlong` says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from burnish_engine.data.rows.conversation import Conversation, Message
from burnish_engine.data.tokens.tokenize import Encoded, Ids

_BREAK_SHARE = 4
"""Divisor of a piece's length: the piece may end in its last quarter, at the end of a line, a sentence or a word."""
_LINE, _SENTENCE, _WORD, _ANYWHERE = 3, 2, 1, 0
_SENTENCE_ENDS, _WIDE_SENTENCE_ENDS = ".!?…", "。！？"


def split_text(text: str, tokens: Encoded, longest: int, bos: int | None) -> Iterator[tuple[Encoded, tuple[int, int]]]:
    """Split a plain text into consecutive pieces, so that no token is lost.

    A piece ends with a line that ends in the piece's last quarter, else with a sentence, else with a word. The first
    token of a later piece is not supervised, since nothing predicts it.

    Args:
        text: text to split.
        tokens: tokens of the text.
        longest: most tokens of a piece; 0 makes one piece.
        bos: beginning-of-sequence id that later pieces begin with too; None adds none.

    Yields:
        Tokens of a piece, and its first character and one past its last.
    """
    at, total = 0, len(tokens.ids)
    while at < total or not at:
        room = longest - (bos is not None and at > 0)
        stop = total if not longest or total - at <= room else _piece_end(text, tokens.starts, at, at + room)
        piece = tokens.part(at, stop)
        begin = int(piece.starts[0]) if at else 0
        piece.supervised[:1] = False
        if at and bos is not None:
            piece = Encoded.joined([Encoded.of(bos, supervised=False, start=begin), piece])
        yield piece, (begin, int(tokens.starts[stop]) if stop < total else len(text))
        if stop >= total:
            return
        at = stop


def _piece_end(text: str, starts: Ids, begin: int, end: int) -> int:
    """Find the token before which a piece ends.

    Args:
        text: text that is split.
        starts: first character of each token.
        begin: first token of the piece.
        end: last token before which the piece can end.
    """
    end -= end == len(starts) - 1  # a last piece of one token would have nothing to learn
    best, rank = end, -1
    for token in range(end, end - (end - begin) // _BREAK_SHARE, -1):
        if starts[token] > starts[token - 1] and (here := _rank(text, int(starts[token]))) > rank:
            best, rank = token, here
            if rank == _LINE:
                break
    return best


def _rank(text: str, at: int) -> int:
    """Rank the break before a character: end of a line, of a sentence, of a word, or none."""
    last, following = text[at - 1], text[at : at + 1]
    if last == "\n":
        return _LINE
    ends = (last in _SENTENCE_ENDS and following.isspace()) or (
        last.isspace() and text[at - 2 : at - 1] in _SENTENCE_ENDS
    )
    if last in _WIDE_SENTENCE_ENDS or (ends and at > 1):
        return _SENTENCE
    return _WORD if last.isspace() or following.isspace() else _ANYWHERE


def split_chat(
    conversation: Conversation, longest: int, length: Callable[[Conversation], int]
) -> Sequence[Conversation]:
    """Split a chat into pieces of whole exchanges, as many as fit, each with the system message.

    An exchange that does not fit alone is a piece of its own, and is cut later.

    Args:
        conversation: chat to split.
        longest: most tokens of a piece.
        length: function from a chat to its number of tokens.
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
    """Group the turns into exchanges; a user's turn that follows a reply begins a new one."""
    found = list[list[Message]]()
    for index, message in enumerate(messages):
        begins = message.role == "user" and index and messages[index - 1].role == "assistant"
        if begins or not found:
            found.append([])
        found[-1].append(message)
    return [tuple(exchange) for exchange in found]
