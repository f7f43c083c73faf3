"""Checks whether this machine is ready: facts, missing parts, and test runs of kernels in a separate process."""

from __future__ import annotations

import ctypes.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, files, version
from pathlib import Path

from burnish_engine.contract.facts.machine import Checkup, KernelCheck, MachineFacts
from burnish_engine.contract.recipe.place import HERE
from burnish_engine.contract.recipe.recipe import DevicesSection
from burnish_engine.contract.recipe.recipe_file import load_recipe
from burnish_engine.hardware.gpu.bandwidth import measure_links
from burnish_engine.hardware.gpu.interconnect import parallel_settings
from burnish_engine.hardware.gpu.kept_links import keep_links
from burnish_engine.hardware.gpu.topology import with_edges
from burnish_engine.hardware.gpu.torchrun import RECIPE, torchrun_command
from burnish_engine.hardware.notes import notes
from burnish_engine.hardware.probe import probe

_KERNEL_MODULE = "burnish_engine.models.device.kernel_check"
_KERNEL_TIMEOUT_S = 180
# Part of NVML's message -> remedy.
_DRIVER_REMEDIES = {
    "mismatch": "The driver was updated while its old version is still running: restart the computer.",
    "library not found": "A card is there without NVIDIA's driver: install it.",
    "not loaded": "Restart the computer. If that does not help, install NVIDIA's driver again; with Secure Boot its "
    "kernel module must be signed.",
    "lost": "The card fell off the bus: restart the computer, and check its power cables, seat and temperature.",
    "did not answer": "The driver hangs: restart the computer.",
}
_DRIVER_REMEDY = "Install or repair NVIDIA's driver."
# Library the wheels need from the system -> Debian/Ubuntu and Fedora package that holds it.
_SYSTEM_LIBRARIES = {"gomp": ("libgomp1", "libgomp"), "stdc++": ("libstdc++6", "libstdc++")}


def check_up(bandwidth: bool = False, *, recipe: Path | None = None) -> Checkup:
    """Look at the machine and run kernels on it. Takes some seconds; loads torch only in child processes.

    Args:
        bandwidth: whether to measure copies and all-reduces too, which takes some seconds more.
        recipe: recipe that the command for torchrun is for; None: for one that says nothing about devices.

    Raises:
        BurnishError: The recipe cannot be read.
    """
    devices = load_recipe(recipe).devices if recipe else None
    machine = probe()
    problems = [driver_problem_text(machine.gpu_problem)] if machine.gpu_problem else []
    problems += [*_missing_libraries(), *(_missing_compiler() if machine.gpus else [])]
    torch, llama = _version("torch"), _version("llama-cpp-python")
    if not torch:
        problems.append("torch is not installed. Run the set-up again.")
    if not llama:
        problems.append("llama-cpp-python is not installed; export and GGUF chat need it. Run the set-up again.")
    kernels = _run_kernels(bool(machine.gpus)) if torch else []
    problems += [f"kernel {check.name}: {check.detail}" for check in kernels if not check.passed]
    found = []
    if bandwidth and torch and machine.gpus:
        measured = measure_links(machine, parallel_settings(machine).environment)
        machine, found = measured.machine, list(measured.problems)
        if not measured.problems:
            keep_links(machine)
    elif bandwidth and not machine.gpus:
        found.append("Without a GPU there are no links to measure.")
    use = parallel_settings(machine)
    use = use.model_copy(update={"torchrun": torchrun_command(use, str(recipe or RECIPE), devices)})
    found += _why_no_torchrun(devices, use.torchrun)
    return Checkup(
        machine=with_edges(machine),
        torch=torch,
        llama_cpp=llama,
        fla_core=_version("fla-core"),
        kernels=kernels,
        problems=problems,
        ready=not problems,
        summary=summary_text(machine, ready=not problems),
        notes=[*found, *notes(machine, use)],
        settings=use,
    )


def _why_no_torchrun(devices: DevicesSection | None, command: str) -> list[str]:
    """Say in a sentence why there is no command for torchrun for a recipe; empty where there is one, or no recipe."""
    if devices is None:
        return []
    if devices.where != HERE:
        return [f"The recipe trains at {devices.where}, so there is no command for torchrun here."]
    return [] if command else ["The recipe trains on one device, so it needs no torchrun: `burnish train` starts it."]


def summary_text(machine: MachineFacts, *, ready: bool) -> str:
    """Return the outcome of a check-up in a line, below its problems.

    Args:
        machine: facts of the machine.
        ready: whether training works.
    """
    if not ready:
        return "see the problems above"
    if machine.gpus:
        return f"training runs on {machine.gpus[0].name}"
    return "training runs on the CPU, which suits small models only"


def driver_problem_text(problem: str) -> str:
    """Write what is wrong with the driver, and what to do.

    Args:
        problem: message of the driver, `MachineFacts.gpu_problem`.
    """
    remedy = next((remedy for sign, remedy in _DRIVER_REMEDIES.items() if sign in problem.lower()), _DRIVER_REMEDY)
    return f"GPU: {problem.rstrip('.')}. {remedy}"


def _missing_libraries() -> list[str]:
    if os.name == "nt":
        return []
    return [
        f"The system library lib{name} was not found. Install {debian} (Debian, Ubuntu) or {fedora} (Fedora)."
        for name, (debian, fedora) in _SYSTEM_LIBRARIES.items()
        if ctypes.util.find_library(name) is None and (name != "gomp" or _was_compiled_here())
    ]


def _was_compiled_here() -> bool:
    """Whether llama.cpp was compiled on this machine, with OpenMP; a release has a library for each processor."""
    with suppress(PackageNotFoundError):
        return any(path.name == "libggml-cpu.so" for path in files("llama-cpp-python") or ())
    return False


def _missing_compiler() -> list[str]:
    """List the parts of a C tool chain that are missing: on Linux, Triton compiles a launcher for each kernel."""
    if not sys.platform.startswith("linux"):
        return []
    missing = []
    if not any(shutil.which(name) for name in (os.environ.get("CC") or "cc", "gcc", "clang")):
        missing.append("No C compiler was found, which Triton needs. Install gcc (Debian, Ubuntu: build-essential).")
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        missing.append("Python.h was not found, which Triton needs. Install python3-dev (Fedora: python3-devel).")
    return missing


def _run_kernels(gpu: bool) -> list[KernelCheck]:
    command = [sys.executable, "-P", "-m", _KERNEL_MODULE, *(["--gpu"] if gpu else [])]
    name = "kernels"
    try:
        # CUDA counts the fastest GPU first unless told to count as the driver does.
        environment = {**os.environ, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        done = subprocess.run(command, capture_output=True, timeout=_KERNEL_TIMEOUT_S, check=False, env=environment)
    except subprocess.TimeoutExpired:
        return [KernelCheck(name=name, passed=False, detail=f"no answer within {_KERNEL_TIMEOUT_S} s")]
    try:
        return [KernelCheck.model_validate(entry) for entry in json.loads(done.stdout)]
    except ValueError:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        return [KernelCheck(name=name, passed=False, detail=f"exit code {done.returncode}: {lines[-1]}")]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
