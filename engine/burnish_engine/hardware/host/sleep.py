"""Reads when the system goes to sleep by itself, which would freeze a run: Linux (systemd, GNOME, KDE), Windows."""

from __future__ import annotations

import configparser
import os
import platform
import re
import shutil
import subprocess
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

_ASK_TIMEOUT_S = 1.5
_KEPT_S = 30  # asking starts a process; a live view asks often
_SYSTEMD = Path("/etc/systemd")
_NEVER = (0, "")


def read_sleep(*, on_battery: bool) -> tuple[int | None, str]:
    """Read (seconds of idleness after which the system sleeps, remark); 0: never, None: not known.

    Args:
        on_battery: whether the machine runs on battery now; systems have a setting for each case.
    """
    return _read_sleep(on_battery, int(time.monotonic() // _KEPT_S))


@lru_cache(maxsize=2)
def _read_sleep(on_battery: bool, _now: int) -> tuple[int | None, str]:
    if platform.system() == "Windows":
        return windows_sleep(_ask("powercfg", "/query", "SCHEME_CURRENT", "SUB_SLEEP", "STANDBYIDLE"), on_battery)
    if platform.system() == "Linux":
        return _linux_sleep(on_battery)
    return None, ""


def windows_sleep(answer: str, on_battery: bool) -> tuple[int | None, str]:
    """Parse `powercfg /query`, whose text is localized: its last two hexadecimal numbers are mains and battery.

    Args:
        answer: output of `powercfg /query SCHEME_CURRENT SUB_SLEEP STANDBYIDLE`.
        on_battery: whether to take the setting for battery.
    """
    values = re.findall(r":\s*0x([0-9a-fA-F]{8})\s*$", answer, flags=re.MULTILINE)
    if len(values) < 2:
        return None, ""
    return int(values[-1] if on_battery else values[-2], 16), ""


def _linux_sleep(on_battery: bool) -> tuple[int | None, str]:
    if _sleep_is_off():
        return _NEVER
    desktop = os.environ.get("XDG_CURRENT_DESKTOP", "").upper()
    if "KDE" in desktop:
        return None, "KDE's power settings were not read."
    if "GNOME" in desktop or "UNITY" in desktop or "CINNAMON" in desktop:
        return _gnome_sleep(on_battery)
    if desktop:
        return None, f"The power settings of {desktop.title()} were not read."
    return _logind_sleep()


def _sleep_is_off() -> bool:
    """Whether sleep is forbidden: masked targets (systemctl mask) or AllowSuspend=no (systemd-sleep.conf(5))."""
    for unit in ("sleep.target", "suspend.target"):
        target = _SYSTEMD / "system" / unit
        if target.is_symlink() and str(target.readlink()) == os.devnull:
            return True
    return _setting("sleep.conf", "Sleep", "AllowSuspend").lower() in {"no", "false", "0", "off"}


def _gnome_sleep(on_battery: bool) -> tuple[int | None, str]:
    source = "battery" if on_battery else "ac"
    schema = "org.gnome.settings-daemon.plugins.power"
    kind = _ask("gsettings", "get", schema, f"sleep-inactive-{source}-type").strip().strip("'")
    seconds = _ask("gsettings", "get", schema, f"sleep-inactive-{source}-timeout").strip()
    if kind == "nothing":
        return _NEVER
    if kind and seconds.isdecimal():
        return int(seconds), ""
    return None, ""


def _logind_sleep() -> tuple[int | None, str]:
    """Read logind's action on idleness, the only one without a desktop (logind.conf(5): IdleAction, IdleActionSec)."""
    if not _SYSTEMD.is_dir():
        return None, ""
    action = _setting("logind.conf", "Login", "IdleAction") or "ignore"
    if "suspend" not in action and "hibernate" not in action and action != "sleep":
        return _NEVER
    return seconds_of(_setting("logind.conf", "Login", "IdleActionSec") or "30min"), ""


def seconds_of(span: str) -> int | None:
    """Convert a systemd time span such as "20min" or "1h 30min" to seconds; None for other text (systemd.time(7))."""
    units = {"": 1, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "hr": 3600, "d": 86400}
    parts = re.findall(r"(\d+)\s*([a-z]*)", span.strip().lower())
    if not parts or any(unit not in units for _, unit in parts):
        return None
    return sum(int(count) * units[unit] for count, unit in parts)


def _setting(file: str, section: str, key: str) -> str:
    """Read a value of a systemd configuration file and its drop-ins; the last one wins."""
    value = ""
    drop_ins = _SYSTEMD / f"{file}.d"
    for path in [_SYSTEMD / file, *(sorted(drop_ins.glob("*.conf")) if drop_ins.is_dir() else [])]:
        parser = configparser.ConfigParser(strict=False, interpolation=None, allow_no_value=True)
        with suppress(OSError, UnicodeDecodeError, configparser.Error):
            parser.read_string(path.read_text(encoding="utf-8"))
            value = parser.get(section, key, fallback=value) or value
    return value


def _ask(program: str, *arguments: str) -> str:
    """Run a program and return its output; empty where it is missing, fails or takes long."""
    path = shutil.which(program)
    if not path:
        return ""
    flags = getattr(subprocess, "CREATE_NO_WINDOW", 0)
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [path, *arguments], capture_output=True, timeout=_ASK_TIMEOUT_S, check=True, creationflags=flags
        )
        return done.stdout.decode(errors="replace")
    return ""
