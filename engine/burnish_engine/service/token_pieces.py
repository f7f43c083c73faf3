"""Split a row into one piece per token, so that a person sees the token borders and the supervised tokens."""

from __future__ import annotations

from typing import Any

from burnish_engine.data.report.describe import EXAMPLE_TOKENS
from burnish_engine.data.tokens.tokenize import Document

_LOST = "\ufffd"
_LEAST_CONTEXT = 4
"""Number of tokens decoded before a piece: alone it would lose its leading space in some tokenizers."""


def token_pieces(document: Document, tokenizer: Any) -> list[tuple[str, bool]]:
    """Return (text, whether it is supervised) of each token, joining tokens that are parts of one character.

    Args:
        document: row to show, up to `EXAMPLE_TOKENS` tokens.
        tokenizer: tokenizer that decodes the ids.
    """

    def decode(start: int, end: int) -> str:
        text: str = tokenizer.decode(ids[start:end], skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text

    shown = document.cut(EXAMPLE_TOKENS)
    ids, supervised = shown.input_ids.tolist(), shown.supervised.tolist()
    pieces: list[tuple[str, bool]] = []
    start = 0
    for end in range(1, len(ids) + 1):
        if end < len(ids) and supervised[end] == supervised[start] and decode(start, end).endswith(_LOST):
            continue  # in the middle of a character
        context = max(0, start - _LEAST_CONTEXT)
        before, upto = decode(context, start), decode(context, end)
        text = upto[len(before) :] if upto.startswith(before) else decode(start, end)
        pieces.append((text, bool(supervised[start])))
        start = end
    return [*pieces, ("...", False)] if shown is not document else pieces
