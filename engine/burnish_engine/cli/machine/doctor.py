"""`burnish doctor`: describes this machine and proves its readiness with a real kernel."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from burnish_engine.cli.terminal import err, out, print_json, styled
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.facts.machine import (
    Checkup,
    GpuFacts,
    LinkFacts,
    MachineFacts,
    ParallelSettings,
    PcieFacts,
)
from burnish_engine.contract.failure_report import failure_report, last_error_file, save_report
from burnish_engine.contract.paths import user_data_dir
from burnish_engine.contract.units import file_size, memory_size, plural
from burnish_engine.hardware.checkup import check_up
from burnish_engine.install.engines import Engines, engine_home

_FLA_HELPS = "optional: kernels for delta nets, such as Qwen3-Next's, on the plain engine"
_LABEL = 12  # width of the left column, a space more than "host memory"


def doctor(
    recipe: Annotated[
        Path | None, typer.Argument(help="Recipe whose command for torchrun is printed. Default: recipe.toml.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    bandwidth: Annotated[
        bool, typer.Option("--bandwidth", help="Also measure how fast data moves to, from and between GPUs.")
    ] = False,
    report: Annotated[
        bool,
        typer.Option("--report", help="Write a file to send with a bug: versions, last errors, no data, no paths."),
    ] = False,
) -> int:
    """Check this machine and say whether it is ready to train.

    Names the hardware and what is missing, and computes something on the device before it says "ready".
    """
    result = check_up(bandwidth=bandwidth, recipe=recipe)
    if json:
        print_json(result.model_dump_json(indent=2))
    else:
        show(result)
    if report:
        path = write_report(result, recipe)
        err.print(f"Wrote {path}. Read it, then send it yourself: Burnish sends nothing.", soft_wrap=True)
    return ExitCode.DONE if result.ready else ExitCode.ENVIRONMENT


def write_report(result: Checkup, recipe: Path | None) -> Path:
    """Write the file for a bug report: the check-up, versions, the last bug, and what engine and set-up said.

    Args:
        result: check-up of the machine.
        recipe: recipe whose settings belong to it; None: none.

    Raises:
        OSError: The folder of reports cannot be made.
        NoSpaceError: The file cannot be written.
    """
    kernels = [f"kernel {one.name}: {'ok' if one.passed else 'failed'}, {one.detail}" for one in result.kernels]
    lines = [f"{label}: {value}" for label, value in (*_system(result), *_gpus(result.machine))]
    more = {"llama.cpp": result.llama_cpp or "missing", "driver": result.machine.driver or "none"}
    data = user_data_dir()
    logs = [last_error_file(), data / "serve.log", data / "studio" / "serve.log", Engines(engine_home(data)).log]
    details = "\n".join([*lines, *kernels, *result.problems, *result.notes])
    return save_report(failure_report("burnish doctor --report", details, logs=logs, recipe=recipe, more=more))


def show(result: Checkup) -> None:
    """Print a check-up for people, in short lines."""
    for label, value in (*_system(result), *_gpus(result.machine), *_links(result.machine)):
        _line(label, value)
    for kernel in result.kernels:
        mark = "[green]ok[/]" if kernel.passed else "[red]failed[/]"
        out.print(styled("[dim]{}[/]{}: " + mark + ", {}", f"{'kernel':<{_LABEL}}", kernel.name, kernel.detail))
    if result.settings and len(result.machine.gpus) > 1:
        for label, value in _settings(result.settings):
            _line(label, value)
    if result.settings and result.settings.torchrun:
        out.print(Text.assemble((f"{'torchrun':<{_LABEL}}", "dim"), result.settings.torchrun), soft_wrap=True)
    for note in result.notes:
        _line("note", note, style="yellow")
    for problem in result.problems:
        _line("problem", problem, style="red")
    verdict = "Ready" if result.ready else "Not ready"
    out.print(styled("[bold]{}[/]{}", verdict, f": {result.summary}" if result.summary else ""))


def _line(label: str, value: str, *, style: str = "dim") -> None:
    """Print a label and its text; on a terminal the text wraps inside its column."""
    width = max(40, out.width - _LABEL) if out.is_terminal else len(value) + 1
    first, *rest = textwrap.wrap(value, width, break_on_hyphens=False) or [""]
    out.print(Text.assemble((f"{label:<{_LABEL}}", style), first))
    for line in rest:
        out.print(f"{'':<{_LABEL}}{line}")


def _system(result: Checkup) -> Iterator[tuple[str, str]]:
    machine = result.machine
    yield "system", f"{machine.os} ({machine.architecture}), Python {machine.python}"
    bf16 = {True: ", bf16", False: "", None: ""}[machine.bf16_cpu]
    yield "processor", f"{machine.cpu}, {plural(machine.cpu_cores, 'usable core')}{bf16}"
    yield "memory", f"{memory_size(machine.ram_free_bytes)} free of {memory_size(machine.ram_total_bytes)}"
    yield "disk", f"{file_size(machine.disk_free_bytes)} free"
    yield "torch", result.torch or "missing"
    yield "llama.cpp", result.llama_cpp or "missing"
    if machine.gpus:
        yield "fla-core", f"{result.fla_core or 'not installed'} ({_FLA_HELPS})"


def _gpus(machine: MachineFacts) -> Iterator[tuple[str, str]]:
    if not machine.gpus:
        yield "GPU", machine.gpu_problem or "none found"
        return
    yield "driver", f"{machine.driver or 'unknown'}, CUDA up to {machine.driver_cuda or 'unknown'}"
    for gpu in machine.gpus:
        capability = f"sm_{gpu.compute_capability[0]}{gpu.compute_capability[1]}" if gpu.compute_capability else "sm_?"
        kind = " (shared with the system)" if gpu.unified_memory else ""
        yield f"GPU {gpu.index}", f"{gpu.name} ({capability})"
        yield "", f"{memory_size(gpu.vram_free_bytes)} free of {memory_size(gpu.vram_total_bytes)}{kind}"
        state = ", ".join(_state(gpu))
        if state:
            yield "", state
        if gpu.pcie:
            yield "", pcie_text(gpu.pcie)


def _state(gpu: GpuFacts) -> Iterator[str]:
    if gpu.power_w is not None:
        limit = f" of {gpu.power_limit_w:.0f}" if gpu.power_limit_w else ""
        yield f"{gpu.power_w:.0f}{limit} W"
    if gpu.temperature_c is not None:
        yield f"{gpu.temperature_c} °C"
    if gpu.clock_mhz is not None:
        best = f" of {gpu.best_clock_mhz}" if gpu.best_clock_mhz else ""
        yield f"{gpu.clock_mhz}{best} MHz"


def pcie_text(pcie: PcieFacts) -> str:
    """Describe a connection to the host: its current, possible and measured speed."""
    now = f"PCIe {pcie.generation or '?'} x{pcie.width or '?'}"
    if pcie.to_gpu_gb_s and pcie.from_gpu_gb_s:
        return f"{now} under load: {pcie.to_gpu_gb_s:.1f} GB/s to the GPU, {pcie.from_gpu_gb_s:.1f} GB/s from it"
    best = f"PCIe {pcie.best_generation or '?'} x{pcie.best_width or '?'}"
    return now if best in {now, "PCIe ? x?"} else f"{now} when idle, up to {best}"


def _links(machine: MachineFacts) -> Iterator[tuple[str, str]]:
    for link in machine.links:
        yield f"{link.first} and {link.second}", ", ".join(_link(link))
    if copies := machine.host_copies:
        rates = (copies.to_gpus_gb_s, copies.from_gpus_gb_s)
        to, back = (f"{rate / copies.gpus:.1f} GB/s" for rate in rates)
        yield "host memory", f"{to} to each of {copies.gpus} GPUs at once, {back} from each, measured"
    if machine.all_reduce_gb_s:
        yield "all-reduce", f"{machine.all_reduce_gb_s:.1f} GB/s over all GPUs, measured"


def _link(link: LinkFacts) -> Iterator[str]:
    if link.nvlinks:
        rate = f" of {link.nvlink_gb_s:.0f} GB/s each way" if link.nvlink_gb_s else ""
        yield f"{link.nvlinks} NVLinks{rate}"
    if link.p2p_read is not None and not link.nvlinks:
        problem = f" ({link.p2p_problem})" if link.p2p_problem else ""
        yield "peer-to-peer over PCIe" if link.p2p_read and link.p2p_write else f"no peer-to-peer{problem}"
    if link.common_ancestor and not link.nvlinks:
        yield f"common ancestor: {link.common_ancestor}"
    if link.measured:
        both = f", {link.measured.both_ways_gb_s:.1f} both ways" if link.measured.both_ways_gb_s else ""
        yield f"measured {link.measured.copy_gb_s:.1f} GB/s{both}"
    elif not link.nvlinks and link.p2p_read is None:
        yield "the driver does not say how they are connected"


def _settings(settings: ParallelSettings) -> Iterator[tuple[str, str]]:
    strategy = {"single": "one GPU", "data_parallel": "data-parallel", "sharded": "sharded"}[settings.strategy]
    yield "best use", f"{strategy}, GPU {', '.join(map(str, settings.gpus))}"
    for reason in settings.reasons:
        yield "", reason
