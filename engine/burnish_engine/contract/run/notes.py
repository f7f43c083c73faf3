"""The notes of a person about a run: tags and a text, in `notes.json`."""

from __future__ import annotations

import json
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.files import read_with_retry, write_atomic
from burnish_engine.contract.paths import RunPaths

MAX_TAGS = 12
_LONGEST_TAG = 40
_LONGEST_TEXT = 4000


class RunNotes(BaseModel):
    """Content of `notes.json`. Any client replaces it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    v: Literal[1] = 1
    tags: tuple[str, ...] = Field(default=(), max_length=MAX_TAGS)
    text: str = Field(default="", max_length=_LONGEST_TEXT)

    @field_validator("tags")
    @classmethod
    def _tidy(cls, tags: tuple[str, ...]) -> tuple[str, ...]:
        """Strip tags, and drop empty ones and repetitions."""
        stripped = (" ".join(tag.split()) for tag in tags)
        kept = tuple(dict.fromkeys(tag for tag in stripped if tag))
        long = next((tag for tag in kept if len(tag) > _LONGEST_TAG), None)
        if long is not None:
            raise ValueError(f"a tag has at most {_LONGEST_TAG} characters; this one has {len(long)}: {long[:60]}")
        return kept


def split_tags(text: str) -> list[str]:
    """Split a typed text into tags, at its commas."""
    return [tag.strip() for tag in text.split(",") if tag.strip()]


def read_notes(paths: RunPaths) -> RunNotes:
    """Read a run's notes; empty ones where there are none, or where they cannot be read."""
    try:
        return RunNotes.model_validate_json(read_with_retry(paths.notes))
    except (OSError, ValueError):
        return RunNotes()


def write_notes(paths: RunPaths, tags: list[str], text: str) -> RunNotes:
    """Replace a run's notes.

    Args:
        paths: paths of the run.
        tags: tags; empty ones and repetitions are dropped.
        text: text of the notes.

    Raises:
        UsageError: There are too many tags, or something is too long.
        NoSpaceError: The file cannot be written.
    """
    try:
        notes = RunNotes(tags=tuple(tags), text=text.strip())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        what = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"The notes were not kept: {what[:1].lower()}{what[1:]}.", "Shorten them.") from None
    write_atomic(paths.notes, json.dumps(notes.model_dump(mode="json"), ensure_ascii=False, indent=1) + "\n")
    return notes
