"""Commands a client may send to a run by appending to its `control.jsonl`."""

from __future__ import annotations

import uuid
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

CommandName = Literal["stop", "stop_now", "checkpoint", "pause", "resume", "suspend", "sample", "smaller_plan"]
COMMAND_MEANINGS = (
    "stop: save and end. stop_now: end without saving. checkpoint: save and continue. pause: hold, keeping memory. "
    "resume: end a pause. suspend: save, exit and free memory. sample: answer the fixed prompts. smaller_plan: "
    "continue with the next smaller memory plan; the numbers stay the same."
)
"""Meaning of each command."""


class Command(BaseModel):
    """One line of `control.jsonl`. The engine reads it between optimizer steps and acknowledges it as an event."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    v: Literal[1] = 1
    id: str = Field(default_factory=lambda: uuid.uuid4().hex, description="Unique id, echoed by the acknowledgement.")
    name: CommandName = Field(description=COMMAND_MEANINGS)
    t: float = Field(default=0.0, ge=0, description="When it was sent, seconds since the epoch.")
