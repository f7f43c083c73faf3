"""Types of sweeps: what one would take, and what became of it. Plain data, no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from burnish_engine.contract.recipe.sweep import SweepSetting

SWEEP_VERSION = 1


class _Sweep(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")


class SweepRunPlan(_Sweep):
    """A run of a sweep before it is started."""

    name: str
    values: list[bool | int | float | str] = Field(description="Value of each setting, in their order.")
    seconds: float | None = Field(default=None, description="Predicted training time; None: unknown.")
    memory_bytes: int = Field(description="Predicted peak of the device's memory.")
    disk_bytes: int = Field(description="Checkpoints and results.")
    fits: bool
    problem: str = Field(default="", description="Why it does not fit.")


class SweepPlan(_Sweep):
    """The plan of a sweep: its runs, and what each would take."""

    settings: list[SweepSetting]
    runs: list[SweepRunPlan]
    device: str
    disk_free_bytes: int

    @property
    def seconds(self) -> float | None:
        """The predicted training time of all runs, one after the other; None where it is unknown of one."""
        known = [run.seconds for run in self.runs if run.seconds is not None]
        return sum(known) if len(known) == len(self.runs) else None


class SweptRun(_Sweep):
    """A run of a sweep."""

    folder: str
    values: list[bool | int | float | str] = Field(description="Value of each setting, in their order.")


class SweepFile(_Sweep):
    """Content of a file in the folder of sweeps. Written once, when the sweep is queued; its runs are ordinary ones."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    v: Literal[1] = 1
    name: str
    created: float = Field(description="Seconds since the epoch.")
    settings: list[SweepSetting]
    runs: list[SweptRun]
