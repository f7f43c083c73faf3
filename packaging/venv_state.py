"""The state of `.venv`: does its Python run, what was set up in it and from what, who is working on it."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from burnish_engine.install.machine.file_lock import try_lock
from burnish_engine.install.machine.machine_facts import version_tuple

STAMP = "burnish-setup.json"
LOCK = "setup.lock"
LOG = "setup.log"
PLACE = "the repository's place"
_OURS = {STAMP, LOCK, LOG}
_SHARED = "burnish_engine/install/machine/*.py"  # set-up code that the window uses too
_VENV_ENTRIES = {
    "bin",
    "include",
    "lib",
    "lib64",
    "share",
    "etc",
    "Scripts",
    "Include",
    "Lib",
    ".gitignore",
    "pip.conf",
}


def venv_python(venv: Path) -> Path:
    """The path of a virtual environment's Python."""
    return venv / "Scripts" / "python.exe" if sys.platform == "win32" else venv / "bin" / "python"


def python_version(python: Path) -> tuple[int, ...]:
    """The version of a Python, found by running it; empty when it does not run."""
    if not python.exists():
        return ()
    command = [str(python), "-I", "-S", "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return version_tuple(done.stdout.decode("ascii", errors="replace")) if done.returncode == 0 else ()


def site_packages(venv: Path) -> Path:
    """The folder that packages are installed in; it need not exist."""
    return next(venv.glob("lib/python3*/site-packages"), venv / "Lib" / "site-packages")


def is_replaceable(venv: Path) -> bool:
    """Whether a folder is a virtual environment, or the start of one, and not somebody's other folder."""
    entries = {entry.name for entry in venv.iterdir()} - _OURS
    return (venv / "pyvenv.cfg").is_file() or entries <= _VENV_ENTRIES


def clear(venv: Path) -> None:
    """Empty a virtual environment, all but its log and the lock that this process holds."""
    for entry in venv.iterdir():
        if entry.name in {LOCK, LOG}:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def remove_half_installed(venv: Path) -> list[str]:
    """Make pip install again what a killed pip left unfinished, and remove what it had moved aside.

    A wheel's RECORD is its last file, so a package without one was not unpacked to the end; pip would take its metadata
    for an installed package.
    """
    site = site_packages(venv)
    leftovers = [path for path in site.glob("*.dist-info") if not (path / "RECORD").is_file()]
    leftovers += list(site.glob("~*"))
    for path in leftovers:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    return [path.name for path in leftovers]


def torch_build(venv: Path) -> str:
    """The build of the installed torch (`cpu`, `cu130`), read from its version file; empty when there is none."""
    path = site_packages(venv) / "torch" / "version.py"
    return parse_torch_build(path.read_text(encoding="utf-8")) if path.is_file() else ""


def parse_torch_build(text: str) -> str:
    """The build that torch/version.py tells: `cuda = '13.0'` gives `cu130`, `cuda = None` gives `cpu`."""
    match = re.search(r"^cuda\b[^=]*=\s*(?:None|['\"]([\d.]+)['\"])", text, flags=re.MULTILINE)
    if not match:
        return ""
    return "cu" + match[1].replace(".", "") if match[1] else "cpu"


def library_requirements(site: Path) -> list[str]:
    """The NVIDIA libraries that the installed torch asks for, as requirements; none for a CPU build."""
    lines = [
        line.partition(":")[2].strip()
        for path in site.glob("torch-*.dist-info/METADATA")
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("Requires-Dist:")
    ]
    return [line for line in lines if line.startswith(("nvidia-", "cuda-"))]


def stamp_parts(root: Path, *, choice: str, python: tuple[int, ...]) -> dict[str, str]:
    """Name the things that a set-up depends on, with their state. Equal stamps mean that nothing needs to be done.

    Args:
        root: folder of the repository; its place counts, because an editable install and scripts hold it.
        choice: fingerprint of the chosen builds.
        python: version of the environment's Python.
    """
    here = root / "packaging"
    return {
        "pyproject.toml": _digest([root / "pyproject.toml"]),
        "packaging/lock": _digest(sorted((here / "lock").glob("*.txt"))),
        "packaging": _digest(sorted([*here.glob("*.py"), *(root / "engine").glob(_SHARED)])),
        "the chosen builds": choice,
        "the Python version": ".".join(str(part) for part in python),
        PLACE: str(root),
    }


def read_stamp(venv: Path) -> tuple[dict[str, str], bool]:
    """The stamp of a finished set-up and whether it had the developers' tools; empty when there is none."""
    try:
        stamp = json.loads((venv / STAMP).read_text(encoding="utf-8"))
        return dict(stamp["parts"]), bool(stamp["dev"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}, False


def is_set_up(venv: Path, parts: dict[str, str], *, dev: bool) -> bool:
    """Whether the environment is finished for just these parts, with the developers' tools if they are asked for."""
    found, found_dev = read_stamp(venv)
    return found == parts and (found_dev or not dev)


def changed_parts(venv: Path, parts: dict[str, str]) -> list[str]:
    """Which parts differ from the last finished set-up; empty when there was none."""
    found, _ = read_stamp(venv)
    return [name for name in parts if found and found.get(name) != parts[name]]


def write_stamp(venv: Path, parts: dict[str, str], *, dev: bool) -> None:
    """Mark the set-up as finished; the last step, and atomic."""
    aside = venv / (STAMP + ".new")
    aside.write_text(json.dumps({"parts": parts, "dev": dev}, indent=1, ensure_ascii=False), encoding="utf-8")
    aside.replace(venv / STAMP)


@contextmanager
def setup_lock(venv: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the environment for one set-up at a time; a second one says that it waits.

    The operating system drops the lock when its holder ends, however that happens, so there are no stale ones.
    """
    with (venv / LOCK).open("a+b") as handle:
        if not try_lock(handle):
            say("Another set-up is at work in this folder; waiting for it.")
            while not try_lock(handle):
                time.sleep(0.5)
        yield


def _digest(files: list[Path]) -> str:
    total = hashlib.sha256()
    for path in files:
        total.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return total.hexdigest()[:16]
