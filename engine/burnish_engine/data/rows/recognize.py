"""Recognizes what the columns of a file mean; the recipe's settings come first, and ambiguous columns are an error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from burnish_engine.contract.errors import DataError, UsageError
from burnish_engine.data.files.problems import shorten
from burnish_engine.data.rows.column_readings import (
    SURE,
    CandidateReading,
    by_name,
    columns_of,
    find_readings,
    role_key,
)
from burnish_engine.data.rows.shapes import MEANINGS, SHAPES, ColumnLayout
from burnish_engine.data.rows.unsupported import refuse_unsupported

_AMBIGUITY_MARGIN = 0.05  # readings whose confidences differ by less are ambiguous
_USUAL_NAMES = {"conversation": "messages"}
"""Meaning to the column name that it is recognized by, where the two differ."""


def recognize(
    samples: Sequence[dict[str, Any]],
    source: str,
    forced: str = "auto",
    columns: Sequence[str] = (),
    *,
    found: Sequence[CandidateReading] | None = None,
) -> ColumnLayout:
    """Recognize what the columns of a file mean.

    Args:
        samples: some of the file's rows, as column to value.
        source: name of the file in messages.
        forced: the only shape to consider, or "auto".
        columns: the recipe's "meaning=column" pairs; they are taken as they are.
        found: result of `find_readings` for the samples, where the caller has it.

    Raises:
        UsageError: `columns` is not understood.
        DataError: The columns fit no shape, not the forced one, or several about equally well.
    """
    names = columns_of(samples)
    if columns:
        return _layout_from_recipe(names, source, forced, columns, samples)
    found = find_readings(samples) if found is None else found
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
    rivals = [reading for reading in found if found[0].confidence - reading.confidence < _AMBIGUITY_MARGIN]
    if len(rivals) > 1 or found[0].confidence < SURE:
        ways = f"{len(rivals)} ways" if len(rivals) > 1 else "one way, and that is a guess"
        raise DataError(
            f"The columns of {source} ({_shown(names)}) can be read in {ways}: "
            f"{'; or '.join(reading.why for reading in rivals[:4])}.",
            f"Say which in the recipe: {'; or '.join(reading.as_setting for reading in rivals[:4])}.",
        )
    return found[0].layout


def _layout_from_recipe(
    names: Sequence[str], source: str, forced: str, columns: Sequence[str], samples: Sequence[dict[str, Any]]
) -> ColumnLayout:
    """Build the layout from the recipe's columns, and recognize the columns that it does not name."""
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
        return _completed_layout(pairs, forced, samples)
    shape = max(fitting, key=lambda found: found[0])[1]  # the first of equal ones
    if shape == "messages" and forced == "auto" and role_key(pairs["conversation"], samples) == "from":
        shape = "sharegpt"
    return ColumnLayout(shape, pairs, from_recipe=True)


def _completed_layout(pairs: dict[str, str], forced: str, samples: Sequence[dict[str, Any]]) -> ColumnLayout:
    """Recognize the columns that the recipe does not name, as if the named ones had their usual names."""
    usual = {name: _USUAL_NAMES.get(meaning, meaning) for meaning, name in pairs.items()}
    own = {known: name for name, known in usual.items()}
    kept = [{name: value for name, value in row.items() if name in usual or name not in own} for row in samples]
    renamed = [{usual.get(name, name): value for name, value in row.items()} for row in kept]
    for reading in find_readings(renamed):
        columns = {meaning: own.get(name, name) for meaning, name in reading.layout.columns.items()}
        if forced in ("auto", reading.layout.shape) and reading.confidence >= SURE and pairs.items() <= columns.items():
            return replace(reading.layout, columns=columns, from_recipe=True)
    needs = "; ".join(f"{shape}: {' or '.join(map(', '.join, ways))}" for shape, ways in MEANINGS.items())
    raise UsageError(
        f"data.columns names {', '.join(pairs)}, which makes no shape" + (f" {forced}." if forced != "auto" else "."),
        f"The shapes need: {needs}.",
    )


def _shown(names: Sequence[str]) -> str:
    return ", ".join(shorten(name, 40) for name in names[:20]) or "none"
