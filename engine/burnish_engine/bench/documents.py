"""Documents for measurements of speed: lengths as in instruction data, packed, every token supervised."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from burnish_engine.contract.errors import UsageError
from burnish_engine.data.tokens.pack import EpochPlan, epoch_batches
from burnish_engine.data.tokens.tokenize import Document

MEDIAN_LOG, SIGMA_LOG = 5.2, 0.9
"""Mean and standard deviation of the natural logarithm of a length: the median is 181 tokens."""
SHORTEST, LONGEST = 16, 2048
_PREFERENCES = 20_000
FIRST_ID, LAST_ID = 10, 30_000
"""Range of token ids: past the special tokens, within every vocabulary."""


def packs(tokens: int, count: int = 20_000, *, length: int = 0, step: int = 1) -> EpochPlan:
    """Pack random documents, always the same ones, into micro-batches of at most `tokens` tokens.

    Args:
        tokens: budget of a micro-batch in tokens.
        count: number of documents in all.
        length: length of every document in tokens; 0: lengths are drawn.
        step: micro-batches of a step; those of like cost come into the same one.
    """
    random = np.random.default_rng(0)
    longest = min(LONGEST, tokens)
    lengths = random.lognormal(MEDIAN_LOG, SIGMA_LOG, size=count).astype(int).clip(min(SHORTEST, longest), longest)
    if length:
        lengths[:] = length
    ids = [random.integers(FIRST_ID, LAST_ID, size=int(length)).astype(np.int32) for length in lengths]
    documents = [Document(row, np.ones(len(row), dtype=bool), index, "made up") for index, row in enumerate(ids)]
    return epoch_batches(documents, tokens, pack=True, seed=0, epoch=0, step=step)


def preference_documents(tokens: int, *, pairs: bool) -> list[Document]:
    """Make random preferences, always the same ones: rows with lengths as in `packs`, of which a quarter is the prompt.

    Args:
        tokens: budget of a micro-batch in tokens.
        pairs: whether each is a pair of rows with the same prompt; else a row whose reply is good or bad by turns.
    """
    random = np.random.default_rng(0)
    each = 2 if pairs else 1
    longest = min(LONGEST, tokens // each)
    drawn = random.lognormal(MEDIAN_LOG, SIGMA_LOG, size=(_PREFERENCES, each)).astype(int)
    documents = []
    for index, lengths in enumerate(drawn.clip(min(SHORTEST, longest), longest).tolist()):
        prompt = random.integers(FIRST_ID, LAST_ID, size=max(min(lengths) // 4, 1))
        replies = [random.integers(FIRST_ID, LAST_ID, size=length - len(prompt)) for length in lengths]
        ids = np.concatenate([part for reply in replies for part in (prompt, reply)]).astype(np.int32)
        learned = np.concatenate([np.arange(length) >= len(prompt) for length in lengths])
        second = lengths[0] if pairs else 0
        documents.append(Document(ids, learned, index, "made up", False, second, bool(pairs or index % 2)))
    return documents


def recorded_packs(file: Path, tokens: int, count: int, *, vocabulary: int) -> EpochPlan:
    """Read the micro-batches that another program trained on, so that both are measured on the same ones.

    Args:
        file: npz with `ids` of all documents one after another, `lengths` of the documents, and `documents`, the number
            of documents in each pass.
        tokens: budget of a micro-batch in tokens.
        count: number of micro-batches wanted; the recorded ones are repeated.
        vocabulary: size of the vocabulary; token ids are below it.

    Raises:
        UsageError: The file has another content, a pass exceeds the budget, or an id the vocabulary.
    """
    try:
        loaded = np.load(file, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise ValueError("it is one array, not an archive of three")
        with loaded as found:
            ids, lengths, per_pass = (found[name].astype(np.int64) for name in ("ids", "lengths", "documents"))
        if any(array.ndim != 1 for array in (ids, lengths, per_pass)):
            raise ValueError("its ids, lengths and documents are not plain lists")
        if lengths.sum() != len(ids) or per_pass.sum() != len(lengths) or min(lengths.min(), per_pass.min()) < 1:
            raise ValueError("its ids, lengths and documents do not belong together")
        if ids.min() < 0 or ids.max() >= vocabulary:
            raise ValueError(f"it has the token {ids.max() if ids.min() >= 0 else ids.min()} of {vocabulary:,}")
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as problem:
        text = f"{file} holds no passes that could be trained on here: {problem}."
        raise UsageError(text, "Give one that `python tests/bench peer_step` wrote.") from problem
    split, ends = np.split(ids, np.cumsum(lengths)[:-1]), np.cumsum(per_pass)
    groups = [tuple(range(end - size, end)) for end, size in zip(ends.tolist(), per_pass.tolist(), strict=True)]
    most = max(int(lengths[list(group)].sum()) for group in groups)
    if most > tokens:
        raise UsageError(f"{file} has passes of up to {most:,} tokens.", f"Give --tokens {most} or more.")
    documents = [
        Document(row.astype(np.int32), np.ones(len(row), dtype=bool), index, "recorded")
        for index, row in enumerate(split)
    ]
    return EpochPlan(documents, (groups * -(-count // len(groups)))[:count], tokens)
