"""Makes a release of the engine in a folder: every file of every kind of machine, their description, its signature.

    python packaging/release/describe_engine.py DIST --target linux-x86_64-cpu [--change SENTENCE] [--secret FILE]
    python packaging/release/describe_engine.py --new-key FILE

--target and --change may be repeated. DIST holds what release.sh made, the wheel of uv, and a standalone Python for
each system, named `python-<version>-<system>-<machine>.tar.gz`, with the interpreter at `python/bin/python3` or
`python/python.exe`. The packages come from where pip is set up to look, by the hashes of the lock, and are put into
`DIST/files`. FILE holds the secret key as hexadecimal digits; without one, sign `engine.json` with the program
minisign. With --new-key a secret key is made and the public one printed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent), str(ROOT / "engine")]

from locked import Pin, read_pins, read_sums  # noqa: E402
from packaging.markers import Marker  # noqa: E402

from burnish_engine.install.release import ed25519, minisign  # noqa: E402
from burnish_engine.install.release.description import DESCRIPTION, FORMAT, SIGNATURE  # noqa: E402

LOCK = HERE.parent / "lock"
_PLATFORMS = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    "windows": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
}
_PYTHON = re.compile(r"python-(\d+\.\d+\.\d+)-(.+)\.tar\.gz")
_NOT_OF_ENGINE = {
    *("pyside6-essentials", "shiboken6", "pyqtgraph"),  # of the window
    *("editables", "hatchling", "pathspec", "pluggy", "trove-classifiers"),  # they build an editable wheel
}
_OLDEST_GLIBC, _NEWEST_GLIBC = 5, 28


@dataclass(frozen=True)
class Machine:
    """A kind of machine, with the Python that its engine runs with."""

    target: str
    python: str

    @property
    def system(self) -> str:
        """The operating system: linux or windows."""
        return self.target.split("-")[0]

    @property
    def processor(self) -> str:
        """The processor, as wheels name it."""
        return "-".join(self.target.split("-")[1:-1])

    @property
    def build(self) -> str:
        """The build of torch."""
        return self.target.rpartition("-")[2]

    def takes(self, pin: Pin) -> bool:
        """Whether a package is installed on this machine."""
        minor = ".".join(self.python.split(".")[:2])
        facts = _PLATFORMS[self.system] | {"python_version": minor, "python_full_version": self.python}
        processor = "AMD64" if self.system == "windows" else self.processor
        return not pin.marker or Marker(pin.marker).evaluate({**facts, "platform_machine": processor})

    def tags(self) -> list[str]:
        """The platforms whose wheels run on it."""
        if self.system == "windows":
            return ["win_amd64"]
        named = [f"manylinux_2_{minor}" for minor in range(_NEWEST_GLIBC, _OLDEST_GLIBC - 1, -1)]
        return [
            f"{name}_{self.processor}" for name in [*named, "manylinux2014", "manylinux2010", "manylinux1", "linux"]
        ]


def pins_of(machine: Machine) -> list[Pin]:
    """Return the packages of a machine's engine, with the files that it may take."""
    names = ["packages", "model", *([machine.build] if (LOCK / f"{machine.build}.txt").is_file() else [])]
    pins = [pin for name in names for pin in read_pins(LOCK / f"{name}.txt") if pin.key not in _NOT_OF_ENGINE]
    return [_of_build(pin, machine) for pin in pins if machine.takes(pin)]


def _of_build(pin: Pin, machine: Machine) -> Pin:
    """Return torch's pin with the files of one build: those of its own index have the build in their names."""
    if pin.key != "torch":
        return pin
    listed = read_sums(LOCK / "torch-files.txt")
    own = tuple(one for name, one in listed.items() if f"+{machine.build}-" in name)
    is_default = machine.system == "linux" and machine.build == "cu130"  # what the package index has for Linux
    return Pin(pin.name, pin.version, pin.marker, (*own, *(pin.hashes if is_default else ())))


def fetch_packages(machine: Machine, folder: Path, wheels: Path) -> list[Path]:
    """Let pip fetch the packages of a machine's engine, and take Burnish's own wheels; returns their files."""
    tag = "cp" + "".join(machine.python.split(".")[:2])
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        work = Path(name)
        requirements = work / "requirements.txt"
        pins = [Pin(pin.name, pin.version, "", pin.hashes) for pin in pins_of(machine)]
        requirements.write_text("".join(pin.text() for pin in pins), encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "-r", str(requirements)]
        command += ["--only-binary", ":all:", "--implementation", "cp", "--python-version", tag[2:]]
        for abi in (tag, "abi3", "none"):
            command += ["--abi", abi]
        for platform in machine.tags():
            command += ["--platform", platform]
        if subprocess.run([*command, "--dest", str(work / "wheels")], check=False).returncode:
            raise SystemExit(f"pip could not fetch the packages of {machine.target}; it says why above.")
        found = [kept(path, folder) for path in sorted((work / "wheels").iterdir())]
    own = [
        *wheels.glob("burnish-*.whl"),
        *(path for path in wheels.glob("llama_cpp_python-*.whl") if _runs(path, machine)),
    ]
    return found + [kept(path, folder) for path in own]


def _runs(wheel: Path, machine: Machine) -> bool:
    return any(
        wheel.stem.endswith(tag) or f"-{tag}." in wheel.name or f".{tag}." in wheel.name for tag in machine.tags()
    )


def kept(path: Path, folder: Path) -> Path:
    """Copy a file into a folder, over another of that name; returns its path there."""
    return Path(shutil.copy2(path, folder / path.name))


def describe(dist: Path, targets: Iterable[str], changes: list[str], version: str) -> str:
    """Return the description of a release, whose files are put into its folder.

    Args:
        dist: folder of the release.
        targets: names of the kinds of machine.
        changes: sentences that say what changed.
        version: version of Burnish.
    """
    folder = dist / "files"
    folder.mkdir(exist_ok=True)
    files: dict[str, Any] = {}
    described: dict[str, Any] = {}
    pythons = {
        found[2]: (path, found[1]) for path in dist.glob("python-*.tar.gz") if (found := _PYTHON.fullmatch(path.name))
    }
    versions = {python for _, python in pythons.values()}
    if len(versions) != 1:
        raise SystemExit(f"A release has one version of Python, and here are {', '.join(sorted(versions)) or 'none'}.")
    for target in targets:
        system = target.rpartition("-")[0]
        if system not in pythons:
            raise SystemExit(f"{dist} has no python-VERSION-{system}.tar.gz, which {target} needs.")
        archive, python = pythons[system]
        machine = Machine(target, python)
        uv = next((path for path in sorted(dist.glob("uv-*.whl")) if _runs(path, machine)), None)
        if uv is None:
            raise SystemExit(f"{dist} has no wheel of uv for {target}.")
        chosen = [(kept(archive, folder), "python"), (kept(uv, folder), "uv")]
        chosen += [(path, "wheel") for path in fetch_packages(machine, folder, dist)]
        hashes = [_add(files, path, kind) for path, kind in chosen]
        described[target] = {
            "python": "python/python.exe" if machine.system == "windows" else "python/bin/python3",
            "installed_bytes": sum(_unpacked_bytes(path) for path, _ in chosen),
            "files": hashes,
        }
    named = {about["name"] for about in files.values()}
    for path in folder.iterdir():
        if path.name not in named:  # of a release that was made here before
            path.unlink()
    about = {"format": FORMAT, "version": version, "python": versions.pop(), "changes": changes}
    return json.dumps(about | {"targets": described, "files": files}, indent=1)


def _add(files: dict[str, Any], path: Path, kind: str) -> str:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    files[digest] = {"name": path.name, "bytes": path.stat().st_size, "kind": kind, "address": f"files/{path.name}"}
    return digest


def _unpacked_bytes(path: Path) -> int:
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            return sum(entry.file_size for entry in wheel.infolist())
    with tarfile.open(path) as archive:
        return sum(entry.size for entry in archive)


def _make_key(path: Path) -> None:
    secret = secrets.token_bytes(ed25519.KEY_BYTES)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
        file.write(secret.hex() + "\n")
    print(_public(secret).text(), end="")


def _public(secret: bytes) -> minisign.PublicKey:
    public = ed25519.public_key(secret)
    return minisign.PublicKey(hashlib.blake2b(public, digest_size=8).digest(), public)


def main() -> None:
    """Make a release, or a key."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dist", type=Path, nargs="?")
    parser.add_argument("--target", action="append", default=[])
    parser.add_argument("--change", action="append", default=[])
    parser.add_argument("--secret", type=Path)
    parser.add_argument("--new-key", type=Path)
    chosen = parser.parse_args()
    if not chosen.new_key and (chosen.dist is None or not chosen.target):
        parser.error("name the folder of the release, and each kind of machine with --target")
    try:
        if chosen.new_key:
            _make_key(chosen.new_key)
        else:
            _make_release(chosen.dist, chosen.target, chosen.change, _read_secret(chosen.secret))
    except OSError as error:
        raise SystemExit(str(error)) from error


def _read_secret(path: Path | None) -> bytes:
    """Return the secret key in a file; empty: none was named."""
    if path is None:
        return b""
    try:
        secret = bytes.fromhex(path.read_text(encoding="ascii"))
    except ValueError:
        secret = b""
    if len(secret) != ed25519.KEY_BYTES:
        raise SystemExit(f"{path} holds no secret key of {ed25519.KEY_BYTES} bytes as hexadecimal digits.")
    return secret


def _make_release(dist: Path, targets: list[str], changes: list[str], secret: bytes) -> None:
    wheels = sorted(dist.glob("burnish-*.whl"))
    if len(wheels) != 1:
        raise SystemExit(f"{dist} has {len(wheels)} wheels burnish-*.whl, and a release has one.")
    version = wheels[0].name.split("-")[1]
    for name in (DESCRIPTION, SIGNATURE):
        (dist / name).unlink(missing_ok=True)  # an old signature would not be of what is written here
    text = describe(dist, targets, changes, version)
    (dist / DESCRIPTION).write_text(text, encoding="utf-8", newline="\n")
    if secret:
        signature = minisign.sign(secret, _public(secret).number, text.encode(), f"Burnish {version}")
        (dist / SIGNATURE).write_text(signature, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
