"""One call from a recipe's data section to documents for training and held-out scoring, with everything found out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from burnish_engine.contract.errors import DataError, UsageError
from burnish_engine.contract.facts import DatasetFacts
from burnish_engine.contract.recipe import DataSection, Recipe
from burnish_engine.data.collect import NOTHING_LEFT, Collector, Findings, Progress, SourcedDocument
from burnish_engine.data.describe import dataset_hash, example_pieces, length_stats, length_to_keep
from burnish_engine.data.pack import epoch_batches
from burnish_engine.data.problems import printable
from burnish_engine.data.template import ChatTemplate, chat_template
from burnish_engine.data.tokenize import Document

_VALIDATION_STREAM = 2**32 - 1  # keeps the split's random numbers apart from those of any epoch


@dataclass(frozen=True, eq=False)
class Prepared:
    """A dataset ready for training.

    Attributes:
        train: Documents to train on, in the order of the files.
        validation: Held-out documents.
        validation_conversations: The chats of the held-out rows as lists of {role, content}, in the same order;
            rows of plain text have none and are left out.
        facts: What to show people.
        warnings: What they should know, in sentences. Also in `facts`.
        dataset_hash: SHA-256 over all token ids and learned flags; equal means the same training data.
        template: The chat template that was used.
        end_token_ids: Tokens that end a reply: the end-of-sequence token, and those the template uses.
    """

    train: list[Document]
    validation: list[Document]
    validation_conversations: list[list[dict[str, str]]]
    facts: DatasetFacts
    warnings: list[str]
    dataset_hash: str
    template: ChatTemplate
    end_token_ids: tuple[int, ...]


def prepare(recipe: Recipe, tokenizer: Any, *, progress: Progress | None = None) -> Prepared:
    """Read, render, tokenize and split a recipe's data.

    Args:
        recipe: Paths in it are absolute, or relative to the working folder.
        tokenizer: A fast transformers tokenizer.
        progress: Told how far it got.

    Raises:
        UsageError: The recipe names no data files.
        DataError: A file cannot be read or understood, no row can be used, or nothing would be learned.
        NoSpaceError: A large file could not be converted for lack of disk space.
    """
    data = recipe.data
    if not data.files:
        raise UsageError("The recipe names no training files.", "Set data.files.")
    template = chat_template(tokenizer)
    collector = Collector(data, tokenizer, template, progress)
    found = collector.findings
    everything = collector.collect(data.files)
    if not everything:
        raise _nothing_usable(data, found)
    held_out = collector.collect(data.validation_files)
    if data.validation_files:
        train = everything
        if not held_out:
            raise DataError(
                f"No row of the validation files can be used ({found.dropped.in_words()}).",
                "Correct the rows, or remove data.validation_files.",
            )
    else:
        train, held_out = _split(everything, data.validation_share, recipe.train.seed)
    conversations = [collector.conversation(sourced) for sourced in held_out]
    documents = [sourced.document for sourced in train]
    validation = [sourced.document for sourced in held_out]
    end_ids = _end_token_ids(tokenizer, found)
    warnings = [
        *_template_warnings(template, tokenizer, found),
        *_document_warnings(data.max_length, documents, validation, end_ids),
    ]
    return Prepared(
        train=documents,
        validation=validation,
        validation_conversations=[chat.as_dicts() for chat in conversations if chat.text is None],
        facts=_facts(
            recipe, found, documents, validation, example=example_pieces(documents[0], tokenizer), warnings=warnings
        ),
        warnings=warnings,
        dataset_hash=dataset_hash(documents, validation),
        template=template,
        end_token_ids=end_ids,
    )


def _split(
    documents: Sequence[SourcedDocument], share: float, seed: int
) -> tuple[list[SourcedDocument], list[SourcedDocument]]:
    """Training and held-out documents; at least one of each where there are two and a share is asked for."""
    total = len(documents)
    count = min(max(1, round(total * share)), total - 1) if share > 0 else 0
    chosen = set(np.random.RandomState([seed, _VALIDATION_STREAM]).permutation(total)[:count].tolist())
    train = [document for index, document in enumerate(documents) if index not in chosen]
    return train, [documents[index] for index in sorted(chosen)]


def _nothing_usable(data: DataSection, found: Findings) -> DataError:
    lengths = found.lengths
    if lengths and min(lengths) > data.max_length and data.overlong == "drop":
        return DataError(
            f"All {len(lengths)} rows are longer than data.max_length ({data.max_length} tokens): the longest has "
            f"{max(lengths)} tokens, the median {np.median(lengths):.0f}.",
            f"A max_length of {length_to_keep(lengths, 0.95)} would keep 95 % of the rows; or set data.overlong = "
            '"truncate".',
        )
    cut_short = any(reason.startswith(NOTHING_LEFT) for reason in found.dropped.counts)
    return DataError(
        f"None of the {found.rows} rows can be used: {found.dropped.in_words()}.",
        f"Raise data.max_length: 95 % of the rows have up to {length_to_keep(lengths, 0.95)} tokens."
        if cut_short
        else "Correct the rows, or the settings under [data].",
    )


def _end_token_ids(tokenizer: Any, found: Findings) -> tuple[int, ...]:
    ids = {tokenizer.convert_tokens_to_ids(token) for token in found.turn_ends}
    if tokenizer.eos_token_id is not None:
        ids.add(tokenizer.eos_token_id)
    return tuple(sorted(ids))


def _template_warnings(template: ChatTemplate, tokenizer: Any, found: Findings) -> list[str]:
    warnings = []
    chats = any(source.layout.shape != "text" for source in found.sources)
    if chats and template.is_default:
        warnings.append(
            "The model has no chat template (it is a base model), so a plain one is used: '### User:' and "
            "'### Assistant:' headings, each reply ended by the end-of-sequence token. Use the exported model with it."
        )
    if chats and template.writes_date:
        warnings.append(
            f"The chat template writes today's date; all rows are trained with {template.today:%d %b %Y}, so that the "
            "run can be repeated."
        )
    if found.open_rows:
        added = f"{tokenizer.eos_token} was appended and is learned" if tokenizer.eos_token else "and there is none"
        warnings.append(
            f"The chat template puts no end-of-turn token after the last reply of {_rows(found.open_rows)}; {added}."
        )
    if found.prompt_differs:
        warnings.append(
            f"In {_rows(found.prompt_differs)} the last reply does not begin the way the chat template's generation "
            "prompt says, so the model will be asked otherwise than it was trained."
        )
    if found.control_rows:
        warnings.append(
            f"{_rows(found.control_rows, capital=True)} spell out a control token such as "
            f"{printable(found.control_example)} in their text; it is tokenized as that token."
        )
    return warnings


def _document_warnings(
    max_length: int,
    train: Sequence[Document],
    validation: Sequence[Document],
    end_ids: Sequence[int],
) -> list[str]:
    warnings = []
    truncated = sum(document.truncated for document in (*train, *validation))
    if truncated:
        share = truncated / (len(train) + len(validation))
        warnings.append(
            f"{_rows(truncated, capital=True)} ({share:.1%}) are cut to {max_length} tokens; the model does not "
            "see how they end."
        )
    seen = {document.input_ids.tobytes() for document in train}
    repeated = sum(document.input_ids.tobytes() in seen for document in validation)
    if repeated:
        warnings.append(
            f"{repeated} of {len(validation)} held-out rows are also among the training rows, so the held-out loss "
            "flatters the model."
        )
    if not validation:
        warnings.append("No rows are held out: nothing will tell learning from memorizing.")
    if not any(_last_learned(document) in end_ids for document in train):
        warnings.append(
            "No row ends with a learned end-of-turn token, so the model will not learn to stop. Check the chat "
            "template and data.max_length."
        )
    return warnings


def _last_learned(document: Document) -> int:
    return int(document.input_ids[np.flatnonzero(document.learned)[-1]])


def _facts(
    recipe: Recipe,
    found: Findings,
    train: Sequence[Document],
    validation: Sequence[Document],
    *,
    example: list[tuple[str, bool]],
    warnings: list[str],
) -> DatasetFacts:
    plan = epoch_batches(train, recipe.train.micro_batch_tokens, recipe.train.pack, recipe.train.seed, epoch=0)
    used = (*train, *validation)
    return DatasetFacts(
        files=[str(source.table.path) for source in found.sources],
        format=_distinct(source.table.file_format for source in found.sources),
        shape=_distinct(source.layout.shape for source in found.sources),
        columns=list(dict.fromkeys(name for source in found.sources for name in source.columns)),
        rows=found.rows,
        train_rows=len(train),
        validation_rows=len(validation),
        dropped=found.dropped.counts,
        dropped_examples=found.dropped.examples,
        truncated_rows=sum(document.truncated for document in used),
        tokens=sum(len(document) for document in used),
        supervised_tokens=sum(document.supervised_tokens for document in used),
        lengths=length_stats(found.lengths),
        micro_batches=len(plan),
        fill=plan.fill,
        most_supervised=max((sum(train[row].supervised_tokens for row in group) for group in plan.groups), default=0),
        example=example,
        warnings=warnings,
    )


def _distinct(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _rows(count: int, *, capital: bool = False) -> str:
    if count == 1:
        return "One row" if capital else "one row"
    return f"{count} rows"
