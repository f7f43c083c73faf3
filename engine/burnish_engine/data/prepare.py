"""One call from a recipe's data section to documents for training and held-out scoring, with everything found out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from burnish_engine.contract.errors import DataError, UsageError
from burnish_engine.contract.facts import DatasetFacts
from burnish_engine.contract.recipe import Recipe
from burnish_engine.contract.recipe_data import DataSection
from burnish_engine.data.collect import Collector, Progress
from burnish_engine.data.describe import dataset_hash, example_pieces, length_to_keep
from burnish_engine.data.documents import Documents, Rows
from burnish_engine.data.facts import Seen, dataset_facts
from burnish_engine.data.mix import split, split_ends, weighted
from burnish_engine.data.notes import Notes
from burnish_engine.data.pack import DATA_ORDER
from burnish_engine.data.select import NOTHING_LEFT, Selection
from burnish_engine.data.source import Source
from burnish_engine.data.template import ChatTemplate, chat_template
from burnish_engine.data.template_checks import missing_tokens, template_facts
from burnish_engine.data.tokenize import Document, TokenizerParts
from burnish_engine.data.warn import template_warnings
from burnish_engine.data.work import Instructions, TemplateParts

MOST_CHATS = 1000
"""Conversations of held-out rows that are kept as such."""
LOOK_WHOLE_BYTES = 16 * 2**20
"""Datasets larger than this are looked at by samples."""
SAMPLE_BYTES = 4 * 2**20
"""Size of those samples, roughly: some thousand rows."""

_NEAR_BYTES = 512 * 2**20  # near-duplicates are looked for where that takes no more memory, unless they are to go


@dataclass(frozen=True, eq=False)
class Prepared:
    """A dataset ready for training.

    Attributes:
        train: Documents to train on, in the order of the files; made when they are asked for.
        validation: Held-out documents.
        validation_conversations: The chats of the first held-out rows as lists of {role, content}, in the same order;
            rows of plain text have none and are left out.
        facts: What to show people.
        warnings: What they should know, in sentences. Also in `facts`.
        dataset_hash: SHA-256 over all token ids and learned flags; equal means the same training data. Empty where only
            samples were looked at.
        template: The chat template that was used.
        end_token_ids: Tokens that end a reply: the end-of-sequence token, and those the template uses.
    """

    train: Sequence[Document]
    validation: Sequence[Document]
    validation_conversations: list[list[dict[str, Any]]]
    facts: DatasetFacts
    warnings: list[str]
    dataset_hash: str
    template: ChatTemplate
    end_token_ids: tuple[int, ...]


def prepare(recipe: Recipe, tokenizer: Any, *, progress: Progress | None = None, order: int = DATA_ORDER) -> Prepared:
    """Read, render, tokenize and split a recipe's data.

    Args:
        recipe: Paths in it are absolute, or relative to the working folder.
        tokenizer: A fast transformers tokenizer.
        progress: Told how far it got. What it raises ends the work.
        order: version of the data order; a run that goes on has the one that it began with.

    Raises:
        UsageError: The recipe names no data files.
        DataError: A file cannot be read or understood, no row can be used, or nothing would be learned.
        NoSpaceError: What a large dataset became could not be written for lack of disk space.
        SetupError: A process that tokenized died, or a hub dataset is not here.
    """
    return _prepare(recipe, tokenizer, progress, look=False, order=order)


def look(recipe: Recipe, tokenizer: Any, *, whole: bool = False, progress: Progress | None = None) -> Prepared:
    """As `prepare`, for people to see what is in the data: large datasets by samples, and preferences too.

    The counts in the facts are then estimates for the whole (`facts.report.sampled_rows` says from how many rows), and
    the documents are those of the samples.

    Args:
        recipe: As `prepare` takes it.
        tokenizer: A fast transformers tokenizer.
        whole: Look at every row, however many there are.
        progress: Told how far it got.

    Raises:
        BurnishError: As `prepare` does.
    """
    return _prepare(recipe, tokenizer, progress, look=True, whole=whole)


def _prepare(
    recipe: Recipe,
    tokenizer: Any,
    progress: Progress | None,
    *,
    look: bool,
    whole: bool = True,
    order: int = DATA_ORDER,
) -> Prepared:
    data = recipe.data
    if not data.files:
        raise UsageError("The recipe names no training files.", "Set data.files.")
    template = chat_template(tokenizer, chosen=data.template)
    parts = TokenizerParts.of(tokenizer)
    checked = template_facts(template, parts.eos_token, parts.added, chosen=data.template)  # ends here if it is hostile
    written = TemplateParts(template.source, template.special_tokens, template.today, template.file)
    instructions = Instructions(parts, written, data, order)
    sampling = (LOOK_WHOLE_BYTES, SAMPLE_BYTES) if look and not whole else None
    collector = Collector(data, instructions, progress, sampling=sampling, look=look)
    found = collector.collect(data.files)
    notes = Notes()
    notes.merge(found.notes)
    held = collector.collect(data.validation_files, first_source=len(found.sources))
    notes.merge(held.notes)
    sources = [*found.sources, *held.sources]
    rows = Rows([*found.shards, *held.shards], [source.part.name for source in sources], data.max_length)
    held_from = sum(map(len, found.shards))
    selection = Selection(rows, data, notes.dropped, order)
    selection.fit()
    if not selection.used[:held_from].any():
        raise _nothing_usable(data, rows, notes)
    if data.validation_files and not selection.used[held_from:].any():
        raise DataError(
            f"No row of the validation files can be used ({notes.dropped.in_words()}).",
            "Correct the rows, or remove data.validation_files.",
        )
    selection.compare(held_from, _NEAR_BYTES)
    usable = np.flatnonzero(selection.used)
    if data.validation_files:
        train, held_out = usable[usable < held_from], usable[usable >= held_from]
    else:
        groups = selection.groups(usable)
        ends = split_ends(groups, data.validation_share) if groups is not None and order > 1 else None
        chosen = ends or split(len(usable), data.validation_share, recipe.train.seed, groups)
        train, held_out = usable[chosen[0]], usable[chosen[1]]
    train = selection.leaks(train, held_out)
    if not len(train):
        raise DataError("Every training row is held out as well.", 'Set data.leaks = "keep", or hold out other rows.')
    entries = np.array([source.part.entry for source in sources])[rows.sources[train]]
    mixed = weighted(train, entries, data.weights, recipe.train.seed)
    if not len(mixed):
        raise DataError(f"data.weights ({data.weights}) leaves no training row of {len(train)}.", "Raise a weight.")
    selection.leave_out(np.setdiff1d(train, mixed), "left out by its file's weight (data.weights)")
    documents, validation = Documents(rows, mixed), Documents(rows, held_out)
    end_ids = _end_token_ids(tokenizer, notes)
    seen = Seen(
        sources=sources,
        left_out=found.left_out | held.left_out,
        notes=notes,
        rows=rows,
        selection=selection,
        template=checked if any(not source.layout.is_text for source in sources) else None,
        sampled=any(source.sample is not None for source in sources),
        warnings=template_warnings(
            template, tokenizer, notes, sources, missing=missing_tokens(data.template, parts.added), checked=checked
        ),
    )
    facts = dataset_facts(
        recipe, seen, documents, validation, end_ids=end_ids, example=example_pieces(documents[0], tokenizer)
    )
    return Prepared(
        train=documents,
        validation=validation,
        validation_conversations=_conversations(data, rows, sources, held_out),
        facts=facts,
        warnings=facts.warnings,
        dataset_hash="" if seen.sampled else dataset_hash(documents, validation),
        template=template,
        end_token_ids=end_ids,
    )


def _conversations(
    data: DataSection, rows: Rows, sources: Sequence[Source], held_out: Any
) -> list[list[dict[str, Any]]]:
    """The chats of the first held-out rows, read again."""
    first = held_out[:MOST_CHATS]
    of, at = rows.sources[first], rows.positions[first]
    chats = list[list[dict[str, Any]]]()
    for source in dict.fromkeys(of.tolist()):
        if sources[source].layout.is_text:
            continue
        positions = sorted(set(at[of == source].tolist()))
        found = sources[source].conversations(positions, data.system_prompt)
        chats.extend(chat.as_dicts() for chat in islice(found, MOST_CHATS))
    return chats


def _nothing_usable(data: DataSection, rows: Rows, notes: Notes) -> DataError:
    lengths = rows.whole_lengths
    if len(lengths) and lengths.min() > data.max_length and data.overlong == "drop":
        return DataError(
            f"All {len(lengths)} rows are longer than data.max_length ({data.max_length} tokens): the longest has "
            f"{lengths.max()} tokens, the median {np.median(lengths):.0f}.",
            f"A max_length of {length_to_keep(lengths, 0.95)} would keep 95 % of the rows; or set data.overlong = "
            '"truncate".',
        )
    cut_short = any(reason.startswith(NOTHING_LEFT) for reason in notes.dropped.counts)
    return DataError(
        f"None of the {notes.rows} rows can be used: {notes.dropped.in_words()}.",
        f"Raise data.max_length: 95 % of the rows have up to {length_to_keep(lengths, 0.95)} tokens."
        if cut_short
        else "Correct the rows, or the settings under [data].",
    )


def _end_token_ids(tokenizer: Any, notes: Notes) -> tuple[int, ...]:
    ids = {tokenizer.convert_tokens_to_ids(token) for token in notes.turn_ends}
    if tokenizer.eos_token_id is not None:
        ids.add(tokenizer.eos_token_id)
    return tuple(sorted(ids))
