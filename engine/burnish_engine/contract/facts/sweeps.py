"""Types of sweeps: what one would take, and what became of it. Plain data, no torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import ConfigDict, Field

from burnish_engine.contract.facts.advice import RunPlan
from burnish_engine.contract.number import Moment
from burnish_engine.contract.recipe.sweep import SweepCell, SweepSetting
from burnish_engine.contract.record import Facts

SWEEP_VERSION = 1


class SweepRunPlan(Facts):
    """A run of a sweep before it is started."""

    name: str
    values: list[bool | int | float | str] = Field(description="Value of each setting, in their order.")
    seconds: float | None = Field(default=None, description="Predicted training time; None: unknown.")
    memory_bytes: int = Field(description="Predicted peak of the device's memory.")
    disk_bytes: int = Field(description="Checkpoints and results.")
    fits: bool
    problem: str = Field(default="", description="Why it does not fit.")


class SweepPlan(Facts):
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


def sweep_plan(settings: Sequence[SweepSetting], cells: Sequence[SweepCell], plans: Sequence[RunPlan]) -> SweepPlan:
    """Make the plan of a sweep from the plans of its runs.

    Args:
        settings: settings that vary.
        cells: recipe of each run.
        plans: plan of each run.
    """
    runs = [
        SweepRunPlan(
            name=cell.recipe.name,
            values=cell.values,
            seconds=plan.total_seconds,
            memory_bytes=plan.memory_bytes,
            disk_bytes=plan.disk_bytes,
            fits=plan.fits,
            problem=" ".join(plan.problems),
        )
        for cell, plan in zip(cells, plans, strict=True)
    ]
    return SweepPlan(
        settings=list(settings), runs=runs, device=plans[0].device, disk_free_bytes=plans[0].disk_free_bytes
    )


class SweptRun(Facts):
    """A run of a sweep."""

    folder: str
    values: list[bool | int | float | str] = Field(description="Value of each setting, in their order.")


class SweepFile(Facts):
    """Content of a file in the folder of sweeps. Written once, when the sweep is queued; its runs are ordinary ones."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    v: Literal[1] = 1
    name: str
    created: Moment = Field(description="Seconds since the epoch.")
    settings: list[SweepSetting]
    runs: list[SweptRun]
