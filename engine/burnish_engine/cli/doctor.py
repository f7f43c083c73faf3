"""`burnish doctor`: what this machine is, and whether it is ready, proved by running a real kernel."""

from __future__ import annotations

from typing import Annotated

import typer

from burnish_engine.cli.terminal import out, print_json, size
from burnish_engine.contract.errors import ExitCode
from burnish_engine.contract.machine import Checkup
from burnish_engine.hardware.checkup import check_up


def doctor(json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> int:
    """Name the hardware, find what is missing, and run a real kernel before saying "ready"."""
    result = check_up()
    if json:
        print_json(result.model_dump_json(indent=2))
    else:
        _show(result)
    return ExitCode.DONE if result.ready else ExitCode.ENVIRONMENT


def _show(result: Checkup) -> None:
    machine = result.machine
    for label, value in (
        ("system", f"{machine.os} ({machine.architecture}), Python {machine.python}"),
        ("processor", f"{machine.cpu}, {machine.cpu_cores} cores"),
        ("memory", f"{size(machine.ram_free_bytes)} free of {size(machine.ram_total_bytes)}"),
        ("disk", f"{size(machine.disk_free_bytes)} free"),
        ("torch", result.torch or "missing"),
        ("llama.cpp", result.llama_cpp or "missing"),
    ):
        out.print(f"{label:<11}{value}")
    for gpu in machine.gpus:
        capability = f"sm_{gpu.compute_capability[0]}{gpu.compute_capability[1]}" if gpu.compute_capability else "?"
        memory = f"{size(gpu.vram_free_bytes)} free of {size(gpu.vram_total_bytes)}"
        out.print(f"{'GPU ' + str(gpu.index):<11}{gpu.name} ({capability}), {memory}")
    if machine.gpus:
        out.print(f"{'driver':<11}{machine.driver}, CUDA up to {machine.driver_cuda}")
    else:
        out.print(f"{'GPU':<11}{machine.gpu_problem or 'none found'}")
    for kernel in result.kernels:
        mark = "[green]ok[/]" if kernel.passed else "[red]failed[/]"
        out.print(f"{'kernel':<11}{kernel.name}: {mark} {kernel.detail}")
    for problem in result.problems:
        out.print(f"[red]problem[/]    {problem}")
    out.print(
        f"[bold]{'Ready' if result.ready else 'Not ready'}[/]" + (f": {result.summary}" if result.summary else "")
    )
