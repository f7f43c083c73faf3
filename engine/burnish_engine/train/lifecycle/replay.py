"""Rows that the base model writes before training, and that are learned among the others so that it forgets less.

The base continues openings of the general text that comes with Burnish, at temperature 1: what it writes are samples of
its own distribution, whose cross entropy is least for the model as it was (generative replay, Shin et al. 2017; as text
of the language model itself Sun et al. 2020, "LAMOL"). The openings themselves are not learned.

Rows follow from model, seed and count alone. They are kept beside the tokenized rows for the next run, and in the run's
folder, so that a resumed run learns the same ones.
"""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from burnish_engine.contract.errors import DoesNotFitError
from burnish_engine.contract.files import make_private, read_plain, write_atomic
from burnish_engine.contract.paths import user_cache_dir
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import REPLAY_TOKENS
from burnish_engine.data.prepare import PreparedDataset
from burnish_engine.data.report.describe import dataset_hash
from burnish_engine.data.tokens.documents import JoinedDocuments
from burnish_engine.data.tokens.general_text import general_passages
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.models.checkpoint.source import ModelSource
from burnish_engine.models.device.device import choose_device, choose_precision, is_out_of_memory
from burnish_engine.models.generation.generate import generate_replies, reply_groups
from burnish_engine.models.generation.sampling import GeneratedReply, Sampling

_STREAM = 2**32 - 3  # keeps the random numbers of the openings apart from those of epochs, split and mix
_SHORTEST_OPENING = 4  # tokens
_LAYOUT = 1  # part of the key; raise it when what is written changes


def with_replay(
    data: PreparedDataset,
    recipe: Recipe,
    source: ModelSource,
    tokenizer: Any,
    *,
    kept: Path,
    progress: Callable[[int, int], object],
) -> PreparedDataset:
    """Mix rows that the base writes into a dataset's training rows; without `data.replay_share` it stays as it is.

    Args:
        data: tokenized rows.
        recipe: recipe of the run.
        source: files of the base model.
        tokenizer: tokenizer of the model.
        kept: file of the run folder that holds the rows; written where it is missing.
        progress: function that receives the number of rows that are written, and of all.

    Raises:
        DoesNotFitError: The base does not fit the memory.
        NoSpaceError: The rows cannot be written.
    """
    count = recipe.data.replay_rows(len(data.train))
    if not count:
        return data
    cached = user_cache_dir() / "replay" / f"{_key(recipe, source, count)}.jsonl"
    lines = _read(kept) or _read(cached)
    if len(lines) != count:
        lines = _lines(recipe, source, tokenizer, count, progress)
        make_private(cached.parent)
        write_atomic(cached, _text(lines))
    if not kept.exists():
        write_atomic(kept, _text(lines))
    train = JoinedDocuments(data.train, [_document(line, row, kept.name) for row, line in enumerate(lines, start=1)])
    return replace(data, train=train, dataset_hash=dataset_hash(train, data.validation))


def _lines(
    recipe: Recipe, source: ModelSource, tokenizer: Any, count: int, progress: Callable[[int, int], object]
) -> list[dict[str, Any]]:
    """Let the base continue openings; return the opening's length, the ids and the text of each row."""
    openings = _openings(recipe, tokenizer, count)
    try:
        made = _continued(recipe, source, tokenizer, openings, progress)
    except BaseException as error:
        if not is_out_of_memory(error):
            raise
        raise DoesNotFitError(
            f"The base {source.name} does not fit the memory to write rows of its own (data.replay_share).",
            'Set data.replay_share = 0, or model.quantize = "nf4".',
        ) from error
    finally:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return [
        {"opening": len(opening), "ids": [*opening, *ids], "text": tokenizer.decode([*opening, *ids])}
        for opening, reply in zip(openings, made, strict=True)
        for ids in [[*reply.ids, *([] if reply.end is None else [reply.end])]]
    ]


def _openings(recipe: Recipe, tokenizer: Any, count: int) -> list[list[int]]:
    """Return the beginnings of passages, in turn, each cut at another place within the passage's first half."""
    passages, longest = general_passages(tokenizer), min(REPLAY_TOKENS, recipe.data.max_length) // 2
    found = []
    for number in range(count):
        passage = passages[number % len(passages)]
        most = max(min(len(passage) // 2, longest), _SHORTEST_OPENING)
        random = np.random.RandomState([recipe.train.seed, _STREAM, number])
        found.append(passage.input_ids[: random.randint(_SHORTEST_OPENING, most + 1)].tolist())
    return found


def _continued(
    recipe: Recipe,
    source: ModelSource,
    tokenizer: Any,
    openings: Sequence[Sequence[int]],
    progress: Callable[[int, int], object],
) -> list[GeneratedReply]:
    from burnish_engine.models.generation.generate import as_text_generator
    from burnish_engine.models.generation.load_fast import load_for_generation
    from burnish_engine.models.transformers_path.plain import load_base

    device = choose_device(recipe.devices)
    precision = choose_precision(recipe.train.precision, device)
    in_nf4 = device.type == "cuda" and recipe.model.quantize == "nf4"
    fast, _ = load_for_generation(source, None, precision, device, nf4=in_nf4)
    model = as_text_generator(fast or load_base(source, precision, device))
    longest = min(REPLAY_TOKENS, recipe.data.max_length)
    found = dict[int, GeneratedReply]()
    lengths = [len(opening) for opening in openings]
    progress(0, len(openings))
    for group in reply_groups(lengths, longest, recipe.train.micro_batch_tokens, paged=model.is_paged):
        samplings = [
            Sampling(longest - lengths[row], 1.0, seed=_seed(recipe.train.seed, row))  # as likely as the base has it
            for row in group
        ]
        made = generate_replies(model, tokenizer, [openings[row] for row in group], longest, samplings=samplings)
        found.update(zip(group, made, strict=True))
        progress(len(found), len(openings))
    return [found[row] for row in range(len(openings))]


def _seed(seed: int, row: int) -> int:
    return int(np.random.SeedSequence([seed, _STREAM, row]).generate_state(1)[0])


def _document(line: dict[str, Any], row: int, file: str) -> Document:
    ids = np.array(line["ids"], dtype=np.int32)
    return Document(ids, np.arange(len(ids)) >= max(line["opening"], 1), row, file)


def _key(recipe: Recipe, source: ModelSource, count: int) -> str:
    """Return what the rows follow from, as a hash: model files, settings, and their number."""
    files = sorted(file for file in source.folder.iterdir() if file.suffix in (".json", ".safetensors"))
    stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    train, length = recipe.train, recipe.data.max_length
    settings = [train.seed, train.precision, train.micro_batch_tokens, length, recipe.model.quantize]
    text = json.dumps([_LAYOUT, REPLAY_TOKENS, count, recipe.devices.kind, settings, str(source.folder), stats])
    return hashlib.sha256(text.encode()).hexdigest()[:40]


def _text(lines: Sequence[dict[str, Any]]) -> str:
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def _read(file: Path) -> list[dict[str, Any]]:
    """Read rows that were kept; none where the file is missing or damaged."""
    try:
        lines = [json.loads(line) for line in read_plain(file).splitlines()]
        return [line for line in lines if 0 < line["opening"] < len(line["ids"])]
    except (OSError, ValueError, KeyError, TypeError):
        return []
