"""Detects this machine without torch: system, Python, NVIDIA GPUs and driver, compilers, and where pip looks.

Finding is kept apart from deciding: `detect` fills a `SetupFacts`, and `choose_builds.choose` turns it into a decision
without touching the machine. What cannot be read is left empty; nothing here raises for a strange machine.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from burnish_engine.install.machine.pip_sources import PipSources, read_pip_sources

# nvidia-smi answers in well under a second; on a server without the persistence daemon the first call takes a few.
_NVIDIA_SMI_TIMEOUT_S = 30.0
_QUERY = "--query-gpu=driver_version,compute_cap,memory.total,name"
_MACHINES = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU as the driver tells it. Unknown values are None (unified memory has no size of its own)."""

    name: str
    compute_capability: tuple[int, int] | None
    vram_bytes: int | None


@dataclass(frozen=True)
class SetupFacts:
    """The facts that the choice of builds depends on. Versions are tuples of numbers; an empty tuple means unknown."""

    system: str
    machine: str
    python: tuple[int, ...]
    libc: str = ""
    libc_version: tuple[int, ...] = ()
    wsl: bool = False
    python_bits: int = 64
    free_threaded: bool = False
    gpus: tuple[Gpu, ...] = ()
    driver: tuple[int, ...] = ()
    driver_cuda: tuple[int, ...] = ()
    gpu_without_driver: str = ""
    driver_message: str = ""
    c_compiler: bool = True
    cxx_compiler: bool = True
    python_headers: bool = True
    torch_index: str = ""
    pip_index_configured: bool = False
    cpu_torch_at_hand: bool = False
    allow_cpu: bool = False


def version_tuple(text: str) -> tuple[int, ...]:
    """The leading dotted number of a text: `580.65.06` gives `(580, 65, 6)`; none gives an empty tuple."""
    match = re.match(r"\d+(?:\.\d+)*", text.strip())
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def parse_gpu_query(text: str) -> tuple[tuple[int, ...], tuple[Gpu, ...]]:
    """Driver version and GPUs from nvidia-smi's csv answer (no header, no units; memory in MiB).

    Fields that the driver does not know read `[N/A]` or `[Not Supported]`; lines that are no answer are skipped.
    """
    driver: tuple[int, ...] = ()
    gpus: list[Gpu] = []
    for line in text.splitlines():
        fields = [field.strip() for field in line.split(",", 3)]
        if len(fields) != 4 or not version_tuple(fields[0]):
            continue
        driver = version_tuple(fields[0])
        capability = version_tuple(fields[1])
        memory_mib = version_tuple(fields[2])
        gpus.append(
            Gpu(
                name=fields[3],
                compute_capability=(capability[0], capability[1]) if len(capability) == 2 else None,
                vram_bytes=memory_mib[0] * 2**20 if memory_mib else None,
            )
        )
    return driver, tuple(gpus)


def parse_driver_cuda(text: str) -> tuple[int, ...]:
    """The highest CUDA version that the driver runs, from the head of plain nvidia-smi's table."""
    match = re.search(r"CUDA(?: UMD)? Version\s*:\s*(\d+\.\d+)", text)
    return version_tuple(match[1]) if match else ()


def parse_kernel_module(text: str) -> tuple[int, ...]:
    """The driver version from /proc/driver/nvidia/version (proprietary and open kernel modules)."""
    match = re.search(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)", text)
    return version_tuple(match[1]) if match else ()


def parse_failure(text: str) -> str:
    """The sentence in which nvidia-smi says that it failed, on one line; empty when it did not."""
    flat = " ".join(text.split())
    match = re.search(r"(NVIDIA-SMI has failed|Failed to initialize NVML|Unable to determine|No devices)[^.]*", flat)
    return match[0].strip() if match else ""


def gpus_on_bus(devices: Path = Path("/sys/bus/pci/devices")) -> str:
    """The first NVIDIA display device on Linux's PCI bus, in words, or an empty text.

    Source: PCI vendor id 0x10de is NVIDIA, class 0x03xxxx is a display controller. A device bound to vfio-pci was given
    away to a virtual machine and does not count.
    """
    for device in sorted(devices.glob("*")) if devices.is_dir() else []:
        try:
            vendor = (device / "vendor").read_text().strip()
            kind = (device / "class").read_text().strip()
            bound_to = (device / "driver").resolve().name if (device / "driver").exists() else "none"
        except OSError:
            continue
        if vendor == "0x10de" and kind.startswith("0x03") and bound_to != "vfio-pci":
            return f"PCI device {device.name}, kernel driver: {bound_to}"
    return ""


def find_nvidia_smi(env: Mapping[str, str]) -> str | None:
    """nvidia-smi on the PATH, or where Windows and WSL keep it."""
    candidates = [
        Path(env.get("SYSTEMROOT", r"C:\Windows")) / "System32" / "nvidia-smi.exe",
        Path(env.get("PROGRAMFILES", r"C:\Program Files")) / "NVIDIA Corporation" / "NVSMI" / "nvidia-smi.exe",
        Path("/usr/lib/wsl/lib/nvidia-smi"),
    ]
    return shutil.which("nvidia-smi") or next((str(path) for path in candidates if path.is_file()), None)


def detect(root: Path, env: Mapping[str, str], python: tuple[int, ...]) -> SetupFacts:
    """Detect the facts about this machine.

    Args:
        root: folder of the repository.
        env: environment of the process.
        python: version of the Python that will run Burnish.
    """
    driver, gpus, driver_cuda, message = _ask_driver(env)
    on_bus = ""
    if not gpus:
        on_bus = _windows_adapter() if sys.platform == "win32" else gpus_on_bus()
    sources = read_pip_sources(root, env)
    libc, libc_version = _libc()
    return SetupFacts(
        system=platform.system(),
        machine=_MACHINES.get(platform.machine().lower(), platform.machine().lower()),
        python=python,
        libc=libc,
        libc_version=libc_version,
        wsl="microsoft" in platform.release().lower(),
        python_bits=struct.calcsize("P") * 8,
        free_threaded=bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        gpus=gpus,
        driver=driver,
        driver_cuda=driver_cuda,
        gpu_without_driver=on_bus,
        driver_message=message,
        c_compiler=bool(_first(env.get("CC"), "gcc", "clang")),
        cxx_compiler=_has_cxx_compiler(env),
        python_headers=(Path(_include_folder()) / "Python.h").is_file(),
        torch_index=env.get("BURNISH_TORCH_INDEX", "").strip(),
        pip_index_configured=sources.configured,
        cpu_torch_at_hand=_cpu_torch_in(sources),
        allow_cpu=env.get("BURNISH_ALLOW_CPU", "").strip().lower() in {"1", "true", "yes"},
    )


def _ask_driver(env: Mapping[str, str]) -> tuple[tuple[int, ...], tuple[Gpu, ...], tuple[int, ...], str]:
    """Driver version, GPUs, the driver's highest CUDA version, and the driver's own words when it failed."""
    driver: tuple[int, ...] = ()
    with suppress(OSError):
        driver = parse_kernel_module(Path("/proc/driver/nvidia/version").read_text(encoding="utf-8"))
    program = find_nvidia_smi(env)
    if program is None:
        return driver, (), (), "not found" if driver else ""
    answer = _output(program, _QUERY, "--format=csv,noheader,nounits")
    told, gpus = parse_gpu_query(answer)
    if gpus:
        return told, gpus, parse_driver_cuda(_output(program)), ""
    return driver, (), (), parse_failure(answer) or answer.strip()[:200]


def _output(*command: str) -> str:
    """Run a command and return what it prints, both streams together; empty when it is missing or hangs."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_NVIDIA_SMI_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"{Path(command[0]).name} gave no answer within {_NVIDIA_SMI_TIMEOUT_S:.0f} s"
    except OSError:
        return ""
    return done.stdout.decode("utf-8", errors="replace")


def _windows_adapter() -> str:
    """An NVIDIA display adapter that Windows knows, in words. Asked only when the NVIDIA driver did not answer."""
    listing = _output(
        "powershell",
        "-NoProfile",
        "-NonInteractive",
        "-Command",
        "Get-CimInstance Win32_VideoController | ForEach-Object { $_.PNPDeviceID + ' ' + $_.Name }",
    )
    return next((line.strip() for line in listing.splitlines() if "VEN_10DE" in line.upper()), "")


def _libc() -> tuple[str, tuple[int, ...]]:
    """The C library's name and version on Linux; empty elsewhere."""
    if platform.system() != "Linux":
        return "", ()
    name, version = platform.libc_ver()
    if name == "glibc":
        return name, version_tuple(version)
    return ("musl" if list(Path("/lib").glob("ld-musl-*")) else name), ()


def _first(*programs: str | None) -> str | None:
    """The first of several programs that is on the PATH."""
    return next((found for program in programs if program and (found := shutil.which(program.split()[0]))), None)


def _has_cxx_compiler(env: Mapping[str, str]) -> bool:
    if _first(env.get("CXX"), "c++", "g++", "clang++", "cl"):
        return True
    vswhere = Path(env.get("PROGRAMFILES(X86)", "")) / "Microsoft Visual Studio" / "Installer" / "vswhere.exe"
    if os.name != "nt" or not vswhere.is_file():
        return False
    tools = "Microsoft.VisualStudio.Component.VC.Tools.x86.x64"
    found = _output(str(vswhere), "-latest", "-products", "*", "-requires", tools, "-property", "installationPath")
    return bool(found.strip())


def _include_folder() -> str:
    # Debian's own scheme points at /usr/local; its headers lie where the plain scheme says. Triton looks there too.
    scheme = sysconfig.get_default_scheme()
    return sysconfig.get_path("include", "posix_prefix" if scheme == "posix_local" else scheme)


def _cpu_torch_in(sources: PipSources) -> bool:
    """Whether a folder that pip looks into holds a CPU wheel of torch."""
    return any(any(Path(folder).glob("torch-*+cpu-*.whl")) for folder in sources.folders)
