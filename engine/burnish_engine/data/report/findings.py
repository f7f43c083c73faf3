"""Lists the problems of a dataset: in which rows each occurs, and which recipe setting deals with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from pathlib import PurePath

import numpy as np

from burnish_engine.contract.facts.data_report import CutLine, Finding, RowPlace, Setting, TemplateFacts
from burnish_engine.contract.plain_text import printable
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.data.files.problems import ROWS_NAMED, RowRef, RowTally, shorten
from burnish_engine.data.pipeline.row_pipeline import EQUAL_RENDERINGS, pair_too_long
from burnish_engine.data.pipeline.select import DuplicateRows
from burnish_engine.data.report.describe import share_text
from burnish_engine.data.rows import content_checks
from burnish_engine.data.rows.content_parts import NOT_A_REPLY, PARTLY_SUPERVISED
from burnish_engine.data.rows.media import NEEDS_MEDIA
from burnish_engine.data.rows.row_log import RowLog
from burnish_engine.data.rows.shapes import BAD_REPLY, EMPTY_REJECTED, NO_REJECTED, SAME_REPLIES
from burnish_engine.data.templates.whole_rows import PARALLEL_REFUSED
from burnish_engine.data.templates.written import CALL, EARLIER_THOUGHTS, KINDS, LAST_THOUGHTS
from burnish_engine.data.tokens.documents import ShardedDocuments

UNWRITTEN = "unwritten"
"""Kind of the findings of rows that the chat template does not write whole."""
_ADDED_TEXT = "added_text"
_ADDED_LETTERS = 120
_LEFT_OUT = {
    NEEDS_MEDIA: "media",
    PARTLY_SUPERVISED: "masks",
    NOT_A_REPLY: "masks",
    BAD_REPLY: "bad_replies",
    SAME_REPLIES: "same_replies",
    EQUAL_RENDERINGS: "same_replies",
    PARALLEL_REFUSED: UNWRITTEN,
    NO_REJECTED: "no_rejected",
    EMPTY_REJECTED: "empty_rejected",
}
"""Reasons for dropping rows that become findings, because the data was made for another kind of training or a
preference says nothing: reason to kind of finding."""
_CUTS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
_DROP = "leaves such rows out"

_DEDUPE = Setting(key="data.duplicates", value="drop", says="keeps the first of equal rows")
_DEDUPE_NEAR = Setting(key="data.duplicates", value="drop_near", says="keeps the first of nearly equal rows")
_NO_LEAKS = Setting(key="data.leaks", value="drop", says="leaves them out of the training rows")
_NO_SECRETS = Setting(key="data.secrets", value="drop", says=_DROP)
_NO_DEGENERATE = Setting(key="data.degenerate", value="drop", says=_DROP)
_NO_ADDRESSES = Setting(key="data.addresses", value="drop", says=_DROP)
_NO_DAMAGE = Setting(key="data.damaged", value="drop", says=_DROP)
_NO_CONTROL = Setting(key="data.control_tokens", value="drop", says=_DROP)
_NO_LONG = Setting(key="data.overlong", value="drop", says=_DROP)
_SPLIT_LONG = Setting(key="data.overlong", value="split", says="makes several rows of them")
_NO_PLACEHOLDERS = Setting(key="data.placeholders", value="drop", says=_DROP)
_NO_UNWRITTEN = Setting(key="data.unwritten", value="drop", says=_DROP)
_EQUAL_FORMS = {
    CALL: "writes calls one after another, each with its result, and no text beside one",
    **dict.fromkeys((LAST_THOUGHTS, EARLIER_THOUGHTS), "writes thoughts in the text of their reply"),
}
_RESPELL = {kind: Setting(key="data.unwritten", value="respell", says=says) for kind, says in _EQUAL_FORMS.items()}
_LAST_ALONE = Setting(key="data.learn", value="last", says="learns the last reply alone, of which it writes them")
_NO_TOOLS = Setting(key="data.tools", value="drop", says=_DROP)


@dataclass(frozen=True)
class LongRows:
    """Counts of the rows longer than max_length, by what was done with them.

    Attributes:
        truncated: rows that are cut.
        lost_share: share of all tokens that lies behind the cuts, 0 to 1.
        continued: rows that were split into several documents.
        further: number of documents beyond the first of each such row.
    """

    truncated: RowTally
    lost_share: float
    continued: RowTally
    further: int


def findings(
    log: RowLog,
    duplicates: DuplicateRows,
    data: DataSection,
    names: Sequence[str],
    *,
    lengths: LongRows,
    held_out: int,
) -> list[Finding]:
    """List all findings, those with the most rows first.

    Args:
        log: counts and examples of what was noticed in the rows.
        duplicates: documents that equal or nearly equal others.
        data: the recipe's settings.
        names: name of each part.
        lengths: counts of rows longer than max_length.
        held_out: number of held-out rows.
    """
    found = [
        *_duplicate_findings(duplicates, data, held_out, names),
        *_content_findings(log, data, names),
        *_length_findings(lengths, data, names),
    ]
    return sorted(found, key=lambda finding: -finding.rows)


def template_findings(log: RowLog, template: TemplateFacts | None, names: Sequence[str]) -> Iterator[Finding]:
    """Tell of rows that get a text which nobody wrote, because the template puts one where there is no system message.

    Args:
        log: counts and examples of what was noticed in the rows.
        template: facts of the chat template; None where no row is a chat.
        names: name of each part.
    """
    count = log.noticed.counts.get(content_checks.NO_SYSTEM, 0)
    if count and template is not None and template.adds:
        tally = RowTally({"": count}, {"": log.noticed.examples[content_checks.NO_SYSTEM]})
        says = (
            f'{{rows}} given a text by the chat template that nobody wrote: "{shorten(template.adds, _ADDED_LETTERS)}"'
        )
        yield _finding(_ADDED_TEXT, says, tally, [], names)


def row_places(rows: Iterable[RowRef], names: Sequence[str]) -> list[RowPlace]:
    """Give rows the names of their files, each row once, in order.

    Args:
        rows: reference of each row.
        names: name of each part.
    """
    return [RowPlace(file=names[ref.source], row=ref.row) for ref in sorted(set(rows))]


def _duplicate_findings(
    duplicates: DuplicateRows, data: DataSection, held_out: int, names: Sequence[str]
) -> Iterator[Finding]:
    if duplicates.same.total and data.duplicates == "keep":
        yield _finding("duplicates", "{rows} the same as an earlier row", duplicates.same, [_DEDUPE], names)
    if duplicates.near.total and data.duplicates != "drop_near":
        more = "" if duplicates.searched else " (the search was ended early, so there are more)"
        says = f"{{rows}} nearly the same as an earlier row{more}"
        yield _finding("near_duplicates", says, duplicates.near, [_DEDUPE_NEAR], names)
    if duplicates.leaks.total and data.leaks == "keep":
        says = f"{duplicates.leaks.total} of {held_out} held-out rows are also among the training rows"
        yield _finding("leaks", says, duplicates.leaks, [_NO_LEAKS], names)
    if duplicates.near_leaks.total and data.leaks == "keep":
        says = f"{duplicates.near_leaks.total} of {held_out} held-out rows are nearly the same as a training row"
        yield _finding("near_leaks", says, duplicates.near_leaks, [_NO_LEAKS], names)


def _content_findings(log: RowLog, data: DataSection, names: Sequence[str]) -> Iterator[Finding]:
    placeholder = f", such as {shorten(log.first_texts.get(content_checks.PLACEHOLDER, ''), 40)}"
    control = f", such as {printable(log.control_example)}, which becomes that token"
    kinds = {
        **dict.fromkeys(content_checks.SECRETS, ("secrets", "{rows} what looks like " + "{what}", [_NO_SECRETS])),
        content_checks.EMAIL: ("addresses", "{rows} an e-mail address", [_NO_ADDRESSES]),
        **dict.fromkeys(
            (content_checks.REPEATED, content_checks.ECHO, content_checks.SHORTEST),
            ("degenerate", "{rows} {what}", [_NO_DEGENERATE]),
        ),
        content_checks.GARBLED: ("encoding", "{rows} {what}", [*_encodings(data), _NO_DAMAGE]),
        content_checks.REPLACED: ("encoding", "{rows} {what}", [_NO_DAMAGE]),
        content_checks.CONTROL: ("control_tokens", f"{{rows}} {{what}}{control}", [_NO_CONTROL]),
        content_checks.TOOLS_NOT_WRITTEN: ("tools", "{rows} {what}", [_NO_TOOLS]),
        content_checks.PLACEHOLDER: ("placeholders", "{rows} {what}" + placeholder, [_NO_PLACEHOLDERS]),
        content_checks.MEDIA_TAG: ("media", "{rows} {what}", []),
        content_checks.STRAY_RESULT: (UNWRITTEN, "{rows} {what}", [_NO_UNWRITTEN]),
        **{kind: (UNWRITTEN, "{rows} {what}", _remedies(kind, log)) for kind in KINDS},
        content_checks.LITERAL: ("literals", "{rows} {what}", []),
    }
    for what, count in log.noticed.counts.items():
        if what not in kinds:
            continue
        kind, says, actions = kinds[what]
        tally = RowTally({what: count}, {what: log.noticed.examples.get(what, [])})
        yield _finding(kind, says.replace("{what}", what), tally, actions, names, verb=("holds", "hold"))
    longer = Setting(key="data.max_length", value=2 * data.max_length, says="keeps more of them")
    for reason, kind in {**_LEFT_OUT, pair_too_long(data.max_length): "long_pairs"}.items():
        if count := log.dropped.counts.get(reason, 0):
            tally = RowTally({reason: count}, {reason: log.dropped.examples.get(reason, [])})
            actions = {"long_pairs": [longer], UNWRITTEN: [_RESPELL[CALL]]}.get(kind, [])
            found = _finding(kind, f"{{rows}} left out: {reason}", tally, actions, names)
            yield found.model_copy(update={"dropped": reason})


def _remedies(kind: str, log: RowLog) -> list[Setting]:
    """List what can be done about rows of which the chat template does not write all."""
    last = [_LAST_ALONE] if kind == EARLIER_THOUGHTS and LAST_THOUGHTS not in log.noticed.counts else []
    return [*([_RESPELL[kind]] if kind in log.offers and kind in _RESPELL else []), *last, _NO_UNWRITTEN]


def _encodings(data: DataSection) -> list[Setting]:
    if data.encoding != "utf-8":
        return []
    return [Setting(key="data.encoding", value="cp1252", says="reads the files as Windows-1252")]


def _length_findings(lengths: LongRows, data: DataSection, names: Sequence[str]) -> Iterator[Finding]:
    if lengths.truncated.total:
        says = f"{{rows}} cut to {data.max_length} tokens, which loses {share_text(lengths.lost_share)} of all tokens"
        actions = [_NO_LONG] if data.overlong == "split" else [_NO_LONG, _SPLIT_LONG]
        yield _finding("overlong", says, lengths.truncated, actions, names)
    if lengths.continued.total:
        says = f"{{rows}} longer than {data.max_length} tokens; what follows fills {lengths.further} further rows"
        yield _finding("continued", says, lengths.continued, [_NO_LONG], names)


def _finding(
    kind: str,
    says: str,
    tally: RowTally,
    actions: Sequence[Setting],
    names: Sequence[str],
    *,
    verb: tuple[str, str] = ("is", "are"),
) -> Finding:
    count = tally.total
    first = row_places(chain.from_iterable(tally.examples.values()), names)
    rows = f"One row {verb[0]}" if count == 1 else f"{count} rows {verb[1]}"
    return Finding(kind=kind, says=says.replace("{rows}", rows) + ".", rows=count, first=first, actions=list(actions))


def finding_text(finding: Finding, *, several: bool) -> str:
    """Word a finding as one warning: what it is, in which rows, and which settings help.

    Args:
        finding: finding to word.
        several: whether there are several files, so that a row's number alone does not say where it is.
    """
    where = ""
    if finding.first:
        more = " ..." if finding.rows > min(len(finding.first), ROWS_NAMED) else ""
        where = f" (row{'s' if finding.rows > 1 else ''} {row_list_text(finding.first, several=several)}{more})"
    does = remedy_text(finding)
    if finding.kind == _ADDED_TEXT:  # a text of one's own, so no setting can be offered
        does = "data.system_prompt puts a text of yours there"
    return f"{finding.says.removesuffix('.')}{where}.{f' {does}.' if does else ''}"


def remedy_text(finding: Finding) -> str:
    """Word what can be done about a finding: its settings, and what each does."""
    return " or ".join(f"{action.line} {action.says}" for action in finding.actions)


def row_list_text(places: Iterable[RowPlace], *, several: bool) -> str:
    """List the first rows by number, and by file where there are several files: 3, 17 of a.jsonl; 4 of b.jsonl.

    Args:
        places: rows in order.
        several: whether there are several files.
    """
    by_file = groupby(islice(places, ROWS_NAMED), key=lambda place: place.file)
    return "; ".join(
        f"{', '.join(str(place.row) for place in of_file)}{f' of {PurePath(file).name}' if several else ''}"
        for file, of_file in by_file
    )


def cut_lines(
    documents: ShardedDocuments, used: Sequence[int] | np.ndarray, longest: int, scale: float = 1.0
) -> list[CutLine]:
    """Compute how much common values of max_length, and the recipe's own, would cut.

    Args:
        documents: all documents.
        used: numbers of the documents to count.
        longest: the recipe's max_length, tokens.
        scale: number of rows of the dataset for each one that was read.
    """
    lengths = documents.whole_lengths[used].astype(np.int64)
    supervised = documents.whole_supervised_tokens[used]
    lines = []
    for cut in sorted({*_CUTS, longest}):
        over = lengths > cut
        if cut != longest and not over.any():
            continue
        kept = documents.supervised_within(cut)[used]
        lines.append(
            CutLine(
                max_length=cut,
                rows_cut=round(int(over.sum()) * scale),
                tokens_lost=round(int((lengths - np.minimum(lengths, cut)).sum()) * scale),
                learned_lost=round(int((supervised - kept).sum()) * scale),
            )
        )
    return lines
