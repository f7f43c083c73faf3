"""Finds where the tokens of a byte-level vocabulary lie in a text by their lengths alone.

A byte-level token has a letter for each of its bytes, and the tokens of a text lie one after another in it. So the
tokenizer need not keep track of characters, which takes a fifth of its time.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_LOSSLESS = {"Split", "Digits", "ByteLevel"}  # pre-tokenizers that keep each byte, checked for each text all the same


class PlacedTokens(NamedTuple):
    """The tokens of several texts, one text's after another's. T tokens.

    Attributes:
        ids: [T] token ids.
        counts: number of tokens of each text.
        offsets: [T, 2] first and one past the last character of each token in its text.
    """

    ids: npt.NDArray[np.int32]
    counts: list[int]
    offsets: npt.NDArray[np.int64]


class ByteTokens:
    """The lengths of a byte-level vocabulary's tokens.

    Args:
        backend: `tokenizers.Tokenizer` for which `is_lossless` holds.
    """

    def __init__(self, backend: Any) -> None:
        added = {index: token.content for index, token in backend.get_added_tokens_decoder().items()}
        known = backend.get_vocab(with_added_tokens=False)
        self._backend = backend
        self._lengths = np.zeros(max([*known.values(), *added], default=0) + 1, dtype=np.int64)
        self._lengths[list(known.values())] = list(map(len, known))
        for index, content in added.items():
            self._lengths[index] = len(content.encode("utf-8", "replace"))
        self._normalizes = backend.normalizer is not None

    @staticmethod
    def is_lossless(backend: Any) -> bool:
        """Whether a tokenizer's tokens are the bytes of its text, put in the composed form (NFC) at most."""
        if type(backend.model).__name__ != "BPE" or backend.pre_tokenizer is None:
            return False
        if backend.normalizer is not None and type(backend.normalizer).__name__ != "NFC":
            return False
        state = json.loads(backend.pre_tokenizer.__getstate__())
        steps = state["pretokenizers"] if state["type"] == "Sequence" else [state]
        kinds = [step["type"] for step in steps]
        spaced = any(step.get("add_prefix_space") for step in steps)
        swallows = any(token.lstrip or token.rstrip for token in backend.get_added_tokens_decoder().values())
        return "ByteLevel" in kinds and set(kinds) <= _LOSSLESS and not spaced and not swallows

    def place(self, texts: Sequence[str]) -> PlacedTokens | None:
        """Tokenize texts; None where the tokens are not the bytes of a text."""
        whole = "".join(texts)
        if self._normalizes and not (whole.isascii() or all(unicodedata.is_normalized("NFC", text) for text in texts)):
            return None
        found = self._backend.encode_batch_fast(texts, add_special_tokens=False)
        counts = [len(encoding) for encoding in found]
        ids = np.fromiter(chain.from_iterable(encoding.ids for encoding in found), np.int32, sum(counts))
        lengths = self._lengths[ids]
        ends = np.cumsum(lengths, dtype=np.int64)
        raw = np.frombuffer(whole.encode(), dtype=np.uint8)
        sizes = list(map(len, texts)) if len(raw) == len(whole) else [len(text.encode()) for text in texts]
        last = np.cumsum(counts, dtype=np.int64)
        if not np.array_equal(np.concatenate([[0], ends])[last], np.cumsum(sizes)):
            return None
        offsets = np.stack([ends - lengths, ends], axis=1)
        if len(raw) != len(whole):
            char_of = np.cumsum((raw & 0xC0) != 0x80) - 1  # a character's further bytes begin with the bits 10
            offsets[:, 0], offsets[:, 1] = char_of[offsets[:, 0]], char_of[offsets[:, 1] - 1] + 1
        begins = np.cumsum([0, *map(len, texts)])[:-1]
        return PlacedTokens(ids, counts, offsets - np.repeat(begins, counts)[:, None])
