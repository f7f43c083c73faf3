"""Chooses the builds that run on a machine, from its facts. A pure function: no file, no process, no network.

The table follows torch 2.13, which is built for two stable CUDA lines (PyTorch's RELEASE.md, "CUDA Support Matrix",
pull request 187075): 12.6 with compute capability 5.0 to 9.0, and 13.0 from 7.5 on, Blackwell included. CUDA 12.8 is no
longer built since torch 2.12 (PyTorch issue 178665), so a Blackwell card needs the 13.0 build and its driver.
"""

from __future__ import annotations

from dataclasses import dataclass

from burnish_engine.install.machine.machine_facts import Gpu, SetupFacts

TORCH_VERSION = "2.13.0"
# torch 2.13.0 requires this Triton exactly (its wheel's metadata); the Windows package follows with its own suffix.
TRITON_VERSION = "3.7.1"
TRITON_WINDOWS_VERSION = "3.7.1.post27"
LLAMA_VERSION = "0.3.36"

MIN_PYTHON, MAX_PYTHON = (3, 11), (3, 14)  # pyproject's floor; the newest Python for which Triton 3.7.1 has wheels
MIN_GLIBC = (2, 28)  # torch's Linux wheels are tagged manylinux_2_28
KERNEL_CAPABILITY = (8, 0)  # Burnish's kernels are compiled and tested for 8.0 and newer


@dataclass(frozen=True)
class CudaLine:
    """One CUDA line that torch is built for.

    The driver floors are NVIDIA's ("CUDA Compatibility", table of minor version compatibility, and the toolkit's
    release notes): 13.x needs 580; every 12.x runs from 525.60 (Windows 528.33), though 12.6 shipped with 560.
    """

    tag: str
    cuda: tuple[int, int]
    min_driver: tuple[int, ...]
    min_driver_windows: tuple[int, ...]
    min_capability: tuple[int, int]
    max_capability: tuple[int, int]

    def runs_on(self, facts: SetupFacts) -> bool:
        """Whether the driver is new enough; a data centre's compatibility package shows in its CUDA version."""
        floor = self.min_driver_windows if facts.system == "Windows" or facts.wsl else self.min_driver
        return facts.driver >= floor or facts.driver_cuda >= self.cuda

    def covers(self, gpu: Gpu) -> bool:
        """Whether this build holds code for the GPU; one that does not tell its capability is given the benefit."""
        capability = gpu.compute_capability
        return capability is None or self.min_capability <= capability <= self.max_capability


CUDA_LINES = (
    CudaLine("cu130", (13, 0), (580,), (580,), (7, 5), (99, 0)),
    CudaLine("cu126", (12, 6), (525, 60), (528, 33), (5, 0), (9, 0)),
)
# For Linux, x86-64 and aarch64; for Windows the default index has only CPU builds.
DEFAULT_INDEX_LINE = "cu130"


@dataclass(frozen=True)
class BuildChoice:
    """The builds to install.

    Attributes:
        torch: requirement for torch.
        build: name of torch's build, `cu130`, `cu126` or `cpu`.
        triton: requirement for Triton; None where there is none.
        llama: requirement for llama-cpp-python.
        llama_may_compile: whether llama-cpp-python may be compiled here when there is no prebuilt wheel.
        cpu_build_sure: whether pip is known to find a CPU build; otherwise it may fetch gigabytes of CUDA.
        warnings: sentences to show.
        error: paragraph that says why nothing can be installed; else empty.
    """

    torch: str = f"torch=={TORCH_VERSION}"
    build: str = "cpu"
    triton: str | None = None
    llama: str = f"llama-cpp-python=={LLAMA_VERSION}"
    llama_may_compile: bool = True
    cpu_build_sure: bool = True
    warnings: tuple[str, ...] = ()
    error: str = ""

    @property
    def uses_gpu(self) -> bool:
        """Whether a CUDA build was chosen."""
        return self.build != "cpu"

    def fingerprint(self) -> str:
        """The part of the choice that decides what gets installed."""
        return " ".join((self.torch, self.build, self.triton or "-", self.llama))


def choose(facts: SetupFacts) -> BuildChoice:
    """The builds for a machine, or an error paragraph: what happened, the value found, what to do."""
    error = _python_error(facts) or _system_error(facts)
    if error:
        return BuildChoice(error=error)
    warnings: list[str] = []
    build, error = _build(facts, warnings)
    if error and facts.allow_cpu:
        warnings = [f"Continuing without the GPU, because BURNISH_ALLOW_CPU is set. Otherwise: {error}"]
        build, error = "cpu", ""
    if error:
        return BuildChoice(error=error)
    cpu_build_sure = facts.system != "Linux" or bool(facts.torch_index) or facts.cpu_torch_at_hand
    if build == "cpu" and not cpu_build_sure:
        warnings.append(
            "The default index has only torch's CUDA build for Linux: about 2.7 GB to download and 4.7 GB on "
            "disk, where the CPU build is a tenth of that. To get the CPU build, stop here and set "
            'BURNISH_TORCH_INDEX to the address that PyTorch\'s "Get started" page shows for Linux, Pip and CPU.'
        )
    if facts.driver_message and build == "cpu" and not facts.allow_cpu:
        warnings.append(
            f"No NVIDIA GPU was found, so this is a set-up for the CPU; nvidia-smi: {facts.driver_message}."
        )
    if facts.wsl and not facts.gpus:
        warnings.append(
            "WSL shows no NVIDIA GPU. If this PC has one, install NVIDIA's driver in Windows (not inside WSL)."
        )
    return BuildChoice(
        build=build,
        triton=_triton(facts),
        llama_may_compile=facts.cxx_compiler,
        cpu_build_sure=build != "cpu" or cpu_build_sure,
        warnings=tuple(warnings),
    )


def torch_index_for(address: str, build: str) -> str:
    """The address to take torch from: a base address gets the build's name appended, a complete one stays as it is.

    An address is complete when its last part is a build's name (`cu130`, `cpu`, `rocm7.2`) or `simple`.
    """
    address = address.rstrip("/")
    last = address.replace("\\", "/").rsplit("/", 1)[-1].lower()
    complete = last in {"cpu", "simple"} or last.startswith("rocm") or (last[:2] == "cu" and last[2:].isdigit())
    return address if complete or not address else f"{address}/{build}"


def _python_error(facts: SetupFacts) -> str:
    found = ".".join(str(part) for part in facts.python)
    if not MIN_PYTHON <= facts.python[:2] <= MAX_PYTHON:
        return (
            f"Burnish runs on Python 3.11 to 3.14, and this is {found}. Install one of those beside it (3.13 is a good "
            "choice) and start again: the launcher looks for python3.13, python3.12, python3.11 and python3.14 first."
        )
    if facts.python_bits != 64:
        return f"This Python {found} is a {facts.python_bits}-bit build, and torch needs a 64-bit one. Install that."
    if facts.free_threaded:
        return f"This Python {found} is a free-threaded build, which several parts lack. Install the ordinary build."
    return ""


def _system_error(facts: SetupFacts) -> str:
    system, machine = facts.system, facts.machine
    if system == "Darwin":
        if facts.allow_cpu and machine == "aarch64":
            return ""
        return (
            f"This is macOS on {machine}, which has no NVIDIA GPU, so Burnish cannot train here. Use a Linux or "
            "Windows machine with an NVIDIA GPU; the GGUF files made there run on this one with llama.cpp or "
            "Ollama. To look around on an Apple Silicon CPU all the same, set BURNISH_ALLOW_CPU=1."
        )
    if system not in {"Linux", "Windows"}:
        return f"Burnish runs on Linux and Windows, and this is {system} on {machine}. Use one of those."
    if machine not in ({"x86_64"} if system == "Windows" else {"x86_64", "aarch64"}):
        return (
            f"This is {system} on {machine}, for which torch {TORCH_VERSION} has no build with CUDA. Use an "
            "x86-64 machine (Linux or Windows) or an aarch64 one with Linux."
        )
    if system == "Linux" and facts.libc == "musl":
        return (
            "This Linux uses the musl C library (Alpine, for one), and torch and llama.cpp's packages are built "
            "for glibc. Use a distribution with glibc 2.28 or newer, such as Debian 12 or Fedora; in a "
            "container, a Debian image."
        )
    if system == "Linux" and facts.libc_version and facts.libc_version < MIN_GLIBC:
        found = ".".join(str(part) for part in facts.libc_version)
        return f"This Linux has glibc {found}, and torch needs 2.28 or newer. Use a newer release of the distribution."
    return ""


def _build(facts: SetupFacts, warnings: list[str]) -> tuple[str, str]:
    """The build's name and an error paragraph; appends warnings."""
    if not facts.gpus:
        return "cpu", _silent_gpu_error(facts)
    best = max(facts.gpus, key=lambda gpu: (gpu.compute_capability or (0, 0), gpu.vram_bytes or 0))
    line = next((line for line in CUDA_LINES if line.runs_on(facts) and line.covers(best)), None)
    if line is None:
        return "cpu", _no_line_error(facts, best)
    error = _index_error(facts, best, line) or _triton_tools_error(facts)
    if error:
        return "cpu", error
    for gpu in facts.gpus:
        if not line.covers(gpu):
            warnings.append(f"{_named(gpu)} stays unused: torch's {line.tag} build, chosen for {best.name}, lacks it.")
    if best.compute_capability and best.compute_capability < KERNEL_CAPABILITY:
        warnings.append(
            f"{_named(best)} is older than Burnish's kernels are made for (8.0): training may be slow or not start. "
            "`burnish doctor` tells."
        )
    return line.tag, ""


def _silent_gpu_error(facts: SetupFacts) -> str:
    """An error when a GPU is there and its driver does not answer; empty when there is no GPU."""
    # WSL has nvidia-smi only where Windows has NVIDIA's driver; on plain Linux a failing one may be a leftover.
    if not (facts.gpu_without_driver or facts.driver or (facts.wsl and facts.driver_message)):
        return ""
    seen = facts.gpu_without_driver or (
        f"driver {_dotted(facts.driver)} is loaded" if facts.driver else "seen from WSL"
    )
    said = f" nvidia-smi: {facts.driver_message}." if facts.driver_message else ""
    if facts.system == "Windows" or facts.wsl:
        remedy = "Install NVIDIA's driver, version 580 or newer, in Windows, restart it and start again."
    elif facts.driver_message:
        remedy = (
            "Restart the machine: the usual cause is a driver or kernel that was updated since the last start. "
            "If it stays, install the driver again (version 580 or newer); in a container, start it with access "
            "to the GPU (--gpus all)."
        )
    else:
        remedy = (
            "Install the driver, version 580 or newer, from the distribution (Debian: nvidia-driver; Ubuntu: "
            "`ubuntu-drivers install`; Fedora: akmod-nvidia), restart and start again; in a container, start it "
            "with access to the GPU (--gpus all)."
        )
    return (
        f"An NVIDIA GPU is here ({seen}), but its driver does not answer.{said} {remedy} To continue without "
        "the GPU, set BURNISH_ALLOW_CPU=1."
    )


def _no_line_error(facts: SetupFacts, best: Gpu) -> str:
    fitting = [line for line in CUDA_LINES if line.covers(best)]
    if not fitting:
        return (
            f"{_named(best)} is too old: torch {TORCH_VERSION} starts at compute capability 5.0. Use a newer GPU, "
            "or set BURNISH_ALLOW_CPU=1 to continue without it."
        )
    where = " in Windows (not inside WSL)" if facts.wsl else ""
    return (
        f"The NVIDIA driver is too old for {_named(best)}: version {_dotted(facts.driver) or 'unknown'} is here, "
        f"and torch {TORCH_VERSION} needs {_dotted(fitting[0].min_driver)} or newer for it. Update the "
        f"driver{where} to 580 or newer, restart and start again. No CUDA toolkit is needed."
    )


def _index_error(facts: SetupFacts, best: Gpu, line: CudaLine) -> str:
    """An error when the default index has no such build and nobody named another; what pip finds is verified later."""
    default_has_it = facts.system == "Linux" and line.tag == DEFAULT_INDEX_LINE
    if default_has_it or facts.torch_index or facts.pip_index_configured:
        return ""
    newer = CUDA_LINES[0]
    update = ""
    if facts.system == "Linux" and newer.covers(best) and not newer.runs_on(facts):
        update = (
            f" Or update the NVIDIA driver from {_dotted(facts.driver)} to 580 or newer: then nothing needs to be set."
        )
    cuda = ".".join(str(part) for part in line.cuda)
    return (
        f"For {_named(best)} with driver {_dotted(facts.driver)} torch's {line.tag} build is needed, and the "
        f"default package index does not have it for {facts.system}. Set BURNISH_TORCH_INDEX to the address that "
        f'PyTorch\'s "Get started" page shows after --index-url (choose {facts.system}, Pip, CUDA {cuda}; if it '
        f"lists newer versions only, take their address with its end changed to {line.tag}), or "
        f"BURNISH_WHEELHOUSE to a folder with that wheel, and start again.{update}"
    )


def _triton_tools_error(facts: SetupFacts) -> str:
    """On Linux Triton compiles a small C stub at its first launch, against Python's headers (its runtime/build.py)."""
    if facts.system != "Linux" or (facts.c_compiler and facts.python_headers):
        return ""
    minor = ".".join(str(part) for part in facts.python[:2])
    missing = [
        *([] if facts.c_compiler else ["a C compiler (gcc or clang)"]),
        *([] if facts.python_headers else [f"Python {minor}'s headers (Python.h)"]),
    ]
    return (
        f"Triton, which runs Burnish's GPU kernels, needs {' and '.join(missing)} at run time, not found here. "
        f"Install them (Debian, Ubuntu: gcc python{minor}-dev; Fedora: gcc python3-devel) and start again. No "
        "CUDA toolkit is needed."
    )


def _triton(facts: SetupFacts) -> str | None:
    if facts.system == "Windows":
        return f"triton-windows=={TRITON_WINDOWS_VERSION}"
    return f"triton=={TRITON_VERSION}" if facts.system == "Linux" else None


def _named(gpu: Gpu) -> str:
    if gpu.compute_capability is None:
        return gpu.name
    return f"{gpu.name} (compute capability {_dotted(gpu.compute_capability)})"


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(str(part) for part in version)
