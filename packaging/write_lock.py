"""Writes the lock: the version of every package that the set-up installs, and the hashes of all of its files.

    .venv/bin/python packaging/write_lock.py [--upgrade]

Run it after a change of pyproject.toml or of the versions in `choose_builds.py`, with uv on the PATH. It asks the
package registry. A version that is locked stays as long as it fits; with --upgrade the newest that fits is taken.
Two lists are not written here, one file a line as `sha256sum` prints it: `torch-files.txt` says what torch's own index
serves for torch's version, and is filled in from that index when the version changes; `release.sh` writes
`llama-files.txt`, the wheels of llama-cpp-python in a release.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path

from locked import Pin, parse_pins, read_pins
from packaging.markers import Marker
from packaging.requirements import Requirement

from burnish_engine.install.machine.choose_builds import (
    LLAMA_VERSION,
    MAX_PYTHON,
    MIN_PYTHON,
    TORCH_VERSION,
    TRITON_VERSION,
    TRITON_WINDOWS_VERSION,
)

ROOT = Path(__file__).resolve().parents[1]
LOCK = Path(__file__).with_name("lock")
CHOSEN = {
    "torch": TORCH_VERSION,
    "triton": TRITON_VERSION,
    "triton-windows": TRITON_WINDOWS_VERSION,
    "llama-cpp-python": LLAMA_VERSION,
}
EDITABLE_BUILD = ("editables",)
"""Packages that hatchling needs beside [build-system] when the install is editable."""
COMPILING = ("scikit-build-core[pyproject]>=0.9.2", "cmake>=3.21", "ninja>=1.5")
"""Packages that compile llama-cpp-python: those of its [build-system], and those that scikit-build-core asks for."""
RELEASING = (*COMPILING, "ziglang>=0.17", "hatchling>=1.27")
"""Packages that make the files of a release: compilers for all machines, and what builds Burnish's own wheel."""
FROZEN = ("numpy", "platformdirs", "psutil", "pydantic", "tomlkit", "truststore", "typing-extensions")
"""Dependencies of Burnish that its window uses too; a frozen window carries them and those of the extra `window`."""
FREEZING = ("pyinstaller>=6.22", "hatchling>=1.27", "meson-python>=0.18", "cython>=3.0.6", "ninja>=1.11")
"""Packages that freeze the window, and compile the NumPy in it."""
_LIBRARY = re.compile(r"(nvidia|cuda)-(?!ml-py)")
_MACHINES = (
    {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64"},
    {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "aarch64"},
    {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt", "platform_machine": "AMD64"},
    {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix", "platform_machine": "arm64"},
)


def lock_files(every: Sequence[Pin], users: Iterable[str], others: Mapping[str, Sequence[Pin]]) -> dict[str, str]:
    """The text of each lock file, by its name.

    Args:
        every: packages of users and developers.
        users: normalized names of the packages that a user needs.
        others: packages of the files that stand for themselves, by the file's name.
    """
    users = set(users)
    kinds: dict[str, list[Pin]] = {"packages": [], "developers": [], "cu130": [], "llama": []}
    for pin in every:
        if pin.key == "llama-cpp-python":
            kinds["llama"].append(pin)
        elif _LIBRARY.match(pin.key):
            kinds["cu130"].append(pin)
        else:
            kinds["packages" if pin.key in users else "developers"].append(pin)
    kinds |= {name: list(pins) for name, pins in others.items()}
    return {name: "".join(pin.text() for pin in sorted(pins, key=lambda pin: pin.key)) for name, pins in kinds.items()}


def plain_marker(marker: str) -> str | None:
    """Return the marker where it tells the machines apart that the set-up knows; empty: all; None: it means none."""
    if not marker:
        return ""
    pythons = [f"3.{minor}" for minor in range(MIN_PYTHON[1], MAX_PYTHON[1] + 1)]
    fitting = [
        Marker(marker).evaluate({**machine, "python_version": python, "python_full_version": f"{python}.5"})
        for machine, python in product(_MACHINES, pythons)
    ]
    return "" if all(fitting) else marker if any(fitting) else None


def _compiled(folder: Path, before: Iterable[Pin], sources: Sequence[str], *options: str) -> list[Pin]:
    """Let uv resolve requirements for all systems, with the versions from before wherever they fit."""
    uv = shutil.which("uv")
    if uv is None:
        raise SystemExit("uv was not found on the PATH. Install it (pip install uv) and start again.")
    output, chosen = folder / "locked.txt", folder / "chosen.txt"
    output.write_text("".join(pin.text() for pin in before), encoding="utf-8")
    chosen.write_text("".join(f"{name}=={version}\n" for name, version in CHOSEN.items()), encoding="utf-8")
    settings = ["--universal", "--generate-hashes", "--no-header", "--no-annotate", "--quiet"]
    settings += ["--python-version", ".".join(map(str, MIN_PYTHON)), "-c", str(chosen), "-o", str(output)]
    subprocess.run([uv, "pip", "compile", *sources, *settings, *options], cwd=ROOT, check=True)
    found = [(pin, plain_marker(pin.marker)) for pin in parse_pins(output.read_text(encoding="utf-8"))]
    return [Pin(pin.name, pin.version, marker, pin.hashes) for pin, marker in found if marker is not None]


def main(options: Sequence[str]) -> None:
    """Resolve, and write the files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sources = {"build": [*project["build-system"]["requires"], *EDITABLE_BUILD]}
        sources |= {"compiling": list(COMPILING), "releasing": list(RELEASING)}
        extras = project["project"]["optional-dependencies"]
        frozen = [line for line in project["project"]["dependencies"] if Requirement(line).name in FROZEN]
        sources["freezing"] = [*frozen, *extras["window"], *FREEZING]
        sources |= {"model": extras["demo"], "hybrid": extras["hybrid"]}
        for source, lines in sources.items():
            (folder / f"{source}.in").write_text("\n".join(lines) + "\n", encoding="utf-8")
        usual = ["pyproject.toml", str(folder / "build.in"), "--extra", "window", "--extra", "llama"]
        before = [pin for path in LOCK.glob("*.txt") for pin in read_pins(path)]
        every = _compiled(folder, before, [*usual, "--extra", "dev"], *options)
        users = {pin.key for pin in _compiled(folder, every, usual)}
        others = {
            "llama-compile": _compiled(folder, [*before, *every], [str(folder / "compiling.in")], *options),
            "release": _compiled(folder, [*before, *every], [str(folder / "releasing.in")], *options),
            "window": _compiled(folder, [*before, *every], [str(folder / "freezing.in")], *options),
            "model": _compiled(folder, before, [str(folder / "model.in")], "--no-deps", *options),
            "hybrid": _compiled(folder, before, [str(folder / "hybrid.in")], "--no-deps", *options),
        }
    for kind, text in lock_files(every, users, others).items():
        (LOCK / f"{kind}.txt").write_text(text, encoding="utf-8", newline="\n")
        print(f"{LOCK / kind}.txt: {len(parse_pins(text))} packages")


if __name__ == "__main__":
    main(sys.argv[1:])
