"""Reads the lock and writes what pip is handed: exact versions with the hashes that their files must have.

A registry's files have the hashes in `lock/`; so have the same files in a mirror or in a folder of downloaded wheels.
Wheels that somebody built lie in folders that the user named. Nobody publishes their hashes: they are hashed where they
lie, taken at the user's word, and told of afterwards. A folder made by `release.sh` holds `SHA256SUMS`, and a file that
is not as listed there is left alone.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

_PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)(?:\s*;\s*([^\\]+))?")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_SUM = re.compile(r"([0-9a-f]{64}) [ *](.+)")
_TORCH_FILES = "torch-files.txt"
_LLAMA_FILES = "llama-files.txt"
_SUMS = "SHA256SUMS"
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
        damaged: wheels in those folders that are not as their folder's list of hashes says.
    """

    folder: Path
    work: Path
    own: tuple[OwnFile, ...] = ()
    damaged: tuple[Path, ...] = ()

    def has(self, name: str) -> bool:
        """Whether there is a lock file of this name."""
        return (self.folder / f"{name}.txt").is_file()

    def pins(self, *names: str) -> list[Pin]:
        """The pins of some lock files, in their order, which also take torch's own files and those of a release."""
        pins = [pin for name in names for pin in read_pins(self.folder / f"{name}.txt")]
        more = {"torch": _TORCH_FILES, "llama-cpp-python": _LLAMA_FILES}
        return [pin.with_hashes(self._listed(more[pin.key]).values()) if pin.key in more else pin for pin in pins]

    def lists_torch(self, version: str, build: str, machine: tuple[str, str], python: tuple[int, ...]) -> bool:
        """Whether a wheel of torch's own index is in the list that comes with Burnish.

        Args:
            version: public version of torch.
            build: build of torch, such as `cu126`.
            machine: operating system and processor, such as `("Linux", "x86_64")`.
            python: version of Python.
        """
        tag = "cp{}{}".format(*python)
        return f"torch-{version}+{build}-{tag}-{tag}-{_WHEEL_PLATFORMS.get(machine)}.whl" in self._listed(_TORCH_FILES)

    def release_arguments(self, place: str, pins: Sequence[Pin]) -> list[str]:
        """Arguments with which pip installs these pins from a release alone; none where it has no wheel of them.

        Args:
            place: folder or address of the release.
            pins: packages to install.
        """
        path, links = Path(place).absolute(), {}
        if not path.is_dir():
            links = {f"{place.rstrip('/')}/{name}": one for name, one in self._listed(_LLAMA_FILES).items()}
        keys = {pin.key for pin in pins}
        if not links and not any(file.path.parent == path and file.key in keys for file in self.own):
            return []
        return ["--no-index", *self.arguments("release", pins, [path], links=links)]

    def arguments(
        self,
        step: str,
        pins: Sequence[Pin],
        folders: Sequence[Path] | None = None,
        *,
        wheels: bool = True,
        links: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Arguments with which pip installs these pins and no file with another hash.

        Args:
            step: name for the files written.
            pins: packages to install.
            folders: the user's folders to take wheels from; None: all.
            wheels: whether to refuse source archives, which run code and fetch what nobody checked.
            links: SHA-256 of each file that is named by its address.
        """
        own = [
            file for file in self.own if folders is None or file.path.parent in {path.absolute() for path in folders}
        ]
        known = [pin.with_hashes(file.sha256 for file in own if file.key == pin.key) for pin in pins]
        requirements, page = self.work / f"{step}.txt", self.work / f"{step}.html"
        self.work.mkdir(exist_ok=True)
        requirements.write_text("".join(pin.text() for pin in known), encoding="utf-8")
        addresses = {file.path.as_uri(): file.sha256 for file in own} | dict(links or {})
        lines = [
            f'<a href="{html.escape(address)}#sha256={digest}">{html.escape(unquote(address).rpartition("/")[2])}</a>\n'
            for address, digest in addresses.items()
        ]
        page.write_text(f"<!doctype html>\n{''.join(lines)}", encoding="utf-8")
        found = ["--require-hashes", "-r", str(requirements)]
        found += ["--find-links", str(page)] if addresses else []
        return found + (["--only-binary", ":all:"] if wheels else [])

    def unchecked(self, log: str) -> list[Path]:
        """The user's own files that pip took and that no list knows.

        Args:
            log: output of pip.
        """
        known = {one for pin in self.pins(*(path.stem for path in _pin_files(self.folder))) for one in pin.hashes}
        taken = set(re.findall(r"([^/\\\s]+\.whl)\b", log))
        return [file.path for file in self.own if file.sha256 not in known and file.path.name in taken]

    def _listed(self, name: str) -> dict[str, str]:
        return read_sums(self.folder / name)


def open_lock(folder: Path, work: Path, own_folders: Iterable[str]) -> Lock:
    """Read which wheels of locked versions lie in the user's own folders, and their hashes.

    Args:
        folder: folder of the lock files.
        work: folder for the requirements files that pip reads.
        own_folders: folders of wheels that the user named; what is no folder is passed over.
    """
    wanted = {(pin.key, pin.version) for path in _pin_files(folder) for pin in read_pins(path)}
    own, damaged = [], []
    for place in dict.fromkeys(Path(one).absolute() for one in own_folders):
        sums = read_sums(place / _SUMS)
        for path in sorted(one for one in place.glob("*.whl") if one.is_file()):
            name, version, *_ = [*path.name.split("-"), "", ""]
            if (normalized(name), version.partition("+")[0]) not in wanted:
                continue
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if sums.get(path.name, digest) == digest:
                own.append(OwnFile(path, normalized(name), digest))
            else:
                damaged.append(path)
    return Lock(folder, work, tuple(own), tuple(damaged))


def read_sums(path: Path) -> dict[str, str]:
    """The SHA-256 of each file by its name, from a list such as `sha256sum` prints; none where there is no list."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return {found[2]: found[1] for found in map(_SUM.fullmatch, lines) if found}


def _pin_files(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*.txt") if path.name not in {_TORCH_FILES, _LLAMA_FILES}]


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
