"""The downloads of models that wait, run or ended: plain data that engine and window share."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

DownloadStatus = Literal["queued", "running", "paused", "failed", "finished"]


class Download(BaseModel):
    """A model's place in the queue of downloads. It never holds an access token."""

    model_config = ConfigDict(extra="ignore", frozen=True, ser_json_inf_nan="strings")

    v: Literal[1] = 1
    name: str = Field(description='The model\'s name on the hub, such as "Qwen/Qwen3-0.6B".')
    status: DownloadStatus = "queued"
    gated: bool = Field(default=False, description="Whether it was asked for with an access token of its own.")
    what: str = Field(default="", description="What is being done, in words.")
    done: int = Field(default=0, description="Downloaded bytes.")
    total: int = Field(default=0, description="All bytes; 0: not known yet.")
    bytes_per_s: float = Field(default=0.0, description="Speed of the last seconds.")
    message: str = Field(default="", description="Why it failed or waits for a person.")
    remedy: str = ""
    added: float = Field(default=0.0, description="When it was asked for, seconds since the epoch.")
    losses: int = Field(default=0, description="How often its process ended without a word.")
    pid: int | None = Field(default=None, description="The process that downloads it, or that has its access token.")
    process_created: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether it still has to be downloaded, now or when a person continues with it."""
        return self.status != "finished"

    @property
    def seconds_left(self) -> float | None:
        """Predicted time to the end, seconds; None where it is not known."""
        if self.status != "running" or not self.total or self.bytes_per_s <= 0:
            return None
        return max(self.total - self.done, 0) / self.bytes_per_s
