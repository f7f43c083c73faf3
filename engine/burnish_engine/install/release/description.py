"""The description of a release: for each kind of machine, the files of its engine with size and hash."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal, get_args

from burnish_engine.contract.errors import SetupError
from burnish_engine.install.machine.machine_facts import SetupFacts

DESCRIPTION, SIGNATURE = "engine.json", "engine.json.minisig"
"""Names of a release's description and of its signature."""
FORMAT = 1
FileKind = Literal["python", "uv", "wheel"]
_PHASES = {"dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2, "rc": -1, "c": -1, "post": 1}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,254}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class ReleaseFile:
    """A file of an engine.

    Attributes:
        name: name of the file.
        kind: kind: an archive with a standalone Python, the wheel that holds uv, or the wheel of a package.
        size_bytes: size of the file.
        sha256: its SHA-256, in hexadecimal.
        address: address it is published at; a relative one counts from the release's.
    """

    name: str
    kind: FileKind
    size_bytes: int
    sha256: str
    address: str

    @property
    def package(self) -> tuple[str, str]:
        """The name and the version of a wheel's package."""
        name, version, *_ = self.name.split("-")
        return name.replace("_", "-").lower(), version


@dataclass(frozen=True)
class Target:
    """The engine for one kind of machine.

    Attributes:
        name: name, such as `linux-x86_64-cu130`.
        python: path of the interpreter within the unpacked archive, with slashes.
        installed_bytes: size of the engine once it is set up.
        files: files that it is made of.
    """

    name: str
    python: str
    installed_bytes: int
    files: tuple[ReleaseFile, ...]

    @property
    def build(self) -> str:
        """The build of torch."""
        return self.name.rpartition("-")[2]

    @property
    def uses_gpu(self) -> bool:
        """Whether its torch is one for a GPU."""
        return self.build != "cpu"

    @property
    def download_bytes(self) -> int:
        """The size of all files."""
        return sum(file.size_bytes for file in self.files)

    def only(self, kind: FileKind) -> ReleaseFile:
        """Return the one file of a kind."""
        return next(file for file in self.files if file.kind == kind)

    def packages(self) -> dict[str, str]:
        """Return the version of each package."""
        return dict(file.package for file in self.files if file.kind == "wheel")


@dataclass(frozen=True)
class Release:
    """A release of the engine.

    Attributes:
        version: version of Burnish.
        python: version of Python that the engine runs with.
        changes: sentences that say what changed since the release before.
        targets: engine for each kind of machine, by its name.
        text: text of the description.
    """

    version: str
    python: tuple[int, ...]
    changes: tuple[str, ...]
    targets: Mapping[str, Target]
    text: str

    @property
    def order(self) -> tuple[tuple[int, ...], int, int]:
        """Key by which releases are ordered: the version's numbers, then 1.0a1 < 1.0rc1 < 1.0 < 1.0.post1."""
        numbers, rest = re.fullmatch(r"v?([\d.]*)(.*)", self.version.lower(), re.DOTALL).groups()  # type: ignore[union-attr]
        release = [int(part) for part in numbers.split(".") if part]
        while release and not release[-1]:
            release.pop()
        phase = re.match(r"[-_.]?(dev|a|alpha|b|beta|rc|c|post)[-_.]?(\d*)", rest)
        return tuple(release), _PHASES[phase[1]] if phase else 0, int(phase[2] or 0) if phase else 0

    def target(self, name: str) -> Target:
        """Return the engine for a kind of machine.

        Raises:
            SetupError: The release has none.
        """
        if name not in self.targets:
            known = ", ".join(sorted(self.targets)) or "none"
            raise SetupError(
                f"This release of Burnish has no engine for {name}: it has {known}.",
                "Take a release or a bundle that was made for this machine.",
            )
        return self.targets[name]


def target_name(facts: SetupFacts, build: str) -> str:
    """Return the name of the engine for a machine.

    Args:
        facts: facts of the machine.
        build: build of torch, such as `cu130`.
    """
    return f"{facts.system.lower()}-{facts.machine}-{build}"


def read_release(text: str) -> Release:
    """Read a release's description.

    Raises:
        SetupError: The text cannot be read, or is of a newer form.
    """
    try:
        raw = json.loads(text)
        if raw["format"] != FORMAT:
            raise SetupError(
                f"The release's description has form {raw['format']}, and this Burnish reads {FORMAT}.",
                "Install a newer Burnish.",
            )
        files = {sha256: _file(sha256, about) for sha256, about in raw["files"].items()}
        targets = {
            name: Target(name, _inside(about["python"]), int(about["installed_bytes"]), _chosen(files, about["files"]))
            for name, about in raw["targets"].items()
        }
        python = tuple(int(part) for part in raw["python"].split("."))
        return Release(str(raw["version"]), python, tuple(map(str, raw["changes"])), targets, text)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SetupError(
            f"The release's description cannot be read ({type(error).__name__}: {error}).",
            "Take the release from the address that its makers publish.",
        ) from error


def _file(sha256: str, about: Mapping[str, Any]) -> ReleaseFile:
    name, kind = str(about["name"]), about["kind"]
    if not _NAME.fullmatch(name) or not _SHA256.fullmatch(sha256) or kind not in get_args(FileKind):
        raise ValueError(f"{name!r} is no file of an engine")
    return ReleaseFile(name, kind, int(about["bytes"]), sha256, str(about.get("address") or name))


def _chosen(files: Mapping[str, ReleaseFile], names: list[str]) -> tuple[ReleaseFile, ...]:
    chosen = tuple(files[sha256] for sha256 in names)
    kinds = [file.kind for file in chosen]
    if kinds.count("python") != 1 or kinds.count("uv") != 1:
        raise ValueError("an engine has one Python and one uv")
    return chosen


def _inside(path: str) -> str:
    """Return the path if it leads to something inside the folder that it starts in."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or "\\" in path or ":" in path:
        raise ValueError(f"{path!r} leads out of the engine")
    return path
