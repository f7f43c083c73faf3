"""What an export will take, before it begins."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from burnish_engine.contract.recipe_export import GgufType


class _Facts(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")


class ExportStage(_Facts):
    """One stage."""

    what: str = Field(description="As the export's job says it while it goes on.")
    disk_bytes: int = Field(description="What it adds to the disk.")
    memory_bytes: int = Field(description="What it takes at its peak.")
    seconds: float = Field(description="Roughly.")


class ExportForecast(_Facts):
    """Disk, memory and time of an export to GGUF, and the exact size of each file."""

    sizes: dict[GgufType, int] = Field(description="Bytes of each file asked for.")
    stages: list[ExportStage] = Field(description="In order.")
    disk_bytes: int = Field(description="Free disk it needs.")
    disk_free_bytes: int
    memory_bytes: int = Field(description="Free memory it needs.")
    memory_free_bytes: int
    seconds: float = Field(description="Roughly.")
