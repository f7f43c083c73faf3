"""The notes of a person about a run: tags and a text, in `notes.json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

from pydantic import ValidationError, field_validator

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.files import read_with_retry, write_atomic
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.record import Record

MAX_TAGS = 12
_LONGEST_TAG = 40
_LONGEST_TEXT = 4000


class RunNotes(Record):
    """Content of `notes.json`. Any client replaces it."""

    v: Literal[1] = 1
    tags: tuple[str, ...] = ()
    text: str = ""

    @field_validator("tags")
    @classmethod
    def _tidy(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        """Strip tags, and drop empty ones and repetitions."""
        stripped = (" ".join(tag.split()) for tag in tags)
        kept = tuple(dict.fromkeys(tag for tag in stripped if tag))
        long = next((tag for tag in kept if len(tag) > _LONGEST_TAG), None)
        if long is not None:
            raise ValueError(f"a tag has at most {_LONGEST_TAG} characters; this one has {len(long)}: {long[:60]}")
        if len(kept) > MAX_TAGS:
            raise ValueError(f"a run has at most {MAX_TAGS} tags, not {len(kept)}")
        return kept

    @field_validator("text")
    @classmethod
    def _short(cls, text: str) -> str:
        if len(text) > _LONGEST_TEXT:
            raise ValueError(f"the text has at most {_LONGEST_TEXT:,} characters, not {len(text):,}")
        return text


def split_tags(text: str) -> list[str]:
    """Split a typed text into tags, at its commas."""
    return [tag.strip() for tag in text.split(",") if tag.strip()]


def read_notes(paths: RunPaths) -> RunNotes:
    """Read a run's notes; empty ones where there are none.

    Raises:
        UsageError: The file is damaged, cannot be read, or has another version.
    """
    try:
        return RunNotes.model_validate_json(read_with_retry(paths.notes))
    except FileNotFoundError:
        return RunNotes()
    except (OSError, ValueError):
        raise UsageError(
            f"The notes in {paths.notes} are damaged, or another version of Burnish wrote them.",
            "Look into the file and correct it, or move it away: it is not overwritten.",
        ) from None


def write_notes(paths: RunPaths, tags: Sequence[str], text: str) -> RunNotes:
    """Replace a run's notes.

    Args:
        paths: paths of the run.
        tags: tags; empty ones and repetitions are dropped.
        text: text of the notes.

    Raises:
        UsageError: There are too many tags, something is too long, or the former notes cannot be read.
        NoSpaceError: The file cannot be written.
    """
    read_notes(paths)  # what nobody could read is not overwritten
    try:
        notes = RunNotes(tags=tuple(tags), text=text.strip())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        what = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"The notes were not kept: {what[:1].lower()}{what[1:]}.", "Shorten them.") from None
    write_atomic(paths.notes, json.dumps(notes.model_dump(mode="json"), ensure_ascii=False, indent=1) + "\n")
    return notes
