"""Freezes the window and packs it for the system that this runs on; the engine with torch is not part of it.

    python freeze.py WORK FOLDER

WORK keeps what was compiled, and FOLDER gets the packages. On Linux, run it on Debian 12, the oldest system that the
window is for: a file that needs a newer glibc, or a library that is not there, ends it with their names. NumPy is
compiled without BLAS there; on Windows its usual wheel is taken. PyInstaller freezes for the processor it runs on, so
the window for aarch64 is made by this script on such a machine.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from bundle import problems  # noqa: E402
from locked import Pin, read_pins  # noqa: E402

LOCK = HERE.parent / "lock" / "window.txt"
_IS_WINDOWS = os.name == "nt"


def environment(folder: Path) -> Path:
    """Make the environment that is frozen: Burnish and the packages of its window; returns its Python.

    Args:
        folder: work folder; NumPy's compiled wheel stays in it.
    """
    place = folder / "window"
    venv.EnvBuilder(with_pip=True, clear=True).create(place)
    python = place / ("Scripts/python.exe" if _IS_WINDOWS else "bin/python")
    pins = read_pins(LOCK)
    compiled = [] if _IS_WINDOWS else [pin for pin in pins if pin.key == "numpy"]
    fetched = _listed(folder / "fetched.txt", [pin for pin in pins if pin not in compiled])
    _pip(python, "install", "--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", fetched)
    if compiled:
        _pip(python, "install", "--no-deps", _numpy(python, folder, compiled[0]))
    _pip(python, "install", "--no-deps", "--no-build-isolation", str(ROOT))
    return python


def _numpy(python: Path, folder: Path, pin: Pin) -> str:
    """NumPy's wheel without BLAS, compiled unless it is there."""
    wheels = folder / "numpy" / f"{pin.version}-{sys.version_info.major}.{sys.version_info.minor}"
    if not any(wheels.glob("*.whl")):
        listed = folder / "numpy.txt"
        listed.write_text(numpy_requirement(pin), encoding="utf-8")
        source = ["--no-binary", "numpy", "--require-hashes", "-r", str(listed)]
        _pip(python, "wheel", "--no-deps", "--no-build-isolation", *source, "--wheel-dir", str(wheels))
    return str(next(wheels.glob("*.whl")))


def numpy_requirement(pin: Pin) -> str:
    """NumPy's lines in a requirements file, with how it is compiled: pip's command line does not say it for a file."""
    settings = (f"setup-args=--native-file={HERE / 'numpy.ini'}", f"compile-args=-j{os.cpu_count() or 1}")
    lines = [pin.text().rstrip(), *(f"    --config-settings={shlex.quote(one)}" for one in settings)]
    return " \\\n".join(lines) + "\n"


def _listed(path: Path, pins: Sequence[Pin]) -> str:
    path.write_text("".join(pin.text() for pin in pins), encoding="utf-8")
    return str(path)


def _pip(python: Path, *arguments: str) -> None:
    tools = os.pathsep.join([str(python.parent), os.environ.get("PATH", "")])
    env = os.environ | {"PATH": tools, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    subprocess.run([str(python), "-m", "pip", *arguments, "--quiet"], env=env, check=True)


def freeze(python: Path, folder: Path) -> Path:
    """Freeze the window; returns its folder.

    Raises:
        SystemExit: The window is too large, or a library that it needs is not there or too new.
    """
    subprocess.run([str(python), str(HERE / "icons.py"), str(folder / "icons")], check=True)
    places = ["--distpath", str(folder / "frozen"), "--workpath", str(folder / "pyinstaller")]
    command = [
        str(python),
        "-m",
        "PyInstaller",
        "--noconfirm",
        "--log-level",
        "WARN",
        *places,
        str(HERE / "studio.spec"),
    ]
    subprocess.run(command, check=True)
    window = folder / "frozen" / "burnish-studio"
    if not _IS_WINDOWS:
        _strip(window / "_internal")
    if found := problems(window):
        raise SystemExit("The frozen window cannot be released:\n" + "\n".join(found))
    return window


def _strip(folder: Path) -> None:
    """Remove the symbols that only debuggers read from Python's libraries, and from NumPy's, which is compiled here."""
    own = [*folder.glob("libpython*.so*"), *folder.glob("python*/lib-dynload/*.so"), *folder.glob("numpy/**/*.so")]
    subprocess.run(["strip", "--strip-unneeded", *map(str, own)], check=True)


def main(arguments: Sequence[str]) -> None:
    """Freeze and pack."""
    folder, target = (Path(path).absolute() for path in arguments)
    folder.mkdir(parents=True, exist_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    window = freeze(environment(folder), folder)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    if _IS_WINDOWS:
        from windows_package import make_installer

        make_installer(window, folder / "icons" / "burnish.ico", target, version)
    else:
        from linux_package import make_packages

        make_packages(window, folder / "icons", target, version)


if __name__ == "__main__":
    main(sys.argv[1:])
