"""A benchmark that goes on: plain data that engine and window share."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

BenchKind = Literal["kernels", "step", "gguf"]


class Bench(BaseModel):
    """A `burnish bench` that goes on, whoever started it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    v: Literal[1] = 1
    kind: BenchKind
    about: str = Field(description="What is measured: kernels, a model's shape, or files.")
    started: float = Field(description="Seconds since the epoch.")
    share: float | None = Field(default=None, ge=0, le=1, description="How far it is; None: it cannot be told.")
    pid: int
    process_created: float
