"""Types for the forecast of an export: disk, memory and time before it begins."""

from __future__ import annotations

from pydantic import Field

from burnish_engine.contract.recipe.recipe_export import GgufType
from burnish_engine.contract.record import Facts


class ExportStage(Facts):
    """One stage of an export."""

    what: str = Field(description="Name of the stage, as the export's job shows it.")
    disk_bytes: int = Field(description="Disk space that it adds.")
    memory_bytes: int = Field(description="Peak of the memory that it takes.")
    seconds: float = Field(description="Roughly.")


class TypeForecast(Facts):
    """Forecast of the file of one GGUF type."""

    quant: GgufType
    bytes: int = Field(description="Exact.")
    mean_kl: float = Field(description="Mean KL(trained model || file), nats, as published for another model.")
    gain_kept: float | None = Field(
        description="As `QuantFidelity.gain_kept`; None: training gained nothing that was measured."
    )
    tokens_per_s: float = Field(description="Generation speed on this machine's processor, roughly.")


class ExportForecast(Facts):
    """Disk, memory and time of an export to GGUF, and the exact size of each file."""

    sizes: dict[GgufType, int] = Field(description="Bytes of each file asked for.")
    stages: list[ExportStage] = Field(description="In order.")
    disk_bytes: int = Field(description="Free disk it needs.")
    disk_free_bytes: int
    memory_bytes: int = Field(description="Free memory it needs.")
    memory_free_bytes: int
    seconds: float = Field(description="Roughly.")
    types: list[TypeForecast] = Field(default=[], description="Every type that the model's rows fit.")
    target_bytes: int = Field(default=0, description="Largest file that the recipe's target runs; 0: not known.")
