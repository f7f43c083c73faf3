"""Packs the Burnish that runs here into a wheel for another machine: it is on no registry.

The window is left out, and so are the guide and all pictures and typefaces but those of report pages. The same sources
give the same bytes, so a machine that has this wheel already needs no second environment.
"""

from __future__ import annotations

import base64
import hashlib
import io
import tomllib
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from typing import NamedTuple

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.paths import assets_dir

_EPOCH = (2020, 1, 1, 0, 0, 0)
_LEFT_OUT = {"fonts", "icons", "screenshots", "plots", "guide", "example-runs"}
_OF_PAGES = ("icons/burnish.svg", "fonts/*/*.woff2", "fonts/*/OFL.txt")  # files of `html_page`, and their licenses
_MODES = 0o644 << 16


class Wheel(NamedTuple):
    """A wheel in memory.

    Attributes:
        name: file name, as pip asks for.
        content: bytes of the file.
        requirements: what it needs to train, each as in pyproject.toml.
    """

    name: str
    content: bytes
    requirements: tuple[str, ...]

    @property
    def sha256(self) -> str:
        """Hash of the file."""
        return hashlib.sha256(self.content).hexdigest()


class _Project(NamedTuple):
    version: str
    python: str
    requirements: tuple[str, ...]
    demo: tuple[str, ...]


@cache
def own_wheel() -> Wheel:
    """Pack the engine and the kernels, once in a process.

    Raises:
        SetupError: This installation does not say what it needs.
    """
    project = _project()
    info = f"burnish-{project.version}.dist-info"
    lines = [f"Requires-Dist: {one}" for one in project.requirements]
    lines += ["Provides-Extra: demo", *(f"Requires-Dist: {one}; extra == 'demo'" for one in project.demo)]
    files = dict(_sources())
    head = ["Metadata-Version: 2.1", "Name: burnish", f"Version: {project.version}"]
    about = [*head, f"Requires-Python: {project.python}", *lines, ""]
    files[f"{info}/METADATA"] = "\n".join(about).encode()
    files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: burnish\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/entry_points.txt"] = b"[console_scripts]\nburnish = burnish_engine.cli.main:run\n"
    record = "".join(f"{name},{_digest(data)},{len(data)}\n" for name, data in sorted(files.items()))
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr, entry.compress_type = _MODES, zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return Wheel(f"burnish-{project.version}-py3-none-any.whl", target.getvalue(), project.requirements)


def pinned(requirements: tuple[str, ...]) -> list[str]:
    """List the versions that are installed here of what is required, as pip's constraints; others are left free."""
    found = []
    for text in requirements:
        name = text.split(";")[0].split(">")[0].split("<")[0].split("=")[0].split("[")[0].strip()
        try:
            found.append(f"{name}=={version(name).partition('+')[0]}")
        except PackageNotFoundError:
            continue
    return found


def _sources() -> Iterator[tuple[str, bytes]]:
    import burnish_kernels

    engine = Path(__file__).resolve().parents[2]
    for package in (engine, Path(str(burnish_kernels.__file__)).resolve().parent):
        for path in sorted(package.rglob("*")):
            inside = path.relative_to(package)
            if path.is_file() and "__pycache__" not in inside.parts and inside.parts[0] != "assets":
                yield f"{package.name}/{inside.as_posix()}", path.read_bytes()
    assets = assets_dir()
    for path in sorted(assets.rglob("*")):
        inside = path.relative_to(assets)
        if path.is_file() and (inside.parts[0] not in _LEFT_OUT or any(map(inside.match, _OF_PAGES))):
            yield f"burnish_engine/assets/{inside.as_posix()}", path.read_bytes()


def _project() -> _Project:
    """Read what Burnish needs, from its sources or from how it was installed."""
    sources = Path(__file__).resolve().parents[4] / "pyproject.toml"
    if sources.is_file():
        table = tomllib.loads(sources.read_text(encoding="utf-8"))["project"]
        demo = tuple(table["optional-dependencies"]["demo"])
        return _Project(table["version"], table["requires-python"], tuple(table["dependencies"]), demo)
    try:
        about, all_of = metadata("burnish"), requires("burnish") or []
    except PackageNotFoundError:
        raise SetupError("This installation of Burnish does not say what it needs.", "Install it again.") from None
    base = tuple(one for one in all_of if "extra ==" not in one)
    demo = tuple(one.partition(";")[0].strip() for one in all_of if "extra == 'demo'" in one.replace('"', "'"))
    return _Project(about["Version"], about["Requires-Python"] or ">=3.11", base, demo)


def _digest(data: bytes) -> str:
    """Hash of a file as wheels record it (PEP 376, PEP 427)."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
