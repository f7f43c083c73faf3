"""The close look at a dataset: what is odd, in which rows, and which setting of the recipe does something about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import PurePath

import numpy as np

from burnish_engine.contract.data_report import ColumnReading, CutLine, Finding, RowPlace, Setting
from burnish_engine.contract.plain_text import printable
from burnish_engine.contract.recipe_data import DataSection
from burnish_engine.data import noticing
from burnish_engine.data.content_parts import LEARNED_IN_PART, NEEDS_MEDIA, NOT_A_REPLY
from burnish_engine.data.documents import Rows
from burnish_engine.data.notes import Notes
from burnish_engine.data.problems import Dropped, Place, shorten
from burnish_engine.data.readings import Reading
from burnish_engine.data.select import Likeness
from burnish_engine.data.shapes import BAD_REPLY
from burnish_engine.data.source import Source

AS_TOLD = "as the recipe says"
"""What is said of a reading that a person chose."""
_LEFT_OUT = {
    NEEDS_MEDIA: "media",
    LEARNED_IN_PART: "masks",
    NOT_A_REPLY: "masks",
    BAD_REPLY: "bad_replies",
}
"""Reasons for leaving rows out that mean that the data was made for another kind of training: reason to finding."""
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
_NO_TOOLS = Setting(key="data.tools", value="drop", says=_DROP)


@dataclass(frozen=True)
class Lengths:
    """What became of rows longer than the longest length.

    Attributes:
        truncated: rows that are cut.
        lost_share: share of all tokens that lies behind the cuts, 0 to 1.
        continued: rows that go on in further rows.
        further: number of those further rows.
    """

    truncated: Dropped
    lost_share: float
    continued: Dropped
    further: int


def findings(
    notes: Notes, likeness: Likeness, data: DataSection, names: Sequence[str], *, lengths: Lengths, held_out: int
) -> list[Finding]:
    """Everything odd, what concerns most rows first.

    Args:
        notes: counts and examples of what was noticed in the rows.
        likeness: documents that equal or nearly equal others.
        data: the recipe's settings.
        names: name of each part.
        lengths: what became of long rows.
        held_out: number of held-out rows.
    """
    found = [
        *_of_likeness(likeness, data, held_out, names),
        *_of_notes(notes, data, names),
        *_of_lengths(lengths, data, names),
    ]
    return sorted(found, key=lambda finding: -finding.rows)


def row_places(rows: Iterable[Place], names: Sequence[str]) -> list[RowPlace]:
    """Rows with the names of their files, each once, in order.

    Args:
        rows: place of each row.
        names: name of each part.
    """
    return [RowPlace(file=names[place.source], row=place.row) for place in sorted(set(rows))]


def _of_likeness(likeness: Likeness, data: DataSection, held_out: int, names: Sequence[str]) -> Iterator[Finding]:
    if likeness.same.total and data.duplicates == "keep":
        yield _finding("duplicates", "{rows} the same as an earlier row", likeness.same, [_DEDUPE], names)
    if likeness.near.total and data.duplicates != "drop_near":
        more = "" if likeness.searched else " (the search was ended early, so there are more)"
        says = f"{{rows}} nearly the same as an earlier row{more}"
        yield _finding("near_duplicates", says, likeness.near, [_DEDUPE_NEAR], names)
    if likeness.leaks.total and data.leaks == "keep":
        says = f"{likeness.leaks.total} of {held_out} held-out rows are also among the training rows"
        yield _finding("leaks", says, likeness.leaks, [_NO_LEAKS], names)
    if likeness.near_leaks.total and data.leaks == "keep":
        says = f"{likeness.near_leaks.total} of {held_out} held-out rows are nearly the same as a training row"
        yield _finding("near_leaks", says, likeness.near_leaks, [_NO_LEAKS], names)


def _of_notes(notes: Notes, data: DataSection, names: Sequence[str]) -> Iterator[Finding]:
    placeholder = f", such as {shorten(notes.shown.get(noticing.PLACEHOLDER, ''), 40)}"
    control = f", such as {printable(notes.control_example)}, which becomes that token"
    kinds = {
        **dict.fromkeys(noticing.SECRETS, ("secrets", "{rows} what looks like " + "{what}", [_NO_SECRETS])),
        noticing.EMAIL: ("addresses", "{rows} an e-mail address", [_NO_ADDRESSES]),
        **dict.fromkeys(
            (noticing.REPEATED, noticing.ECHO, noticing.SHORTEST),
            ("degenerate", "{rows} {what}", [_NO_DEGENERATE]),
        ),
        noticing.GARBLED: ("encoding", "{rows} {what}", [*_encodings(data), _NO_DAMAGE]),
        noticing.REPLACED: ("encoding", "{rows} {what}", [_NO_DAMAGE]),
        noticing.CONTROL: ("control_tokens", f"{{rows}} {{what}}{control}", [_NO_CONTROL]),
        noticing.TOOLS: ("tools", "{rows} {what}", [_NO_TOOLS]),
        noticing.PLACEHOLDER: ("placeholders", "{rows} {what}" + placeholder, [_NO_PLACEHOLDERS]),
        noticing.MEDIA_TAG: ("media", "{rows} {what}", []),
    }
    for what, count in notes.noticed.counts.items():
        if what not in kinds:
            continue
        kind, says, actions = kinds[what]
        tally = Dropped({what: count}, {what: notes.noticed.examples.get(what, [])})
        yield _finding(kind, says.replace("{what}", what), tally, actions, names, verb=("holds", "hold"))
    for reason, kind in _LEFT_OUT.items():
        if count := notes.dropped.counts.get(reason, 0):
            tally = Dropped({reason: count}, {reason: notes.dropped.examples.get(reason, [])})
            yield _finding(kind, f"{{rows}} left out: {reason}", tally, [], names)


def _encodings(data: DataSection) -> list[Setting]:
    if data.encoding != "utf-8":
        return []
    return [Setting(key="data.encoding", value="cp1252", says="reads the files as Windows-1252")]


def _of_lengths(lengths: Lengths, data: DataSection, names: Sequence[str]) -> Iterator[Finding]:
    if lengths.truncated.total:
        says = f"{{rows}} cut to {data.max_length} tokens, which loses {lengths.lost_share:.1%} of all tokens"
        actions = [_NO_LONG] if data.overlong == "split" else [_NO_LONG, _SPLIT_LONG]
        yield _finding("overlong", says, lengths.truncated, actions, names)
    if lengths.continued.total:
        says = f"{{rows}} longer than {data.max_length} tokens; what follows goes on in {lengths.further} further rows"
        yield _finding("continued", says, lengths.continued, [_NO_LONG], names)


def _finding(
    kind: str,
    says: str,
    tally: Dropped,
    actions: Sequence[Setting],
    names: Sequence[str],
    *,
    verb: tuple[str, str] = ("is", "are"),
) -> Finding:
    count = tally.total
    first = row_places(chain.from_iterable(tally.examples.values()), names)
    rows = f"One row {verb[0]}" if count == 1 else f"{count} rows {verb[1]}"
    return Finding(kind=kind, says=says.replace("{rows}", rows) + ".", rows=count, first=first, actions=list(actions))


def in_words(finding: Finding, *, several: bool) -> str:
    """A finding as one warning: what, where, and what to do.

    Args:
        finding: What was noticed.
        several: Whether there are several files, so that a row's number alone does not say where it is.
    """
    where = ""
    if finding.first:
        more = " ..." if finding.rows > len(finding.first) else ""
        where = f" (row{'s' if finding.rows > 1 else ''} {rows_in_words(finding.first, several=several)}{more})"
    does = " or ".join(f'{action.key} = "{action.value}" {action.says}' for action in finding.actions)
    return f"{finding.says.removesuffix('.')}{where}.{f' {does}.' if does else ''}"


def rows_in_words(places: Iterable[RowPlace], *, several: bool) -> str:
    """Rows by number, and by file where there are several: 3, 17 of a.jsonl; 4 of b.jsonl.

    Args:
        places: In order.
        several: Whether there are several files.
    """
    by_file = groupby(places, key=lambda place: place.file)
    return "; ".join(
        f"{', '.join(str(place.row) for place in of_file)}{f' of {PurePath(file).name}' if several else ''}"
        for file, of_file in by_file
    )


def cut_lines(rows: Rows, used: Sequence[int] | np.ndarray, longest: int) -> list[CutLine]:
    """What common longest lengths, and the recipe's own, would cut.

    Args:
        rows: All documents.
        used: Numbers of those to count.
        longest: The recipe's max_length, tokens.
    """
    lengths = rows.whole_lengths[used].astype(np.int64)
    learned = rows.whole_supervised[used]
    lines = []
    for cut in sorted({*_CUTS, longest}):
        over = lengths > cut
        if cut != longest and not over.any():
            continue
        kept = rows.supervised_within(cut)[used]
        lines.append(
            CutLine(
                max_length=cut,
                rows_cut=int(over.sum()),
                tokens_lost=int((lengths - np.minimum(lengths, cut)).sum()),
                learned_lost=int((learned - kept).sum()),
            )
        )
    return lines


def column_readings(source: Source) -> list[ColumnReading]:
    """How a part's columns can be read, the reading in use first, each with an example."""
    in_use = source.layout
    same = [(one.layout.shape, one.layout.columns) == (in_use.shape, in_use.columns) for one in source.readings]
    used = [reading for reading, equal in zip(source.readings, same, strict=True) if equal and not in_use.by_hand]
    others = [reading for reading, equal in zip(source.readings, same, strict=True) if not equal]
    chosen = used or [Reading(in_use, 1.0, AS_TOLD)]
    example = next(iter(source.values()), {})
    return [_reading(reading, example) for reading in [*chosen[:1], *others[:4]]]


def _reading(reading: Reading, example: dict[str, object]) -> ColumnReading:
    columns = reading.layout.columns
    return ColumnReading(
        shape=reading.layout.shape,
        columns=columns,
        confidence=round(reading.confidence, 3),
        says=reading.why,
        example={meaning: shorten(example.get(name, ""), 200) for meaning, name in columns.items()},
        settings=[
            Setting(key="data.shape", value=reading.layout.shape, says="reads it so"),
            Setting(
                key="data.columns", value=[f"{meaning}={name}" for meaning, name in columns.items()], says="says which"
            ),
        ],
    )
