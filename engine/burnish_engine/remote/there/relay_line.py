"""The lines that a job reports its progress with: JSON behind a mark, so that other output in between does no harm."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationError

from burnish_engine.contract.record import Record
from burnish_engine.contract.run.events import MOST_EVENTS

MARK = "@burnish "
LAST_ATTEMPT = 10**6
"""Highest number of an attempt; the end that a place tells by itself has it, whatever attempt it is of."""
MOST_FILES = 100_000
"""Most files of a result."""


class RelayLine(Record):
    """One line of a job's progress."""

    kind: Literal["attempt", "event", "hardware", "state", "end"] = Field(
        description="attempt: the job begins, or begins again after preemption. event, hardware, state: a line or the "
        "content of the run's file of that name. end: nothing comes any more."
    )
    attempt: int = Field(default=0, ge=0, le=LAST_ATTEMPT, description="Number of the attempt that it belongs to.")
    events: int = Field(
        default=0, ge=0, le=MOST_EVENTS, description="attempt: number of events that the run had when it began."
    )
    text: str = Field(default="", description="Content: a line of a file. end: what went wrong outside the run.")
    status: str = Field(default="", description="end: status of the run there.")
    exit_code: int | None = Field(
        default=None, ge=-(2**31), lt=2**32, description="end: exit code of the run; None where none is known."
    )
    files: dict[str, str] = Field(
        default={}, max_length=MOST_FILES, description="end: SHA-256 of each file of the result, by its path."
    )


def write_line(line: RelayLine) -> str:
    """Write a line, without its line feed."""
    return MARK + line.model_dump_json(exclude_defaults=True)


def read_line(text: str) -> RelayLine | None:
    """Read a line; None where it is something else that the job printed, or was torn."""
    if not text.startswith(MARK):
        return None
    try:
        return RelayLine.model_validate_json(text[len(MARK) :])
    except ValidationError:
        return None
