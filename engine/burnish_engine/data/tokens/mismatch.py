"""Pairs prompts with the replies to other prompts, as learning from labels needs them to estimate a divergence."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import overload

import numpy as np

from burnish_engine.data.tokens.shard import Ints
from burnish_engine.data.tokens.tokenize import Document


class MismatchedDocuments(Sequence[Document]):
    """Joins the prompt of each document with the reply of the nearest earlier document that has another prompt.

    The first document takes the reply of the last one. A prompt ends where the supervised tokens begin. TRL takes the
    reply before within each batch of the file in its order; here it is the one before within all documents, so that how
    they fall into batches changes nothing and the reference has to read each of them only once. Both are the same where
    a batch has all rows and neighbors have different prompts.

    Args:
        documents: documents of one sequence each.
        longest: most tokens of a document; longer ones are cut, as TRL does.

    Attributes:
        lengths: [n] tokens of each document.
    """

    def __init__(self, documents: Sequence[Document], longest: int) -> None:
        self._documents, self._longest = documents, longest
        prompts, replies, keys = list[int](), list[int](), list[bytes]()
        for number in range(len(documents)):
            document = documents[number]
            prompt = int(document.supervised.argmax())
            prompts.append(prompt)
            replies.append(len(document) - prompt)
            keys.append(hashlib.blake2b(document.input_ids[:prompt].tobytes(), digest_size=16).digest())
        self._prompts = prompts
        self._neighbors = _earlier_with_another_key(keys)
        wanted = np.array(prompts, dtype=np.int64) + np.array(replies, dtype=np.int64)[self._neighbors]
        self.lengths: Ints = np.minimum(wanted, longest)

    def __len__(self) -> int:
        return len(self._prompts)

    @overload
    def __getitem__(self, index: int) -> Document: ...
    @overload
    def __getitem__(self, index: slice) -> list[Document]: ...
    def __getitem__(self, index: int | slice) -> Document | list[Document]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        own, neighbor = self._documents[index], int(self._neighbors[index])
        other, prompt, begins = self._documents[neighbor], self._prompts[index], self._prompts[neighbor]
        ids = np.concatenate([own.input_ids[:prompt], other.input_ids[begins:]])
        supervised = np.concatenate([own.supervised[:prompt], other.supervised[begins:]])
        return Document(ids, supervised, own.row, own.file).cut(self._longest)


def _earlier_with_another_key(keys: Sequence[bytes]) -> Ints:
    """Find [n] the nearest earlier key that differs, around the beginning; where none does, the one before."""
    count = len(keys)
    found = np.arange(-1, count - 1, dtype=np.int64) % max(count, 1)
    if len(set(keys)) < 2:
        return found
    for number in range(-count, count):  # twice, so that the first ones know what stands before them
        before = (number - 1) % count
        if keys[before] == keys[number % count]:
            found[number % count] = found[before]
    return found
