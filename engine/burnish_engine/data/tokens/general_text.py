"""Tokenizes the general text that comes with Burnish: passages of many kinds, written by no model and for no task."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from burnish_engine.contract.paths import general_text_path
from burnish_engine.data.templates.spans import RenderedRow
from burnish_engine.data.tokens.tokenize import Document, Encoder, TokenizerParts


def general_passages(tokenizer: Any) -> list[Document]:
    """Tokenize all passages; every token but the first is a target.

    Args:
        tokenizer: fast transformers tokenizer.
    """
    path = general_text_path()
    encoder = Encoder(TokenizerParts.of(tokenizer))
    encoded = encoder.encode(list(_rendered(encoder.adds_bos)))
    return [Document(ids, supervised, number, path.name) for number, (ids, supervised) in enumerate(encoded, start=1)]


def _rendered(adds_bos: bool) -> Iterator[RenderedRow]:
    for line in general_text_path().read_text(encoding="utf-8").splitlines():
        text = json.loads(line)["text"]
        yield RenderedRow(text, ((0, len(text)),), add_bos=adds_bos)
