"""Compare micro-batches with the rows they were made of, on the CPU in milliseconds; no model runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.facts.data_report import DatasetReport
from burnish_engine.data.report.findings import UNWRITTEN, remedy_text
from burnish_engine.data.tokens.pack import IGNORED, MicroBatch
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.train.guard import findings
from burnish_engine.train.guard.findings import GuardFinding

PASSES = 8  # most of the run's first passes that are checked
ROWS = 400  # most of the data's first rows that are checked
_SHIFTED = 0.9  # share of labels that belong to the position beside theirs
# Supervised copies of a token, rows that end in them, share of rows: no accident.
_FILL_RUN, _FILL_ROWS, _FILL_SHARE = 4, 3, 0.05
_END_ROWS = 5  # fewer rows may all be cut off by chance

Ids = npt.NDArray[np.int64]


def expected_labels(documents: Sequence[Document]) -> tuple[Ids, Ids]:
    """Build the token ids of some rows in a pass, and the labels that they should have."""
    ids = [document.input_ids.astype(np.int64) for document in documents]
    labels = []
    for document, tokens in zip(documents, ids, strict=True):
        wanted = np.full(len(tokens), IGNORED, dtype=np.int64)
        wanted[:-1] = np.where(document.supervised[1:], tokens[1:], IGNORED)
        labels.append(wanted)
    return np.concatenate(ids), np.concatenate(labels)


def check_batches(
    documents: Sequence[Document], batches: Sequence[MicroBatch], ends: Collection[int]
) -> Iterator[GuardFinding]:
    """Compare micro-batches with their rows.

    Args:
        documents: all training rows.
        batches: some micro-batches of these rows.
        ends: token ids that end a reply.
    """
    if not any(batch.supervised_tokens for batch in batches):
        yield findings.no_targets(
            f"the first {len(batches)} passes hold" if len(batches) > 1 else "the only pass holds"
        )
        return
    end_seen = end_learned = 0
    for batch in batches:
        rows = [documents[row] for row in batch.rows]
        ids, wanted = expected_labels(rows)
        yield from _check_bounds(batch, rows)
        if len(ids) != len(batch.input_ids) or not np.array_equal(ids, batch.input_ids):
            yield findings.other_labels("a pass holds other tokens than its rows")
            return
        yield from _check_labels(ids, wanted, batch.labels, ends)
        is_end = np.isin(wanted, list(ends))
        end_seen += int(is_end.sum())
        end_learned += int((is_end & (batch.labels == wanted)).sum())
    if end_seen and not end_learned:
        yield findings.end_token_lost(end_seen)


def check_rows(documents: Sequence[Document], ends: Collection[int], pad: int | None) -> Iterator[GuardFinding]:
    """Check the first rows themselves: whether replies end, and whether rows were padded before.

    Args:
        documents: all training rows.
        ends: token ids that end a reply.
        pad: the tokenizer's padding token; None where it has none.
    """
    first = [documents[row] for row in range(min(len(documents), ROWS))]
    whole = [document for document in first if not document.truncated]
    if ends and len(whole) >= _END_ROWS and not any(_learns(document, ends) for document in whole):
        yield findings.end_token(len(whole))
    fills = {*ends, *([pad] if pad is not None else [])}
    runs = [(_fill_run(document, fills), int(document.input_ids[-1])) for document in first if len(document)]
    long = [(run, token) for run, token in runs if run >= _FILL_RUN]
    if len(long) >= max(_FILL_ROWS, _FILL_SHARE * len(first)):
        yield findings.padded_rows(len(long), max(long)[1], max(long)[0])


def check_rendering(report: DatasetReport | None) -> Iterator[GuardFinding]:
    """Report the first finding of rows that the chat template does not write whole.

    Args:
        report: what was found in the rows before training; None where they were not looked at.
    """
    for found in report.findings if report else ():
        if found.kind == UNWRITTEN and not found.dropped:
            yield findings.unwritten(found.says, f"{remedy_text(found)}.")
            return


def _check_bounds(batch: MicroBatch, rows: Sequence[Document]) -> Iterator[GuardFinding]:
    lengths = [length for row in rows for length in row.sequence_lengths]
    bounds = np.cumsum([0, *lengths])
    if len(bounds) != len(batch.boundaries) or not np.array_equal(bounds, batch.boundaries):
        yield findings.leak(f"a pass of {len(rows)} rows has the boundaries of {len(batch.boundaries) - 1}")
    elif not np.array_equal(np.concatenate([np.arange(length) for length in lengths]), batch.positions):
        yield findings.leak("positions in a pass do not begin anew with each row")


def _check_labels(ids: Ids, wanted: Ids, labels: Ids, ends: Collection[int]) -> Iterator[GuardFinding]:
    if np.array_equal(wanted, labels):
        return
    counted, should = labels != IGNORED, wanted != IGNORED
    here = np.flatnonzero(counted)
    wrong = here[labels[here] != wanted[here]]
    if not len(wrong):  # some are missing; the caller reports the ones that end replies
        lost = should & ~counted & ~np.isin(wanted, list(ends))
        if lost.any():
            yield findings.other_labels(f"{int(lost.sum()):,} of {int(should.sum()):,} labels are missing")
        return
    if _share(labels[here] == ids[here]) > _SHIFTED:
        yield findings.shifted("the token that stands there", f"{len(here):,} labels are the position's own token")
    elif _share(labels[here[here + 2 < len(ids)]] == ids[here[here + 2 < len(ids)] + 2]) > _SHIFTED:
        yield findings.shifted("the token after the next", f"{len(here):,} labels are the token after the next")
    elif counted.sum() > should.sum():
        yield findings.padding(int(counted.sum()), int(should.sum()), "a pass has labels at")
    else:
        yield findings.other_labels(f"{len(wrong):,} of {len(here):,} labels are other tokens")


def _share(flags: Any) -> float:
    return float(np.mean(flags)) if len(flags) else 0.0


def _learns(document: Document, ends: Collection[int]) -> bool:
    return bool((np.isin(document.input_ids, list(ends)) & document.supervised).any())


def _fill_run(document: Document, fills: Collection[int]) -> int:
    """Count the supervised copies of one padding token at the end of a row."""
    last = int(document.input_ids[-1])
    if last not in fills:
        return 0
    same: Callable[[int], bool] = lambda place: bool(  # noqa: E731
        document.input_ids[place] == last and document.supervised[place]
    )
    run = 0
    while run < len(document) and same(len(document) - 1 - run):
        run += 1
    return run
