"""The base classes of every line and request of `burnish serve`, and the version of its protocol."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

PROTOCOL_VERSION = 2
MAX_LINE_BYTES = 8 * 2**20
"""Longest line, bytes; longer ones are refused, so that a faulty client cannot fill the memory."""
MOST_OPEN = 64
"""Most requests at the same time: a window needs a handful, a runaway client must not start threads forever."""


class ProtocolLine(BaseModel):
    """An object of a line: its fields are all that may stand in it."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), ser_json_inf_nan="strings")


class ProtocolRequest(ProtocolLine):
    """A request of a client, with an id of its own choice."""

    id: str = Field(min_length=1, max_length=64, description="Chosen by the client; carried by every answer.")
