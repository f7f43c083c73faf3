"""Constructed facts of machines, and of what fits them, for tests and screenshots."""

import sys

from burnish_engine.contract.facts.capacity import DeviceCapacity, LargestPass, ModelCapacity
from burnish_engine.contract.facts.machine import (
    Checkup,
    GpuFacts,
    KernelCheck,
    LinkFacts,
    LinkMeasurement,
    MachineFacts,
    MemoryUser,
    ParallelSettings,
    PcieFacts,
)
from burnish_engine.hardware.checkup import summary_text
from burnish_engine.hardware.gpu.interconnect import parallel_settings
from burnish_engine.hardware.gpu.topology import with_edges
from burnish_engine.hardware.gpu.torchrun import torchrun_command

GIB = 2**30


def gpu(index=0, **changes):
    fields = {
        "index": index,
        "name": "NVIDIA GeForce RTX 4090",
        "compute_capability": (8, 9),
        "vram_total_bytes": 24 * GIB,
        "vram_free_bytes": int(21.9 * GIB),
        "power_w": 31.0,
        "power_limit_w": 450.0,
        "temperature_c": 41,
        "clock_mhz": 210,
        "best_clock_mhz": 2520,
        "pcie": PcieFacts(generation=1, width=16, best_generation=4, best_width=16),
        "users": [
            MemoryUser(pid=1200, name="Xorg", bytes=700 * 2**20),
            MemoryUser(pid=2100, name="firefox", bytes=420 * 2**20),
        ],
    }
    return GpuFacts(**{**fields, **changes})


def machine(*gpus, **changes):
    fields = {
        "os": "Ubuntu 24.04 (Linux 6.8)",
        "architecture": "x86_64",
        "python": "3.11.9",
        "cpu": "AMD Ryzen 9 7950X 16-Core Processor",
        "cpu_cores": 16,
        "ram_total_bytes": 64 * GIB,
        "ram_free_bytes": 48 * GIB,
        "disk_free_bytes": 412 * GIB,
        "gpus": list(gpus),
        "driver": "570.86" if gpus else None,
        "driver_cuda": "12.8" if gpus else None,
        "bf16_cpu": True,
    }
    return MachineFacts(**{**fields, **changes})


def pair():
    link = LinkFacts(
        first=0,
        second=1,
        common_ancestor="hostbridge",
        p2p_read=False,
        p2p_problem="chipset not supported",
        measured=LinkMeasurement(copy_gb_s=13.4, peer_access=False),
    )
    second = gpu(1, vram_free_bytes=int(23.5 * GIB), users=[], temperature_c=88)
    return with_edges(machine(gpu(), second, links=[link], all_reduce_gb_s=6.1))


def eight():
    """Eight cards behind switches, measured."""
    pcie = PcieFacts(
        generation=5, width=16, best_generation=5, best_width=16, under_load=True, to_gpu_gb_s=54.0, from_gpu_gb_s=52.0
    )
    fields = {"name": "NVIDIA H100 80GB HBM3", "compute_capability": (9, 0), "pcie": pcie, "users": []}
    memory = {"vram_total_bytes": 80 * GIB, "vram_free_bytes": 79 * GIB, "power_limit_w": 700.0}
    links = [
        LinkFacts(
            first=first, second=second, nvlinks=18, nvlink_gb_s=450.0, p2p_read=True, p2p_write=True,
            measured=LinkMeasurement(copy_gb_s=366.0 - (first * second) % 5, peer_access=True),
        )
        for first in range(8)
        for second in range(first + 1, 8)
    ]  # fmt: skip
    gpus = [gpu(index, **fields, **memory) for index in range(8)]
    return with_edges(machine(*gpus, links=links, all_reduce_gb_s=210.0))


def checkup(facts, *, ready=True, problems=(), notes=()):
    kernels = [KernelCheck(name=name, passed=True) for name in ("matrix product", "rms_norm", "nf4")]
    if not ready:
        kernels[1] = KernelCheck(name="rms_norm", passed=False, detail="The largest error was 0.31, allowed is 0.01.")
    settings = ParallelSettings(
        strategy="single",
        gpus=[0] if facts.gpus else [],
        reasons=["One run uses one GPU: GPU 0 is the faster one to begin with."],
    )
    if len(facts.gpus) > 1:
        settings = parallel_settings(facts)
        command = torchrun_command(settings).replace(sys.executable, "/opt/burnish/bin/python")
        settings = settings.model_copy(update={"torchrun": command})
    return Checkup(
        machine=facts,
        torch="2.9.1",
        llama_cpp="0.3.16",
        kernels=kernels,
        problems=list(problems),
        ready=ready,
        summary=summary_text(facts, ready=ready),
        notes=list(notes),
        settings=settings,
    )


# Title, weights, context; as LoRA and QLoRA of the longest row and of the biggest pass: tokens, tokens/s, GiB, limit.
# What `burnish plan` says of this machine with 21.9 GiB free; the last two are made up: too short, and too large.
_FITS = (
    ("Qwen3 0.6B", 596e6, 40_960, ((40_960, 3322, 20.5, "context"), (262_144, 19_569, 20.2, "search")),
     ((40_960, 3325, 20.4, "context"), (262_144, 19_570, 20.1, "search"))),
    ("Llama 3.2 1B", 1236e6, 131_072, ((131_072, 1806, 20.1, "context"), (262_144, 14_041, 19.9, "search")),
     ((131_072, 1807, 20.2, "context"), (262_144, 14_048, 20.3, "search"))),
    ("Qwen3 4B Instruct 2507", 4022e6, 262_144, ((192_512, 227, 21.6, "memory"), (192_512, 3663, 21.6, "memory")),
     ((251_712, 176, 21.6, "system memory"), (251_904, 3679, 21.6, "system memory"))),
    ("Qwen3 8B", 8191e6, 40_960, ((40_960, 929, 20.5, "context"), (86_016, 2222, 21.6, "memory")),
     ((40_960, 937, 20.5, "context"), (159_744, 2250, 21.2, "system memory"))),
    ("Qwen3 14B", 14_768e6, 40_960, None, ((40_960, 603, 19.3, "context"), (110_592, 1267, 21.3, "system memory"))),
    ("Qwen3 32B", 32_762e6, 40_960, None, ((19_776, 310, 21.6, "memory"), (18_432, 538, 21.5, "memory"))),
    ("Command R 35B", 34_981e6, 131_072, None, ((640, 502, 21.8, "memory"), None)),
    ("Llama 3.3 70B", 70_554e6, 131_072, None, None),
)  # fmt: skip
_LARGEST = {("Qwen3 8B", "lora"), ("Qwen3 4B", "lora"), ("Qwen3 32B", "qlora")}
_ROW = 2048


def _reach(found, rows):
    tokens, speed, memory, limit = found
    return LargestPass(
        tokens=tokens,
        rows=rows,
        tokens_per_s=speed,
        memory_bytes=int(memory * GIB),
        host_bytes=2 * GIB,
        limited_by=limit,
    )


def _model_reach(title, weights, context, method, found):
    longest, biggest = found or (None, None)
    return ModelCapacity(
        name=title,
        title=title,
        parameters=int(weights),
        method=method,
        max_context=context,
        largest=(title, method) in _LARGEST,
        longest=longest and _reach(longest, 1),
        biggest=biggest and _reach(biggest, biggest[0] // _ROW),
        problem="" if found else "This run needs more than there is. Choose a smaller model.",
    )


def what_fits(**changes):
    models = [
        _model_reach(title, weights, context, method, found)
        for title, weights, context, *ways in _FITS
        for method, found in zip(("lora", "qlora"), ways, strict=True)
    ]
    fields = {
        "device": "NVIDIA GeForce RTX 4090",
        "memory_free_bytes": int(21.9 * GIB),
        "memory_total_bytes": 24 * GIB,
        "host_free_bytes": 48 * GIB,
        "precision": "bf16",
        "rank": 16,
        "row_tokens": _ROW,
        "models": models,
        "speed_source": "estimated from NVIDIA Ada GPU architecture whitepaper, appendix A",
    }
    return DeviceCapacity(**{**fields, **changes})


def what_fits_nowhere():
    """Nothing fits."""
    return what_fits(models=[_model_reach(*one[:3], "lora", None) for one in _FITS[3:]])


def what_fits_on_a_processor():
    """Slow, in 16 bits only."""
    models = [
        _model_reach(
            "Qwen3 0.6B", 596e6, 40_960, "lora", ((14_912, 19.2, 13.2, "memory"), (34_816, 43.0, 13.2, "memory"))
        ),
        _model_reach("Qwen3 4B", 4022e6, 40_960, "lora", ((6_848, 5.9, 13.2, "memory"), (8_192, 7.1, 13.2, "memory"))),
        *(_model_reach(*one[:3], "lora", None) for one in _FITS[4:]),
    ]
    return what_fits(
        device="CPU",
        models=models,
        memory_free_bytes=48 * GIB,
        memory_total_bytes=64 * GIB,
        speed_source="estimated",
        notes=["Without an NVIDIA GPU everything is trained by the processor, in system memory."],
    )
