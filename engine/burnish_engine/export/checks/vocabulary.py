"""Compare the tokenizer of a file, entry by entry, with the model's, including entries that no probe text touches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from burnish_engine.contract.errors import BurnishError
from burnish_engine.export.gguf.pre_tokenizer import PRE_KEY, choose_pre_tokenizer
from burnish_engine.export.gguf.vocabulary import Vocabulary
from burnish_engine.models.checkpoint.gguf_file.header import GgufHeader, read_header

_KEYS: Final = "tokenizer.ggml."
_ARRAYS: Final = {"tokens": "token", "token_type": "type of token", "merges": "merge", "scores": "score of token"}
"""Key of each array to the name of one entry."""
_ENDS: Final = ("bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id")
"""Special tokens that a file may not name where the model has none: they begin or end texts."""
_TEMPLATE: Final = "tokenizer.chat_template"
_MOST_NAMED: Final = 3

VOCABULARY_ARRAYS: Final = frozenset(_KEYS + key for key in _ARRAYS)
"""Arrays that `read_header` must read completely for `check_vocabulary`."""


def check_vocabulary(header: GgufHeader, wanted: Vocabulary) -> list[str]:
    """Compare tokens, types, merges, scores, special tokens and chat template.

    Args:
        header: header of the file, read with `VOCABULARY_ARRAYS`.
        wanted: vocabulary of the model.

    Returns:
        Findings as sentences; empty where nothing is wrong.
    """
    found = header.metadata
    problems = []
    if found.get(_KEYS + "model") != wanted.model:
        problems.append(
            f"Its vocabulary is of the kind {found.get(_KEYS + 'model')!r}; the model's is {wanted.model!r}."
        )
    entries: dict[str, Sequence[Any]] = {
        "tokens": wanted.tokens,
        "token_type": wanted.types,
        "merges": wanted.merges,
        "scores": np.asarray(wanted.scores, dtype=np.float32).tolist(),
    }
    for key, right in entries.items():
        held = found.get(_KEYS + key)
        problems += _compare(_ARRAYS[key], held if isinstance(held, tuple) else (), right)
    problems += _special(header, wanted)
    if found.get(_TEMPLATE, "") != wanted.chat_template:
        problems.append(_template_text(str(found.get(_TEMPLATE, "")), wanted.chat_template))
    return problems


def _compare(what: str, found: Sequence[Any], wanted: Sequence[Any]) -> list[str]:
    if tuple(found) == tuple(wanted):
        return []
    if len(found) != len(wanted):
        return [f"It has {len(found)} entries of the kind {what!r}; the model has {len(wanted)}."]
    places = [place for place, pair in enumerate(zip(found, wanted, strict=True)) if pair[0] != pair[1]]
    named = ", ".join(f"{place} is {found[place]!r}, not {wanted[place]!r}" for place in places[:_MOST_NAMED])
    return [f"{len(places)} of {len(wanted)} entries of the kind {what!r} are not the model's: {named}."]


def _special(header: GgufHeader, wanted: Vocabulary) -> list[str]:
    found = header.metadata
    flags = {"add_bos_token": wanted.add_bos, "add_eos_token": False, "add_space_prefix": wanted.add_space_prefix}
    pairs: list[tuple[str, Any, Any]] = [(key, found.get(_KEYS + key), value) for key, value in wanted.special.items()]
    pairs += [(key, found[_KEYS + key], None) for key in _ENDS if key not in wanted.special and _KEYS + key in found]
    # llama.cpp: no EOS after a text unless the file says so; the prefix matters for SentencePiece only.
    usual = {"add_eos_token": False, "add_space_prefix": wanted.add_space_prefix if wanted.model == "gpt2" else True}
    pairs += [(key, found.get(_KEYS + key, usual.get(key)), value) for key, value in flags.items()]
    return [f"Its {key} is {one}; the model's is {other}." for key, one, other in pairs if one != other]


def _template_text(found: str, wanted: str) -> str:
    if not found or not wanted:
        return (
            f"Its chat template is missing ({len(wanted)} characters)." if wanted else "The model has no chat template."
        )
    place = next(
        (place for place, pair in enumerate(zip(found, wanted, strict=False)) if pair[0] != pair[1]),
        min(len(found), len(wanted)),
    )
    return (
        f"Its chat template is not the model's: from character {place} on it reads {found[place : place + 30]!r} "
        f"instead of {wanted[place : place + 30]!r}."
    )


def wrong_pre_tokenizer(path: Path, expected: Sequence[tuple[str, list[int]]]) -> list[str]:
    """Name the right pre-tokenizer in a sentence where the file has another; empty where none fits.

    Args:
        path: The file.
        expected: texts with the token ids of the model's tokenizer, some of which the file splits differently.
    """
    header = read_header(path)
    if header.metadata.get(_KEYS + "model") != "gpt2":
        return []
    found = str(header.metadata.get(PRE_KEY, ""))
    try:
        right = choose_pre_tokenizer(path, expected, ())
    except BurnishError:
        return []  # no pre-tokenizer fits: the vocabulary itself differs
    return [f"Its pre-tokenizer is {found!r}; {right!r} splits text as the model does."] if right != found else []
