"""Computes the figures of a prepared dataset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from burnish_engine.contract.facts.data_report import (
    DatasetReport,
    FileStatus,
    Finding,
    TaskFit,
    TaskHint,
    TemplateFacts,
)
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.data.files.problems import EXAMPLES_PER_REASON, RowTally
from burnish_engine.data.files.read import COUNTED_BYTES
from burnish_engine.data.pipeline.row_pipeline import SPLITTING
from burnish_engine.data.pipeline.select import Selection
from burnish_engine.data.report.columns import column_readings
from burnish_engine.data.report.describe import length_stats, length_steps, share_text
from burnish_engine.data.report.findings import (
    LongRows,
    cut_lines,
    finding_text,
    findings,
    row_places,
    template_findings,
)
from burnish_engine.data.report.preference_findings import label_findings, pair_findings
from burnish_engine.data.rows.part_rows import RowSource
from burnish_engine.data.rows.row_log import RowLog
from burnish_engine.data.rows.shapes import BAD_REPLY
from burnish_engine.data.tokens.documents import DocumentSelection, ShardedDocuments
from burnish_engine.data.tokens.pack import epoch_batches
from burnish_engine.data.tokens.shard import Ints

_WORDED = {"overlong", "leaks"}  # findings that have a sentence of their own among the warnings
_END_SAMPLE = 100_000  # documents searched for replies that end with an end-of-turn token


@dataclass(frozen=True, eq=False)
class PreparationRecord:
    """The results of preparing a dataset that its figures are computed from.

    Attributes:
        sources: parts of the dataset.
        left_out: files that were not read, name to why.
        log: counts and examples of what was noticed in the rows.
        documents: all documents, used or not.
        selection: choice of the documents that are used.
        template: facts of the chat template; None where no row is a chat.
        sampled: whether only a sample of the rows was read.
        files: each training file, with the rows read or the reason why it cannot be.
        pairs: whether both replies of preference pairs are learned from.
        warnings: sentences about the chat template.
    """

    sources: Sequence[RowSource]
    left_out: dict[str, str]
    log: RowLog
    documents: ShardedDocuments
    selection: Selection
    template: TemplateFacts | None
    sampled: bool
    files: Sequence[FileStatus]
    pairs: bool
    warnings: list[str]


def dataset_facts(
    recipe: Recipe,
    record: PreparationRecord,
    train: DocumentSelection,
    validation: DocumentSelection,
    *,
    end_ids: Sequence[int],
    example: list[tuple[str, bool]],
    task: TaskHint | None = None,
    fit: TaskFit | None = None,
) -> DatasetFacts:
    """Compute a dataset's figures; those of a sampled dataset are estimates for the whole.

    Args:
        recipe: recipe that was prepared.
        record: results of preparing the dataset.
        train: documents to train on.
        validation: held-out documents.
        end_ids: tokens that end replies.
        example: first training document as (text, supervised) pieces.
        task: how the replies could be scored.
        fit: held-out rows that the recipe's score finds.
    """
    data = recipe.data
    log, documents = record.log, record.documents
    scale = _scale(record)
    plan = epoch_batches(train, recipe.train.micro_batch_tokens, recipe.train.pack, recipe.train.seed, epoch=0)
    used = np.concatenate([train.chosen, validation.chosen])
    cut = np.unique(used[documents.whole_lengths[used] > documents.longest])
    truncated = RowTally()
    if len(cut):
        truncated.add_all("cut", len(cut), documents.row_refs(cut[:EXAMPLES_PER_REASON]))
    supervised_tokens = documents.supervised_tokens[used].astype(np.int64)
    tokens = int(documents.lengths[used].sum(dtype=np.int64))
    whole = documents.whole_lengths[used].astype(np.int64)
    names = [source.part.name for source in record.sources]
    tokens_lost = int((whole - np.minimum(whole, documents.longest)).sum())
    every = np.unique(used)
    lengths = LongRows(truncated, tokens_lost / max(int(whole.sum()), 1), *_continued(record, every))
    held_out_rows = record.selection.rows_of(validation.chosen)
    odd = [
        *findings(log, record.selection.duplicates, data, names, lengths=lengths, held_out=held_out_rows),
        *_preference_findings(recipe.preference, record, every, names),
        *template_findings(log, record.template, names),
    ]
    odd.sort(key=lambda finding: -finding.rows)
    used_rows = round(record.selection.used_rows * scale)
    training_rows = round(record.selection.rows_of(train.chosen) * scale)
    report = DatasetReport(
        used_rows=used_rows,
        training_rows=training_rows,
        held_out_rows=used_rows - training_rows,
        sampled_rows=log.rows if record.sampled else 0,
        parts=len(record.sources),
        left_out=dict(list(record.left_out.items())[:100]),
        files=list(record.files[:1000]),
        readings=column_readings(record.sources[0]),
        template=record.template,
        cut_lines=cut_lines(documents, _cuttable(record, used, data), documents.longest, scale),
        length_steps=length_steps(documents.whole_lengths[used], scale),
        supervised_share=float(supervised_tokens.sum() / max(tokens, 1)),
        tokens_lost=round(tokens_lost * scale),
        called_rows=round(log.tool_call_rows * scale),
        thoughtful_rows=round(log.reasoning_rows * scale),
        findings=odd,
        exact_places=_has_exact_places(record),
        task=task,
        task_fit=fit,
    )
    warnings = [
        *_reading_warnings(data, record),
        *record.warnings,
        *_document_warnings(data, lengths, train=train, validation=validation, record=record, end_ids=end_ids),
        *(finding_text(finding, several=len(names) > 1) for finding in odd if finding.kind not in _WORDED),
    ]
    supervised_tokens_of = train.supervised_tokens
    return DatasetFacts(
        files=names[:1000],
        format=_distinct(source.part.format for source in record.sources),
        shape=_distinct(source.layout.shape for source in record.sources),
        columns=list(dict.fromkeys(name for source in record.sources for name in source.columns)),
        rows=round(log.rows * scale),
        train_rows=round(len(train) * scale),
        validation_rows=round(len(validation) * scale),
        dropped={reason: max(1, round(count * scale)) for reason, count in log.dropped.counts.items()},
        dropped_examples={reason: row_places(rows, names) for reason, rows in log.dropped.examples.items()},
        truncated_rows=round(int((whole > documents.longest).sum()) * scale),
        tokens=round(tokens * scale),
        supervised_tokens=round(int(supervised_tokens.sum()) * scale),
        lengths=length_stats(documents.whole_lengths),
        sequence_lengths=length_stats(documents.longest_sequences) if recipe.preference.learns_pairs else None,
        micro_batches=max(1, round(len(plan) * scale)),
        fill=plan.fill,
        most_supervised=max((int(supervised_tokens_of[list(group)].sum()) for group in plan.groups), default=0),
        example=example,
        warnings=warnings,
        report=report,
    )


def _preference_findings(
    section: PreferenceSection, record: PreparationRecord, used: Ints, names: Sequence[str]
) -> Iterator[Finding]:
    if section.learns_pairs:
        yield from pair_findings(record.documents, used, section, names)
    elif all(source.layout.shape == "kto" for source in record.sources) and len(used):
        good = int(record.documents.desirable[used].sum())
        bad = len(used) - good + record.log.dropped.counts.get(BAD_REPLY, 0)
        yield from label_findings(good, bad, section)


def _continued(record: PreparationRecord, used: Ints) -> tuple[RowTally, int]:
    """Tally the rows that became several documents, and count the documents beyond each row's first."""
    tally = RowTally()
    first, further = record.selection.continued(used)
    if len(first):
        tally.add_all("continued", len(first), record.documents.row_refs(first[:EXAMPLES_PER_REASON]))
    return tally, further


def _cuttable(record: PreparationRecord, used: Ints, data: DataSection) -> Ints:
    """Select the documents that a smaller max_length would cut; plain texts are split instead."""
    if data.overlong not in SPLITTING:
        return used
    texts = [index for index, source in enumerate(record.sources) if source.layout.is_text]
    return used[~np.isin(record.documents.sources[used], texts)]


def _scale(record: PreparationRecord) -> float:
    """Return the factor from rows that were read to rows of the whole dataset."""
    if not record.sampled:
        return 1.0
    looked = [len(source.sample) if source.sample is not None else 0 for source in record.sources]
    whole = sum(count * source.scale for count, source in zip(looked, record.sources, strict=True))
    return max(1.0, whole / max(sum(looked), 1))


def _has_exact_places(record: PreparationRecord) -> bool:
    """Whether the numbers of all rows are known exactly, in a sample too."""
    parts = [source.part for source in record.sources if source.sample is not None]
    return all(part.format != "jsonl" or part.packing or part.size_bytes <= COUNTED_BYTES for part in parts)


def _reading_warnings(data: DataSection, record: PreparationRecord) -> list[str]:
    warnings = []
    if record.sampled:
        numbers = "" if _has_exact_places(record) else " Row numbers beyond the first ones are too."
        warnings.append(
            f"The data is large: {record.log.rows:,} rows from all over it were looked at, and the counts are "
            f"estimates for the whole.{numbers} Training reads every row."
        )
    if record.left_out:
        shown = "; ".join(f"{name} ({why})" for name, why in list(record.left_out.items())[:3])
        more = f" and {len(record.left_out) - 3} more" if len(record.left_out) > 3 else ""
        warnings.append(f"Not read: {shown}{more}.")
    unread = {f'"{meaning}={name}"' for source in record.sources for meaning, name in source.unread.items()}
    if unread:
        warnings.append(
            f"The recipe says how the columns are read, and leaves out some that are read by themselves otherwise. "
            f"Add to data.columns what counts: {', '.join(sorted(unread))}."
        )
    unused = (("preference", "the chosen reply of each pair"), ("kto", "what is labeled good"))
    for shape, what in () if record.pairs else unused:
        if data.shape != shape and any(source.layout.shape == shape for source in record.sources):
            objective = "dpo" if shape == "preference" else "kto"
            warnings.append(
                f'These are preferences (shape {shape}). With data.shape = "{shape}" {what} is learned. '
                f'preference.objective = "{objective}" learns from the others as well.'
            )
    return warnings


def _document_warnings(
    data: DataSection,
    lengths: LongRows,
    *,
    train: DocumentSelection,
    validation: DocumentSelection,
    record: PreparationRecord,
    end_ids: Sequence[int],
) -> list[str]:
    warnings = []
    if truncated := lengths.truncated.total:
        share = truncated / (len(train) + len(validation))
        split = "" if data.overlong == "split" else ', "split" makes several rows of each'
        warnings.append(
            f"{_rows(truncated, capital=True)} ({share_text(share)}) {'is' if truncated == 1 else 'are'} cut to "
            f"{data.max_length:,} tokens, which loses {share_text(lengths.lost_share)} of all tokens; the model does "
            f'not see the end. data.overlong = "drop" leaves such rows out{split}.'
        )
    leaks = record.selection.duplicates.leaks.total
    if leaks and record.selection.keeps_leaks:
        warnings.append(
            f"{leaks} of {len(validation)} held-out rows are also among the training rows, so the held-out loss "
            'flatters the model. data.leaks = "drop" leaves them out of the training rows.'
        )
    if not validation:
        warnings.append("No rows are held out: nothing will tell learning from memorizing.")
    ends = _any_ends(train, end_ids) or (lengths.continued.total and _any_ends(validation, end_ids))
    if not ends:  # the end of a long text may be held out
        warnings.append(
            "No row ends with a learned end-of-turn token, so the model will not learn to stop. Check the chat "
            "template and data.max_length."
        )
    return warnings


def _any_ends(train: DocumentSelection, end_ids: Sequence[int]) -> bool:
    """Whether some document has a supervised token that ends a turn; templates may write a line break behind it."""
    documents = (train[index] for index in range(min(len(train), _END_SAMPLE)))
    return any(np.isin(one.input_ids[one.supervised], list(end_ids)).any() for one in documents)


def _distinct(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _rows(count: int, *, capital: bool = False) -> str:
    if count == 1:
        return "One row" if capital else "one row"
    return f"{count} rows"
