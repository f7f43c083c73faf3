"""Reads the lock and writes what pip is handed: exact versions with the hashes that their files must have.

A registry's files have the hashes in `lock/`; so have the same files in a mirror or in a folder of downloaded wheels.
Wheels that somebody built lie in folders that the user named. Nobody publishes their hashes: they are hashed where they
lie, taken at the user's word, and told of afterwards.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)(?:\s*;\s*([^\\]+))?")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_TORCH_FILES = "torch-files.txt"
_WHEEL_PLATFORMS = {
    ("Linux", "x86_64"): "manylinux_2_28_x86_64",
    ("Linux", "aarch64"): "manylinux_2_28_aarch64",
    ("Windows", "x86_64"): "win_amd64",
}


@dataclass(frozen=True)
class Pin:
    """A package in one version.

    Attributes:
        name: name as its index writes it.
        version: public version, without the label of a build.
        marker: condition on the machine under which it is installed; empty: always.
        hashes: SHA-256 of each file that may be taken, in hexadecimal.
    """

    name: str
    version: str
    marker: str = ""
    hashes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The normalized name."""
        return normalized(self.name)

    def text(self) -> str:
        """The pin as lines of a requirements file."""
        head = f"{self.name}=={self.version}" + (f" ; {self.marker}" if self.marker else "")
        return " \\\n".join([head, *(f"    --hash=sha256:{one}" for one in self.hashes)]) + "\n"

    def with_hashes(self, more: Iterable[str]) -> Pin:
        """The same pin that takes more files."""
        return Pin(self.name, self.version, self.marker, tuple(dict.fromkeys([*self.hashes, *more])))


@dataclass(frozen=True)
class OwnFile:
    """A wheel in a folder that the user named, with its SHA-256."""

    path: Path
    key: str
    sha256: str


@dataclass(frozen=True)
class Lock:
    """The lock of one set-up.

    Attributes:
        folder: folder of the lock files.
        work: folder for the requirements files that pip reads.
        own: wheels of locked versions in the user's own folders.
    """

    folder: Path
    work: Path
    own: tuple[OwnFile, ...] = ()

    def has(self, name: str) -> bool:
        """Whether there is a lock file of this name."""
        return (self.folder / f"{name}.txt").is_file()

    def pins(self, *names: str) -> list[Pin]:
        """The pins of some lock files, in their order; torch's also take the files of its own index."""
        pins = [pin for name in names for pin in read_pins(self.folder / f"{name}.txt")]
        return [pin.with_hashes(self._torch_files().values()) if pin.key == "torch" else pin for pin in pins]

    def lists_torch(self, version: str, build: str, machine: tuple[str, str], python: tuple[int, ...]) -> bool:
        """Whether a wheel of torch's own index is in the list that comes with Burnish.

        Args:
            version: public version of torch.
            build: build of torch, such as `cu126`.
            machine: operating system and processor, such as `("Linux", "x86_64")`.
            python: version of Python.
        """
        tag = "cp{}{}".format(*python)
        return f"torch-{version}+{build}-{tag}-{tag}-{_WHEEL_PLATFORMS.get(machine)}.whl" in self._torch_files()

    def arguments(
        self, step: str, pins: Sequence[Pin], folders: Sequence[Path] | None = None, *, wheels: bool = True
    ) -> list[str]:
        """Arguments with which pip installs these pins and no file with another hash.

        Args:
            step: name for the files written.
            pins: packages to install.
            folders: the user's folders to take wheels from; None: all.
            wheels: whether to refuse source archives, which run code and fetch what nobody checked.
        """
        own = [
            file for file in self.own if folders is None or file.path.parent in {path.absolute() for path in folders}
        ]
        known = [pin.with_hashes(file.sha256 for file in own if file.key == pin.key) for pin in pins]
        requirements, page = self.work / f"{step}.txt", self.work / f"{step}.html"
        self.work.mkdir(exist_ok=True)
        requirements.write_text("".join(pin.text() for pin in known), encoding="utf-8")
        links = "".join(
            f'<a href="{html.escape(file.path.as_uri())}#sha256={file.sha256}">{html.escape(file.path.name)}</a>\n'
            for file in own
        )
        page.write_text(f"<!doctype html>\n{links}", encoding="utf-8")
        found = ["--require-hashes", "-r", str(requirements)]
        found += ["--find-links", str(page)] if own else []
        return found + (["--only-binary", ":all:"] if wheels else [])

    def unchecked(self, log: str) -> list[Path]:
        """The user's own files that pip took and that no list knows.

        Args:
            log: output of pip.
        """
        names = [path.stem for path in self.folder.glob("*.txt") if path.name != _TORCH_FILES]
        known = {one for pin in self.pins(*names) for one in pin.hashes}
        taken = set(re.findall(r"([^/\\\s]+\.whl)\b", log))
        return [file.path for file in self.own if file.sha256 not in known and file.path.name in taken]

    def _torch_files(self) -> dict[str, str]:
        path = self.folder / _TORCH_FILES
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        return {name: digest for digest, name in (line.split() for line in lines)}


def open_lock(folder: Path, work: Path, own_folders: Iterable[str]) -> Lock:
    """Read which wheels of locked versions lie in the user's own folders, and their hashes.

    Args:
        folder: folder of the lock files.
        work: folder for the requirements files that pip reads.
        own_folders: folders of wheels that the user named; what is no folder is passed over.
    """
    pins = [pin for path in folder.glob("*.txt") if path.name != _TORCH_FILES for pin in read_pins(path)]
    wanted = {(pin.key, pin.version) for pin in pins}
    own = []
    for path in dict.fromkeys(path for one in own_folders for path in sorted(Path(one).absolute().glob("*.whl"))):
        name, version, *_ = [*path.name.split("-"), "", ""]
        if (normalized(name), version.partition("+")[0]) in wanted:
            with path.open("rb") as file:
                own.append(OwnFile(path, normalized(name), hashlib.file_digest(file, "sha256").hexdigest()))
    return Lock(folder, work, tuple(own))


def read_pins(path: Path) -> list[Pin]:
    """The pins of a requirements file; none where there is no such file."""
    return parse_pins(path.read_text(encoding="utf-8")) if path.is_file() else []


def parse_pins(text: str) -> list[Pin]:
    """The pins in the text of a requirements file with hashes."""
    pins = []
    for line in text.replace("\\\n", " ").splitlines():
        found = _PIN.match(line)
        if found:
            marker = (found[3] or "").partition("--hash")[0].strip()
            pins.append(Pin(found[1], found[2], marker, tuple(_HASH.findall(line))))
    return pins


def normalized(name: str) -> str:
    """The normalized name of a package: `Llama_cpp.python` gives `llama-cpp-python`."""
    return re.sub(r"[-_.]+", "-", name).lower()
