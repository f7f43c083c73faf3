"""Types for facts about the machine: GPUs, the links between them, processor, memory, disk. Plain data, no torch.

Facts that a system may not tell are None where unknown, because unknown is not zero.
"""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from burnish_engine.contract.record import Facts

CommonAncestor = Literal["internal", "single", "multiple", "hostbridge", "node", "system"]
"""Point where the paths of two GPUs meet (NVML's nvmlGpuTopologyLevel_t): on one board, at one PCIe switch, over
several
switches, at one host bridge, within one NUMA node, or only across sockets."""
Strategy = Literal["single", "data_parallel", "sharded"]
LinkKind = Literal["nvlink", "pcie_p2p", "host_staged", "pcie"]
HOST: Final = -1
"""Node number of the host in a machine's graph; a GPU's node number is its index."""
_DIFFERS = 0.25  # a measurement further than this from the table is worth a word


class PcieFacts(Facts):
    """A GPU's connection to the host."""

    generation: int | None = Field(default=None, description="PCIe generation in use when read.")
    width: int | None = Field(default=None, description="Lanes in use when read.")
    best_generation: int | None = Field(default=None, description="Best that card and slot can do together.")
    best_width: int | None = Field(default=None, description="Most lanes that card and slot can do together.")
    card_generation: int | None = Field(default=None, description="Best that the card alone can do.")
    under_load: bool = Field(
        default=False, description="Whether it was read during a copy. Idle cards show a lower generation."
    )
    to_gpu_gb_s: float | None = Field(default=None, description="Measured copy from pinned host memory, 10^9 bytes/s.")
    from_gpu_gb_s: float | None = Field(default=None, description="Measured copy to pinned host memory, 10^9 bytes/s.")


class MemoryUser(Facts):
    """A process that holds memory of a GPU."""

    pid: int
    name: str = ""
    bytes: int | None = Field(default=None, description="None where the driver does not say (Windows).")


class GpuFacts(Facts):
    """One NVIDIA GPU as NVML sees it."""

    index: int
    name: str
    uuid: str = ""
    pci_bus_id: str = ""
    compute_capability: tuple[int, int] | None = None
    vram_total_bytes: int = 0
    vram_free_bytes: int = 0
    unified_memory: bool = Field(default=False, description="The GPU shares the system's memory.")
    multiprocessors: int | None = Field(default=None, description="Streaming multiprocessors.")
    memory_bus_bits: int | None = Field(default=None, description="Width of the memory bus, bits.")
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: int | None = None
    clock_mhz: int | None = Field(default=None, description="Clock of the multiprocessors now.")
    best_clock_mhz: int | None = None
    memory_clock_mhz: int | None = Field(default=None, description="Best memory clock as NVML counts it.")
    display: bool | None = Field(default=None, description="Whether a screen hangs on it.")
    mig: bool | None = Field(default=None, description="Whether it is split into instances.")
    pcie: PcieFacts | None = None
    users: list[MemoryUser] = Field(default=[], description="Processes that hold its memory, largest first.")


class LinkMeasurement(Facts):
    """The measured rates of copies between two GPUs."""

    copy_gb_s: float = Field(description="One-way device-to-device copy, 10^9 bytes/s.")
    both_ways_gb_s: float | None = Field(default=None, description="Sum of both directions at once, 10^9 bytes/s.")
    latency_us: float | None = Field(default=None, description="Smallest copy, microseconds.")
    peer_access: bool | None = Field(default=None, description="Whether CUDA lets one read the other's memory.")


class LinkFacts(Facts):
    """The connection of two GPUs."""

    first: int = Field(description="Index of one GPU.")
    second: int = Field(description="Index of the other, larger than `first`.")
    common_ancestor: CommonAncestor | None = Field(default=None, description="None where the system does not say.")
    nvlinks: int = Field(default=0, description="Active NVLink links between the two, switches included.")
    nvlink_gb_s: float | None = Field(
        default=None, description="Their specified rate in one direction, all links together, 10^9 bytes/s."
    )
    p2p_read: bool | None = None
    p2p_write: bool | None = None
    p2p_problem: str = Field(default="", description="Why peer-to-peer is off, in the driver's words.")
    measured: LinkMeasurement | None = None


class ExchangeFacts(Facts):
    """One exchange of gradients as a run measured it."""

    gpus: list[int] = Field(description="Indices of the GPUs, rising.")
    bytes: int = Field(gt=0, description="Size of the buffer that was added up over all of them.")
    ms: float = Field(gt=0, description="Time of one sum, milliseconds.")


class HostCopiesFacts(Facts):
    """Rates of copies between page-locked host memory and all GPUs at once, which share what that memory can do."""

    gpus: int = Field(gt=0, description="Number of GPUs that copied.")
    to_gpus_gb_s: float = Field(gt=0, description="To all of them together, 10^9 bytes/s.")
    from_gpus_gb_s: float = Field(gt=0, description="From all of them together, 10^9 bytes/s.")
    both_ways_gb_s: float = Field(gt=0, description="To and from all of them at once, sum of both, 10^9 bytes/s.")


class EdgeFacts(Facts):
    """A connection in the graph of a machine: between two GPUs, or between a GPU and the host."""

    first: int = Field(description="Index of a GPU.")
    second: int = Field(description="Larger index of another GPU, or -1 for the host.")
    kind: LinkKind = Field(description="What carries the data: NVLink, PCIe directly, or a detour over the host.")
    gb_s: float = Field(
        description="Rate that large copies reach in one direction, 10^9 bytes/s: measured, or expected from the table."
    )
    table_gb_s: float = Field(description="Rate expected from the table, 10^9 bytes/s.")
    measured: bool = Field(description="Whether `gb_s` was measured.")
    spec_gb_s: float | None = Field(
        default=None, description="Specified rate of the connection in one direction, 10^9 bytes/s."
    )

    @property
    def differs(self) -> bool:
        """Whether measurement and table disagree by so much that a person should hear of it."""
        return abs(self.gb_s - self.table_gb_s) > _DIFFERS * self.table_gb_s


class HostFacts(Facts):
    """The facts of a machine beside its GPUs."""

    os: str
    architecture: str
    python: str
    cpu: str
    cpu_cores: int
    ram_total_bytes: int
    ram_free_bytes: int
    disk_free_bytes: int = Field(description="Free bytes on the volume of the user data folder.")
    bf16_cpu: bool | None = Field(default=None, description="Whether the processor has bf16 instructions.")
    sleep_after_s: int | None = Field(
        default=None, description="The system goes to sleep after this idle time; 0: never; None: unknown."
    )
    sleep_note: str = ""
    container: bool | None = Field(default=None, description="Whether this runs in a container or under WSL.")


class MachineFacts(HostFacts):
    """The facts of a machine."""

    gpus: list[GpuFacts] = Field(default=[])
    links: list[LinkFacts] = Field(default=[], description="One entry a pair of GPUs.")
    edges: list[EdgeFacts] = Field(default=[], description="The graph that follows from all this: its connections.")
    all_reduce_gb_s: float | None = Field(
        default=None, description="Measured all-reduce over all GPUs: bytes of the buffer / time, 10^9 bytes/s."
    )
    host_copies: HostCopiesFacts | None = Field(default=None, description="Measured copies of all GPUs at once.")
    exchanges: list[ExchangeFacts] = Field(default=[], description="Exchanges that runs measured, oldest first.")
    driver: str | None = Field(default=None, description="NVIDIA driver version, where one answers.")
    driver_cuda: str | None = Field(default=None, description="Highest CUDA version the driver supports.")
    gpu_problem: str | None = Field(default=None, description="Why a GPU that seems to be there does not answer.")


class ParallelSettings(Facts):
    """The settings for using a machine's GPUs in one run, with reasons."""

    strategy: Strategy
    gpus: list[int] = Field(description="Indices of the GPUs to use; empty: the CPU.")
    accumulation: int = Field(default=1, description="Least passes per optimizer step that hide the exchange.")
    compress: bool = Field(default=False, description="Exchange gradients in bf16.")
    environment: dict[str, str] = Field(default={}, description="Variables that NCCL needs here.")
    exchange_gb_s: float | None = Field(default=None, description="Expected all-reduce rate, 10^9 bytes/s.")
    exchange_ms: float | None = Field(default=None, description="Expected time of one exchange of this adapter.")
    torchrun: str = Field(default="", description="Command that starts the same with plain torchrun; empty: none.")
    reasons: list[str] = Field(description="One sentence for each setting.")


class KernelCheck(Facts):
    """The outcome of one kernel's test run."""

    name: str
    passed: bool
    detail: str = ""


class Checkup(Facts):
    """The findings of `burnish doctor`."""

    machine: MachineFacts
    torch: str | None
    llama_cpp: str | None
    fla_core: str | None = Field(
        default=None, description="Version of the package with kernels for delta nets on the plain engine."
    )
    kernels: list[KernelCheck]
    problems: list[str]
    ready: bool
    summary: str = ""
    notes: list[str] = Field(default=[], description="What a person should know although nothing is broken.")
    settings: ParallelSettings | None = Field(default=None, description="How a run would use the GPUs.")
