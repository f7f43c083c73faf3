"""A row as one piece a token, so that a person sees where tokens begin and which of them are learned."""

from __future__ import annotations

from typing import Any

from burnish_engine.data.describe import EXAMPLE_TOKENS
from burnish_engine.data.tokenize import Document

_LOST = "\ufffd"
_LEAST_CONTEXT = 4
"""Tokens decoded before a piece: alone it would lose its leading space in some tokenizers."""


def token_pieces(document: Document, tokenizer: Any) -> list[tuple[str, bool]]:
    """(text, is it learned) of each token. Tokens that are a part of a character join those that make it whole.

    Args:
        document: The row; long ones are shown up to `EXAMPLE_TOKENS`.
        tokenizer: Decodes ids.
    """

    def decode(start: int, end: int) -> str:
        text: str = tokenizer.decode(ids[start:end], skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    shown = document.cut(EXAMPLE_TOKENS)
    ids, learned = shown.input_ids.tolist(), shown.learned.tolist()
    pieces: list[tuple[str, bool]] = []
    start = 0
    for end in range(1, len(ids) + 1):
        if end < len(ids) and learned[end] == learned[start] and decode(start, end).endswith(_LOST):
            continue  # in the middle of a character
        context = max(0, start - _LEAST_CONTEXT)
        before, upto = decode(context, start), decode(context, end)
        text = upto[len(before) :] if upto.startswith(before) else decode(start, end)
        pieces.append((text, bool(learned[start])))
        start = end
    return [*pieces, ("...", False)] if shown is not document else pieces
