"""Reads the machine without its GPUs: processor, memory, disk, power, container. Loads no torch, never fails."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from burnish_engine.contract.facts.machine import HostFacts
from burnish_engine.contract.paths import user_data_dir
from burnish_engine.hardware.host.cpu import usable_cores
from burnish_engine.hardware.host.host_memory import host_memory, is_wsl
from burnish_engine.hardware.host.sleep import read_sleep

_CPUINFO = Path("/proc/cpuinfo")
_CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))
_CONTAINER_GROUPS = re.compile(r"docker|kubepods|containerd|lxc|podman")
_PCI_DEVICES = Path("/sys/bus/pci/devices")
_NVIDIA_PCI_VENDOR = "0x10de"
_PCI_DISPLAY_CLASS = "0x03"  # PCI class code: display controller


class SystemFacts(HostFacts):
    """Facts about a machine beside its GPUs, and what explains missing ones."""

    nvidia_on_bus: bool | None = None
    """Whether the PCI bus shows an NVIDIA display device; None where the bus cannot be read (Windows, WSL)."""


def read_system() -> SystemFacts:
    """Read the facts of this machine as it is now."""
    total, free = host_memory()
    container = in_container()
    sleep_after_s, sleep_note = (
        (None, "The host decides when this system sleeps.") if container else read_sleep(on_battery=_on_battery())
    )
    return SystemFacts(
        os=f"{platform.system()} {platform.release()}",
        architecture=platform.machine(),
        python=platform.python_version(),
        cpu=_cpu_name(),
        cpu_cores=usable_cores(),
        ram_total_bytes=total,
        ram_free_bytes=free,
        disk_free_bytes=_free_disk(),
        bf16_cpu=_has_bf16(),
        sleep_after_s=sleep_after_s,
        sleep_note=sleep_note,
        container=container,
        nvidia_on_bus=_nvidia_on_bus(),
    )


def in_container() -> bool | None:
    """Whether this is a container or the Windows subsystem for Linux; None where that is unknown (not Linux)."""
    if not sys.platform.startswith("linux"):
        return False if os.name == "nt" else None
    if any(mark.exists() for mark in _CONTAINER_MARKS) or is_wsl():
        return True
    return _CONTAINER_GROUPS.search(_read(Path("/proc/1/cgroup"))) is not None


def process_name(pid: int) -> str:
    """The name of a process; empty where it is not known, and in containers, where the driver's ids are the host's."""
    if in_container():  # the driver counts the host's processes; the same id here is another process
        return ""
    with suppress(psutil.Error, OSError, ValueError):
        return psutil.Process(pid).name()
    return ""


def _free_disk() -> int:
    folder = user_data_dir()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _on_battery() -> bool:
    with suppress(AttributeError, OSError):  # the system has no batteries, or shows none, as without /sys
        battery = psutil.sensors_battery()
        return battery is not None and battery.power_plugged is False
    return False


def _cpu_name() -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", _read(_CPUINFO), flags=re.MULTILINE)
    if match:
        return match[1].strip()
    if sys.platform == "win32":
        import winreg

        key = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
        with suppress(OSError), winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key) as handle:
            return str(winreg.QueryValueEx(handle, "ProcessorNameString")[0]).strip()
    return platform.processor() or platform.machine()


def _has_bf16() -> bool | None:
    """Whether the CPU has bf16 instructions, by the kernel's list (x86 "flags", Arm "Features"); None if unknown."""
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", _read(_CPUINFO), flags=re.MULTILINE)
    return bool({"avx512_bf16", "amx_bf16", "bf16"} & set(match[1].split())) if match else None


def _nvidia_on_bus() -> bool | None:
    if not _PCI_DEVICES.is_dir():
        return None
    for device in _PCI_DEVICES.glob("*"):
        if _read(device / "vendor").strip() == _NVIDIA_PCI_VENDOR:
            kind = _read(device / "class").strip()
            if kind.startswith(_PCI_DISPLAY_CLASS):
                return True
    return False


def _read(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""
