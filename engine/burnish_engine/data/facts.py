"""A prepared dataset in figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from burnish_engine.contract.data_report import DatasetReport, TemplateFacts
from burnish_engine.contract.facts import DatasetFacts
from burnish_engine.contract.recipe import Recipe
from burnish_engine.contract.recipe_data import DataSection
from burnish_engine.data.describe import length_stats
from burnish_engine.data.documents import Documents, Rows
from burnish_engine.data.notes import Notes
from burnish_engine.data.pack import epoch_batches
from burnish_engine.data.problems import EXAMPLES_PER_REASON, Dropped
from burnish_engine.data.report import Lengths, column_readings, cut_lines, findings, in_words, row_places
from burnish_engine.data.select import Selection
from burnish_engine.data.shard import Ints
from burnish_engine.data.source import Source
from burnish_engine.data.work import SPLITTING

_WORDED = {"overlong", "leaks"}  # findings that have a sentence of their own among the warnings
_END_SAMPLE = 100_000  # documents looked at to see whether replies end with a token that ends turns


@dataclass(frozen=True, eq=False)
class Seen:
    """What was seen on the way.

    Attributes:
        sources: the parts.
        left_out: files that were not read, name to why.
        notes: counts and examples of what was noticed in the rows.
        rows: all documents.
        selection: choice of the documents that are used.
        template: facts of the chat template; None where it is not used.
        sampled: whether only some rows were looked at.
        warnings: sentences about the chat template.
    """

    sources: Sequence[Source]
    left_out: dict[str, str]
    notes: Notes
    rows: Rows
    selection: Selection
    template: TemplateFacts | None
    sampled: bool
    warnings: list[str]


def dataset_facts(
    recipe: Recipe,
    seen: Seen,
    train: Documents,
    validation: Documents,
    *,
    end_ids: Sequence[int],
    example: list[tuple[str, bool]],
) -> DatasetFacts:
    """The figures. Of a sampled dataset they are estimates for the whole.

    Args:
        recipe: The settings.
        seen: What was seen.
        train: Documents to train on.
        validation: Held-out documents.
        end_ids: Tokens that end replies.
        example: The first document in pieces.
    """
    data = recipe.data
    notes, rows = seen.notes, seen.rows
    scale = _scale(seen)
    plan = epoch_batches(train, recipe.train.micro_batch_tokens, recipe.train.pack, recipe.train.seed, epoch=0)
    used = np.concatenate([train.chosen, validation.chosen])
    cut = np.unique(used[rows.whole_lengths[used] > data.max_length])
    truncated = Dropped()
    if len(cut):
        truncated.add_all("cut", len(cut), rows.places(cut[:EXAMPLES_PER_REASON]))
    supervised = rows.supervised[used].astype(np.int64)
    tokens = int(rows.lengths[used].sum(dtype=np.int64))
    whole = rows.whole_lengths[used].astype(np.int64)
    names = [source.part.name for source in seen.sources]
    tokens_lost = int((whole - np.minimum(whole, data.max_length)).sum())
    every = np.unique(used)
    lengths = Lengths(truncated, tokens_lost / max(int(whole.sum()), 1), *_continued(seen, every))
    held_out_rows = seen.selection.rows_of(validation.chosen)
    odd = findings(notes, seen.selection.likeness, data, names, lengths=lengths, held_out=held_out_rows)
    used_rows = round(seen.selection.used_rows * scale)
    training_rows = round(seen.selection.rows_of(train.chosen) * scale)
    report = DatasetReport(
        used_rows=used_rows,
        training_rows=training_rows,
        held_out_rows=used_rows - training_rows,
        sampled_rows=notes.rows if seen.sampled else 0,
        parts=len(seen.sources),
        left_out=dict(list(seen.left_out.items())[:100]),
        readings=column_readings(seen.sources[0]),
        template=seen.template,
        cut_lines=cut_lines(rows, _cuttable(seen, used, data), data.max_length),
        supervised_share=float(supervised.sum() / max(tokens, 1)),
        tokens_lost=round(tokens_lost * scale),
        called_rows=round(notes.called * scale),
        thoughtful_rows=round(notes.thoughtful * scale),
        findings=odd,
    )
    warnings = [
        *_reading_warnings(seen),
        *seen.warnings,
        *_document_warnings(data, lengths, train=train, validation=validation, seen=seen, end_ids=end_ids),
        *(in_words(finding, several=len(names) > 1) for finding in odd if finding.kind not in _WORDED),
    ]
    supervised_of = train.supervised
    return DatasetFacts(
        files=names[:1000],
        format=_distinct(source.part.format for source in seen.sources),
        shape=_distinct(source.layout.shape for source in seen.sources),
        columns=list(dict.fromkeys(name for source in seen.sources for name in source.columns)),
        rows=round(notes.rows * scale),
        train_rows=round(len(train) * scale),
        validation_rows=round(len(validation) * scale),
        dropped={reason: max(1, round(count * scale)) for reason, count in notes.dropped.counts.items()},
        dropped_examples={reason: row_places(rows, names) for reason, rows in notes.dropped.examples.items()},
        truncated_rows=round(int((whole > data.max_length).sum()) * scale),
        tokens=round(tokens * scale),
        supervised_tokens=round(int(supervised.sum()) * scale),
        lengths=length_stats(rows.whole_lengths),
        micro_batches=max(1, round(len(plan) * scale)),
        fill=plan.fill,
        most_supervised=max((int(supervised_of[list(group)].sum()) for group in plan.groups), default=0),
        example=example,
        warnings=warnings,
        report=report,
    )


def _continued(seen: Seen, used: Ints) -> tuple[Dropped, int]:
    """The rows that go on in further ones, and how many further ones there are."""
    tally = Dropped()
    first, further = seen.selection.continued(used)
    if len(first):
        tally.add_all("continued", len(first), seen.rows.places(first[:EXAMPLES_PER_REASON]))
    return tally, further


def _cuttable(seen: Seen, used: Ints, data: DataSection) -> Ints:
    """Those of the documents that a shorter longest length would cut: texts go on in further rows instead."""
    if data.overlong not in SPLITTING:
        return used
    texts = [index for index, source in enumerate(seen.sources) if source.layout.is_text]
    return used[~np.isin(seen.rows.sources[used], texts)]


def _scale(seen: Seen) -> float:
    """How many rows there are for each that was looked at."""
    if not seen.sampled:
        return 1.0
    looked = [len(source.sample) if source.sample is not None else 0 for source in seen.sources]
    whole = sum(count * source.scale for count, source in zip(looked, seen.sources, strict=True))
    return max(1.0, whole / max(sum(looked), 1))


def _reading_warnings(seen: Seen) -> list[str]:
    warnings = []
    if seen.sampled:
        warnings.append(
            f"The data is large: {seen.notes.rows:,} rows from all over it were looked at, and the counts are "
            "estimates for the whole. Row numbers beyond the first ones are too. Training reads every row."
        )
    if seen.left_out:
        shown = "; ".join(f"{name} ({why})" for name, why in list(seen.left_out.items())[:3])
        more = f" and {len(seen.left_out) - 3} more" if len(seen.left_out) > 3 else ""
        warnings.append(f"Not read: {shown}{more}.")
    for shape, what in (("preference", "the chosen reply of each pair"), ("kto", "what is labeled good")):
        if any(source.layout.shape == shape for source in seen.sources):
            warnings.append(
                f"These are preferences (shape {shape}), which are not trained on as such. With data.shape = "
                f'"{shape}" {what} is learned.'
            )
    return warnings


def _document_warnings(
    data: DataSection,
    lengths: Lengths,
    *,
    train: Documents,
    validation: Documents,
    seen: Seen,
    end_ids: Sequence[int],
) -> list[str]:
    warnings = []
    if truncated := lengths.truncated.total:
        share = truncated / (len(train) + len(validation))
        split = "" if data.overlong == "split" else ', "split" makes several rows of them'
        warnings.append(
            f"{_rows(truncated, capital=True)} ({share:.1%}) {'is' if truncated == 1 else 'are'} cut to "
            f"{data.max_length} tokens, which loses {lengths.lost_share:.1%} of all tokens; the model does not see how "
            f'they end. data.overlong = "drop" leaves them out{split}.'
        )
    leaks = seen.selection.likeness.leaks.total
    if leaks and seen.selection.keeps_leaks:
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


def _any_ends(train: Documents, end_ids: Sequence[int]) -> bool:
    """Whether some document has a learned token that ends a turn; templates may write a line break behind it."""
    documents = (train[index] for index in range(min(len(train), _END_SAMPLE)))
    return any(np.isin(one.input_ids[one.learned], list(end_ids)).any() for one in documents)


def _distinct(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _rows(count: int, *, capital: bool = False) -> str:
    if count == 1:
        return "One row" if capital else "one row"
    return f"{count} rows"
