"""Types for samples of the hardware: what GPUs, processor and memory do from second to second. Plain data, no torch.

A recording is a sequence of lines: a `HardwareStart` says what is sampled, `HardwareSample` lines follow, and a
`MemoryUsers` line stands where the processes that hold GPU memory changed. `hardware.jsonl` of a run folder and the
stream of `burnish serve` have the same lines.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

ThrottleReason = Literal[
    "idle",
    "set_clocks",
    "power_limit",
    "hardware_slowdown",
    "sync_boost",
    "heat",
    "hardware_heat",
    "power_brake",
    "display_clocks",
]
"""Reasons why a GPU's clocks are below their best (NVML's nvmlClocksEventReasons).

idle: nothing to do. set_clocks: application clocks were set. power_limit: the card is at its power limit.
hardware_slowdown: the board slowed the card down for heat or power. sync_boost: it follows other cards. heat: the
driver holds the temperature. hardware_heat: the chip is too hot. power_brake: the power supply asked for it.
display_clocks: a display setting.
"""


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, ser_json_inf_nan="strings")


class SampledGpu(_Line):
    """A GPU whose samples follow: what does not change meanwhile."""

    index: int = Field(description="Index of the GPU, as in the machine's facts.")
    name: str = ""
    memory_total_bytes: int = 0
    unified_memory: bool = Field(default=False, description="The GPU shares the system's memory.")
    power_limit_w: float | None = None
    best_clock_mhz: int | None = Field(default=None, description="Highest clock of the multiprocessors.")
    slowdown_c: int | None = Field(default=None, description="Temperature at which the card slows itself down.")
    best_pcie_generation: int | None = Field(default=None, description="Best that card and slot can do together.")
    best_pcie_width: int | None = Field(default=None, description="Most lanes that card and slot can do together.")


class HardwareStart(_Line):
    """The first line of each process that samples."""

    type: Literal["start"] = "start"
    v: Literal[1] = 1
    t: float = Field(description="Wall-clock time, seconds since the epoch.")
    pid: int = Field(default=0, description="Process that samples.")
    gpus: list[SampledGpu] = []
    ram_total_bytes: int = 0
    problem: str = Field(default="", description="Why the GPUs cannot be sampled, in words; empty: they can, or none.")


class GpuSample(_Line):
    """One GPU in one interval. A value that the driver does not tell is left out."""

    index: int
    used_bytes: int | None = Field(default=None, description="Memory in use, by all processes together.")
    ours_bytes: int | None = Field(default=None, description="Part of it that Burnish holds: the run, or all of ours.")
    spilled_bytes: int | None = Field(
        default=None, description="What the driver moved to system memory because the card is full (Windows counts it)."
    )
    load: float | None = Field(default=None, description="Share of the time in which a kernel ran, 0 to 1.")
    temperature_c: float | None = None
    power_w: float | None = Field(default=None, description="Mean over the interval, from the card's energy counter.")
    clock_mhz: float | None = Field(default=None, description="Clock of the multiprocessors.")
    memory_clock_mhz: float | None = None
    fan: float | None = Field(default=None, description="Speed of the fan that was asked for, 0 to 1.")
    throttle: dict[ThrottleReason, float] = Field(
        default={}, description="Why clocks are below their best: share of the interval for each reason."
    )
    to_gpu_gb_s: float | None = Field(default=None, description="PCIe traffic to the GPU, 10^9 bytes/s.")
    from_gpu_gb_s: float | None = Field(default=None, description="PCIe traffic from the GPU, 10^9 bytes/s.")
    pcie_generation: int | None = Field(default=None, description="PCIe generation in use.")
    pcie_width: int | None = Field(default=None, description="Lanes in use.")

    @property
    def others_bytes(self) -> int | None:
        """Memory that other programs hold; None where the driver does not tell ours from theirs."""
        if self.used_bytes is None or self.ours_bytes is None:
            return None
        return max(0, self.used_bytes - self.ours_bytes)


class HardwareSample(_Line):
    """The hardware in one interval. Old samples are merged: means, but the largest memory and temperature."""

    type: Literal["sample"] = "sample"
    t: float = Field(description="End of the interval, seconds since the epoch.")
    seconds: float = Field(description="Length of the interval.")
    cpu: float | None = Field(default=None, description="Load of all processor cores, 0 to 1.")
    ram_used_bytes: int | None = Field(default=None, description="System memory in use, by all processes.")
    process_bytes: int | None = Field(default=None, description="System memory of the run, or of all of ours.")
    gpus: list[GpuSample] = []


class MemoryHolder(_Line):
    """A process that holds memory of a GPU."""

    pid: int
    name: str = Field(default="", description="Name of the program; empty where the system does not tell it.")
    bytes: int | None = Field(default=None, description="null where the driver does not say (Windows).")
    ours: bool = Field(default=False, description="Whether it belongs to Burnish.")


class GpuHolders(_Line):
    """The processes that hold memory of one GPU, largest first."""

    index: int
    holders: list[MemoryHolder]


class MemoryUsers(_Line):
    """Which processes hold GPU memory from now on. Written where that changed."""

    type: Literal["users"] = "users"
    t: float = Field(description="Wall-clock time, seconds since the epoch.")
    gpus: list[GpuHolders]


HardwareLine = Annotated[HardwareStart | HardwareSample | MemoryUsers, Field(discriminator="type")]
"""Union of the lines of a recording."""

_LINES: TypeAdapter[HardwareLine] = TypeAdapter(HardwareLine)


def parse_hardware_line(line: str | bytes) -> HardwareLine:
    """Parse one line of a recording.

    Raises:
        pydantic.ValidationError: The line is none, or of a newer version.
    """
    return _LINES.validate_json(line)


def hardware_line_json(line: HardwareStart | HardwareSample | MemoryUsers) -> str:
    """Write a line of a recording without what is not known."""
    return line.model_dump_json(exclude_none=True)
