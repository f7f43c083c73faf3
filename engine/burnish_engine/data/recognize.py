"""Recognize what the columns of a file mean, ask where that is not clear, and take what a person says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from burnish_engine.contract.errors import DataError, UsageError
from burnish_engine.data.problems import shorten
from burnish_engine.data.readings import SURE, by_name, columns_of, readings, role_key
from burnish_engine.data.shapes import MEANINGS, SHAPES, Layout
from burnish_engine.data.unsupported import refuse_unsupported

_APART = 0.05  # two readings that are this close in confidence are ambiguous
_USUAL_NAMES = {"conversation": "messages"}
"""Meaning to the column name under which it is recognized, where that is not the meaning itself."""


def recognize(
    samples: Sequence[dict[str, Any]], source: str, forced: str = "auto", columns: Sequence[str] = ()
) -> Layout:
    """What the columns of a file mean.

    Args:
        samples: Some of its rows, as column to value.
        source: What to call the file in messages.
        forced: The only shape to consider, or "auto".
        columns: The recipe's "meaning=column" pairs; they are taken as they are.

    Raises:
        UsageError: `columns` is not understood.
        DataError: The columns fit no shape, not the forced one, or several about equally well.
    """
    names = columns_of(samples)
    if columns:
        return _told(names, source, forced, columns, samples)
    found = readings(samples)
    if forced != "auto":
        fitting = [reading for reading in found if reading.layout.shape == forced]
        if fitting:
            return fitting[0].layout
        refuse_unsupported(source, samples, by_name(samples), found)
        raise DataError(
            f"The columns of {source} ({_shown(names)}) do not fit the shape {forced}, which needs {SHAPES[forced]}.",
            'Rename the columns, set data.columns, or set data.shape = "auto".',
        )
    refuse_unsupported(source, samples, by_name(samples), found)
    known = "; ".join(f"{shape}: {needs}" for shape, needs in SHAPES.items())
    if not found:
        raise DataError(
            f"The columns of {source} ({_shown(names)}) fit no known shape.",
            f'Say which is which, such as data.columns = ["prompt=...", "completion=..."]. The shapes: {known}.',
        )
    rivals = [reading for reading in found if found[0].confidence - reading.confidence < _APART]
    if len(rivals) > 1 or found[0].confidence < SURE:
        ways = f"{len(rivals)} ways" if len(rivals) > 1 else "one way, and that is a guess"
        raise DataError(
            f"The columns of {source} ({_shown(names)}) can be read in {ways}: "
            f"{'; or '.join(reading.why for reading in rivals[:4])}.",
            f"Say which in the recipe: {'; or '.join(reading.as_setting for reading in rivals[:4])}.",
        )
    return found[0].layout


def _told(
    names: Sequence[str], source: str, forced: str, columns: Sequence[str], samples: Sequence[dict[str, Any]]
) -> Layout:
    """The layout that a person gave, with what is missing recognized.

    Raises:
        UsageError: The columns make no shape, or not the forced one.
        DataError: The file lacks one of them.
    """
    pairs = {}
    for pair in columns:
        meaning, _, name = (part.strip() for part in pair.partition("="))
        if name not in names:
            raise DataError(f"{source} has no column {name!r}; it has: {_shown(names)}.", "Correct data.columns.")
        pairs[meaning] = name
    fitting = [
        (len(needs), shape)
        for shape, ways in MEANINGS.items()
        for needs in ways
        if all(meaning in pairs for meaning in needs) and forced in ("auto", shape)
    ]
    if not fitting:
        return _completed(pairs, forced, samples)
    shape = max(fitting, key=lambda found: found[0])[1]  # of equal ones the first
    if shape == "messages" and forced == "auto" and role_key(pairs["conversation"], samples) == "from":
        shape = "sharegpt"
    return Layout(shape, pairs, by_hand=True)


def _completed(pairs: dict[str, str], forced: str, samples: Sequence[dict[str, Any]]) -> Layout:
    """A layout of which a person gave some columns: the others are recognized as if those had their usual names.

    Raises:
        UsageError: Nothing sure comes of it.
    """
    usual = {name: _USUAL_NAMES.get(meaning, meaning) for meaning, name in pairs.items()}
    own = {known: name for name, known in usual.items()}
    kept = [{name: value for name, value in row.items() if name in usual or name not in own} for row in samples]
    renamed = [{usual.get(name, name): value for name, value in row.items()} for row in kept]
    for reading in readings(renamed):
        columns = {meaning: own.get(name, name) for meaning, name in reading.layout.columns.items()}
        if forced in ("auto", reading.layout.shape) and reading.confidence >= SURE and pairs.items() <= columns.items():
            return replace(reading.layout, columns=columns, by_hand=True)
    needs = "; ".join(f"{shape}: {' or '.join(map(', '.join, ways))}" for shape, ways in MEANINGS.items())
    raise UsageError(
        f"data.columns names {', '.join(pairs)}, which makes no shape" + (f" {forced}." if forced != "auto" else "."),
        f"The shapes need: {needs}.",
    )


def _shown(names: Sequence[str]) -> str:
    return ", ".join(shorten(name, 40) for name in names[:20]) or "none"
