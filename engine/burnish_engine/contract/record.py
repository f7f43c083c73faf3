"""Base classes of plain data: facts that processes hand to one another, and records that are kept in files."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Facts(BaseModel):
    """Facts of an answer: immutable; an unknown field is refused, and NaN and infinity travel as strings."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")


class Record(BaseModel):
    """A record of a file or an event: immutable; unknown fields are ignored, since a newer version may add some."""

    model_config = ConfigDict(extra="ignore", frozen=True)
