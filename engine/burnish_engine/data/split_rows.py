"""Long rows in several pieces (`data.overlong`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from burnish_engine.data.conversation import Conversation, Message
from burnish_engine.data.tokenize import Encoded, Flags, Ids

_BREAK_SHARE = 4
"""A piece of a text may end up to this part of its length earlier, at the end of a line, a sentence or a word."""
_LINE, _SENTENCE, _WORD, _ANYWHERE = 3, 2, 1, 0
_SENTENCE_ENDS, _WIDE_SENTENCE_ENDS = ".!?…", "。！？"


def passages(text: str, tokens: Encoded, longest: int, bos: int | None) -> Iterator[tuple[Encoded, tuple[int, int]]]:
    """A plain text in pieces that follow one another, so that no token is lost.

    A piece ends at a line where one ends in its last quarter, else at a sentence, else at a word. The first token of a
    later piece is not learned, since nothing predicts it.

    Args:
        text: the text.
        tokens: its tokens.
        longest: tokens of a piece; 0: all in one.
        bos: the beginning-of-sequence id, which later pieces begin with too; None: there is none.

    Yields:
        The tokens of a piece, and its first character and one past its last.
    """
    at, total = 0, len(tokens.ids)
    while at < total or not at:
        room = longest - (bos is not None and at > 0)
        stop = total if not longest or total - at <= room else _piece_end(text, tokens.starts, at, at + room)
        piece = tokens.part(at, stop)
        begin = int(piece.starts[0]) if at else 0
        piece.learned[:1] = False
        if at and bos is not None:
            piece = Encoded.joined([Encoded.of(bos, learned=False, start=begin), piece])
        yield piece, (begin, int(tokens.starts[stop]) if stop < total else len(text))
        if stop >= total:
            return
        at = stop


def _piece_end(text: str, starts: Ids, begin: int, end: int) -> int:
    """The token before which a piece ends.

    Args:
        text: the text.
        starts: first character of each token.
        begin: first token of the piece.
        end: last token that it can end before.
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
    """What ends before a character: a line, a sentence, a word, or nothing."""
    last, following = text[at - 1], text[at : at + 1]
    if last == "\n":
        return _LINE
    ends = (last in _SENTENCE_ENDS and following.isspace()) or (
        last.isspace() and text[at - 2 : at - 1] in _SENTENCE_ENDS
    )
    if last in _WIDE_SENTENCE_ENDS or (ends and at > 1):
        return _SENTENCE
    return _WORD if last.isspace() or following.isspace() else _ANYWHERE


def windows(ids: Ids, learned: Flags, longest: int) -> Iterator[tuple[Ids, Flags]]:
    """A plain text's tokens in pieces of a length, as data order 1 has them.

    A piece's first token is not learned: nothing predicts it.

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
