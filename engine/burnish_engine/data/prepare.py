"""Prepares a recipe's dataset: reads, renders, tokenizes and splits it into training and held-out documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from burnish_engine.contract.errors import DataError, UsageError
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.data.pipeline.collect import Progress, RowCollector
from burnish_engine.data.pipeline.row_pipeline import PipelineSpec, TemplateSource
from burnish_engine.data.pipeline.select import NOTHING_LEFT, Selection
from burnish_engine.data.report.describe import dataset_hash, example_pieces, length_to_keep
from burnish_engine.data.report.facts import PreparationRecord, dataset_facts
from burnish_engine.data.report.task_hint import task_fit, task_hint
from burnish_engine.data.report.template_warnings import template_warnings
from burnish_engine.data.rows.part_rows import RowSource
from burnish_engine.data.rows.row_log import RowLog
from burnish_engine.data.rows.shapes import PAIR_TOO_LONG
from burnish_engine.data.templates.template import ChatTemplate, chat_template
from burnish_engine.data.templates.template_checks import missing_tokens, template_facts
from burnish_engine.data.tokens.documents import DocumentSelection, ShardedDocuments
from burnish_engine.data.tokens.mix import mix_by_weight, split_row_ends, split_validation
from burnish_engine.data.tokens.tokenize import Document, TokenizerParts

MOST_CHATS = 1000
"""Most held-out conversations that are kept as text."""
INSPECT_WHOLE_BYTES = 16 * 2**20
"""Size from which `inspect_dataset` reads a sample of a dataset instead of all of it."""
SAMPLE_BYTES = 4 * 2**20
"""Approximate size of that sample: some thousand rows."""

_NEAR_BYTES = (
    512 * 2**20
)  # memory limit of the near-duplicate search; it does not hold where the recipe drops near-duplicates


@dataclass(frozen=True, eq=False)
class PreparedDataset:
    """A dataset ready for training.

    Attributes:
        train: documents to train on, in the order of the files; each is built when it is indexed.
        validation: held-out documents.
        validation_conversations: chats of the first held-out rows as lists of {role, content}, in the same order; rows
            of plain text have none and are left out.
        facts: figures, findings and an example for people.
        warnings: sentences about problems in the data; `facts` holds them too.
        dataset_hash: SHA-256 over all token ids and supervision flags; equal hashes mean equal training data. Empty
            where only a sample was read.
        template: chat template that rendered the rows.
        end_token_ids: tokens that end a reply: the end-of-sequence token, and those the template uses.
    """

    train: Sequence[Document]
    validation: Sequence[Document]
    validation_conversations: list[list[dict[str, Any]]]
    facts: DatasetFacts
    warnings: list[str]
    dataset_hash: str
    template: ChatTemplate
    end_token_ids: tuple[int, ...]


def prepare(recipe: Recipe, tokenizer: Any, *, progress: Progress | None = None) -> PreparedDataset:
    """Read, render, tokenize and split a recipe's data.

    Args:
        recipe: recipe whose paths are absolute, or relative to the working folder.
        tokenizer: fast transformers tokenizer.
        progress: callback for progress; an exception that it raises ends the work.

    Raises:
        UsageError: The recipe names no data files.
        DataError: A file cannot be read or understood, no row can be used, or nothing would be learned.
        NoSpaceError: The disk has no room for the tokenized rows of a large dataset.
        SetupError: A tokenizing process died, or a hub dataset is not on this machine.
    """
    return _prepare(recipe, tokenizer, progress, inspect_only=False)


def inspect_dataset(
    recipe: Recipe, tokenizer: Any, *, whole: bool = False, go_on: bool = False, progress: Progress | None = None
) -> PreparedDataset:
    """Prepare a dataset for inspection: a large one from a sample of its rows, and preference data too.

    For a sample, the counts in the facts are estimates for the whole dataset (`facts.report.sampled_rows` is the number
    of rows that they come from), and the documents are those of the sample.

    Args:
        recipe: recipe whose paths are absolute, or relative to the working folder.
        tokenizer: fast transformers tokenizer.
        whole: whether to read every row, however many there are.
        go_on: whether a training file with a problem is left out and told of in `facts.report.files`, unless every one
            has a problem. Not together with `whole`.
        progress: callback for progress; an exception that it raises ends the work.

    Raises:
        BurnishError: one of the errors of `prepare`.
    """
    return _prepare(recipe, tokenizer, progress, inspect_only=True, whole=whole, go_on=go_on)


def _prepare(
    recipe: Recipe,
    tokenizer: Any,
    progress: Progress | None,
    *,
    inspect_only: bool,
    whole: bool = True,
    go_on: bool = False,
) -> PreparedDataset:
    data = recipe.data
    if not data.files:
        raise UsageError("The recipe names no training files.", "Set data.files.")
    spec, template = pipeline_spec(recipe, tokenizer)
    parts, pairs = spec.tokenizer, spec.pairs
    checked = template_facts(
        template, parts.eos_token, parts.added, chosen=data.template
    )  # raises DataError where the template is hostile
    sampling = (INSPECT_WHOLE_BYTES, SAMPLE_BYTES) if inspect_only and not whole else None
    collector = RowCollector(data, spec, progress, sampling=sampling, inspect_only=inspect_only)
    found = collector.collect(data.files, go_on=go_on)
    log = RowLog()
    log.merge(found.log)
    held = collector.collect(data.validation_files, first_source=len(found.sources))
    log.merge(held.log)
    sources = [*found.sources, *held.sources]
    documents = ShardedDocuments(
        [*found.shards, *held.shards], [source.part.name for source in sources], data.max_length * (2 if pairs else 1)
    )
    held_from = sum(map(len, found.shards))
    selection = Selection(documents, data, log.dropped)
    selection.leave_out_unusable()
    if not selection.used[:held_from].any():
        raise _nothing_usable(data, documents, log)
    if data.validation_files and not selection.used[held_from:].any():
        raise DataError(
            f"No row of the validation files can be used ({log.dropped.summary()}).",
            "Correct the rows, or remove data.validation_files.",
        )
    selection.find_duplicates(held_from, _NEAR_BYTES)
    usable = np.flatnonzero(selection.used)
    if data.validation_files:
        train, held_out = usable[usable < held_from], usable[usable >= held_from]
    else:
        groups = selection.groups(usable)
        ends = split_row_ends(groups, data.validation_share) if groups is not None else None
        chosen = ends or split_validation(len(usable), data.validation_share, recipe.train.seed, groups)
        train, held_out = usable[chosen[0]], usable[chosen[1]]
    train = selection.without_leaks(train, held_out)
    if not len(train):
        raise DataError("Every training row is held out as well.", 'Set data.leaks = "keep", or hold out other rows.')
    entries = np.array([source.part.entry for source in sources])[documents.sources[train]]
    mixed = mix_by_weight(train, entries, data.weights, recipe.train.seed)
    if not len(mixed):
        raise DataError(f"data.weights ({data.weights}) leaves no training row of {len(train)}.", "Raise a weight.")
    selection.leave_out(np.setdiff1d(train, mixed), "left out by its file's weight (data.weights)")
    train_documents, validation = DocumentSelection(documents, mixed), DocumentSelection(documents, held_out)
    end_ids = _end_token_ids(tokenizer, log)
    record = PreparationRecord(
        sources=sources,
        left_out=found.left_out | held.left_out,
        log=log,
        documents=documents,
        selection=selection,
        template=checked if any(not source.layout.is_text for source in sources) else None,
        sampled=any(source.sample is not None for source in sources),
        files=found.files,
        pairs=recipe.preference.is_active,
        warnings=template_warnings(
            template, tokenizer, log, sources, missing=missing_tokens(data.template, parts.added), checked=checked
        ),
    )
    conversations = _conversations(data, documents, sources, held_out)
    facts = dataset_facts(
        recipe,
        record,
        train_documents,
        validation,
        end_ids=end_ids,
        example=example_pieces(train_documents[0], tokenizer),
        task=None if recipe.preference.is_active else task_hint(conversations, tokenizer),
        fit=task_fit(recipe, conversations, template, tokenizer),
    )
    return PreparedDataset(
        train=train_documents,
        validation=validation,
        validation_conversations=conversations,
        facts=facts,
        warnings=facts.warnings,
        dataset_hash="" if record.sampled else dataset_hash(train_documents, validation),
        template=template,
        end_token_ids=end_ids,
    )


def pipeline_spec(recipe: Recipe, tokenizer: Any) -> tuple[PipelineSpec, ChatTemplate]:
    """Return the settings that decide what becomes of a row, and the chat template among them.

    Args:
        recipe: recipe of which the data and preference sections are used.
        tokenizer: fast transformers tokenizer.

    Raises:
        DataError: The chat template cannot be used.
    """
    template = chat_template(tokenizer, chosen=recipe.data.template)
    written = TemplateSource(template.source, template.special_tokens, template.today, template.file)
    preference = recipe.preference
    parts = TokenizerParts.of(tokenizer)
    spec = PipelineSpec(parts, written, recipe.data, preference.learns_pairs, preference.learns_labels)
    return spec, template


def _conversations(
    data: DataSection, documents: ShardedDocuments, sources: Sequence[RowSource], held_out: Any
) -> list[list[dict[str, Any]]]:
    """Read the chats of the first held-out rows from their files again."""
    first = held_out[:MOST_CHATS]
    of, at = documents.sources[first], documents.positions[first]
    chats = list[list[dict[str, Any]]]()
    for source in dict.fromkeys(of.tolist()):
        if sources[source].layout.is_text:
            continue
        positions = sorted(set(at[of == source].tolist()))
        found = sources[source].conversations(positions, data.system_prompt)
        chats.extend(chat.as_dicts() for chat in islice(found, MOST_CHATS))
    return chats


def _nothing_usable(data: DataSection, documents: ShardedDocuments, log: RowLog) -> DataError:
    lengths = documents.whole_lengths
    if len(lengths) and lengths.min() > data.max_length and data.overlong == "drop":
        return DataError(
            f"All {len(lengths)} rows are longer than data.max_length ({data.max_length} tokens): the longest has "
            f"{lengths.max()} tokens, the median {np.median(lengths):.0f}.",
            f"A max_length of {length_to_keep(lengths, 0.95)} would keep 95 % of the rows; or set data.overlong = "
            '"truncate".',
        )
    if any(reason.startswith(PAIR_TOO_LONG) for reason in log.dropped.counts):
        return DataError(
            f"None of the {log.rows} rows can be used: {log.dropped.summary()}.",
            f"Raise data.max_length (now {data.max_length}): a pair's prompt and its longer reply have to fit into it.",
        )
    cut_short = any(reason.startswith(NOTHING_LEFT) for reason in log.dropped.counts)
    return DataError(
        f"None of the {log.rows} rows can be used: {log.dropped.summary()}.",
        f"Raise data.max_length: 95 % of the rows have up to {length_to_keep(lengths, 0.95)} tokens."
        if cut_short
        else "Correct the rows, or the settings under [data].",
    )


def _end_token_ids(tokenizer: Any, log: RowLog) -> tuple[int, ...]:
    ids = {tokenizer.convert_tokens_to_ids(token) for token in log.turn_ends}
    if tokenizer.eos_token_id is not None:
        ids.add(tokenizer.eos_token_id)
    return tuple(sorted(ids))
