"""Makes a bundle: one archive that sets an engine up on a PC without a network, whatever card that has.

It is a zip file that compresses nothing, as its wheels are compressed: the release's description with its signature,
and the files of the chosen kinds of machine. Files beside it, such as the window's own package, may go along.
"""

from __future__ import annotations

import shutil
import threading
import zipfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from burnish_engine.contract.errors import NoSpaceError, SetupError, UsageError
from burnish_engine.contract.files import cannot_write, is_file, replace_with_retry
from burnish_engine.contract.units import file_size
from burnish_engine.install.files.fetch import Fetcher, missing_bytes
from burnish_engine.install.files.meter import Meter
from burnish_engine.install.files.sources import FILES, Source
from burnish_engine.install.offer import ReleaseOffer
from burnish_engine.install.release.description import DESCRIPTION, SIGNATURE, ReleaseFile

_BLOCK_BYTES = 2**20
_READ_ME = "READ ME.txt"
_TEXT = """Burnish {version}: bundle for {targets}.

1. Install Burnish's window on the other PC{packages}.
2. Start it. When it asks how to set the engine up, choose this file. It needs no network.
"""


@dataclass(frozen=True)
class BundleContent:
    """The content of a bundle.

    Attributes:
        targets: kinds of machine that it sets up.
        files: files of their engines, each once.
        packages: files that go along.
    """

    targets: tuple[str, ...]
    files: tuple[ReleaseFile, ...]
    packages: tuple[Path, ...]

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(file.size_bytes for file in self.files) + sum(path.stat().st_size for path in self.packages)


def bundle_content(offer: ReleaseOffer, targets: Sequence[str], packages: Iterable[Path] = ()) -> BundleContent:
    """Return what a bundle holds.

    Args:
        offer: release that it is made of.
        targets: names of the kinds of machine that it sets up.
        packages: files that go along, such as the window's packages.

    Raises:
        SetupError: The release has no engine for one of them, a file is not there, or its name is taken.
    """
    files = {file.sha256: file for name in targets for file in offer.release.target(name).files}
    packages = tuple(packages)
    for path in packages:
        if not path.is_file():
            raise SetupError(f"There is no file {path}.", "Check its path.")
    names = [_READ_ME, DESCRIPTION, SIGNATURE, *(path.name for path in packages)]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise SetupError(f"Two files of the bundle would be called {twice}.", "Rename the one that goes along.")
    return BundleContent(tuple(dict.fromkeys(targets)), tuple(files.values()), packages)


def write_bundle(
    offer: ReleaseOffer, content: BundleContent, sources: Sequence[Source], target: Path, meter: Meter | None = None
) -> None:
    """Write a bundle. Its files are fetched beside it first, and stay there until it is whole.

    Args:
        offer: release that it is made of.
        content: content of the bundle.
        sources: places that its files come from, the first that has one first.
        target: path of the bundle.
        meter: counter of the bytes that come, and the way to stop it.

    Raises:
        SetupError: A file cannot be had.
        UsageError: The path is none that a file can be written to.
        NoSpaceError: The disk is full, or has too little room.
        StoppedError: The meter's stop was set.
    """
    try:
        if not target.name or (target.exists() and not is_file(target)):
            raise UsageError(f"{target} is no file.", "Name a file for the bundle, such as burnish.zip.")
    except OSError as error:
        raise cannot_write(target, error) from error
    folder, aside = (target.with_name(f"{target.name}.{ending}") for ending in ("files", "new"))
    meter = meter or Meter(sum(file.size_bytes for file in content.files), threading.Event())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_space(folder, content)
        Fetcher(folder, sources, meter).fetch_all(content.files)
        _write(aside, offer, content, folder, meter)
        replace_with_retry(aside, target)
        shutil.rmtree(folder)
    except OSError as error:
        raise cannot_write(target, error) from error
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        with suppress(OSError):
            folder.rmdir()  # where nothing was fetched yet


def _check_space(folder: Path, content: BundleContent) -> None:
    needed = content.size_bytes + sum(missing_bytes(folder, file) for file in content.files)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise NoSpaceError(
            f"The bundle and its files take {file_size(needed)} while it is made, and {file_size(free)} are free.",
            "Free some space, or write it to another drive.",
        )


def _write(path: Path, offer: ReleaseOffer, content: BundleContent, folder: Path, meter: Meter) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_READ_ME, _read_me(offer, content))
        archive.writestr(DESCRIPTION, offer.release.text)
        archive.writestr(SIGNATURE, offer.signature)
        paths = {path.name: path for path in content.packages}
        paths |= {f"{FILES}/{file.name}": folder / file.name for file in content.files}
        for name, file in paths.items():
            entry = zipfile.ZipInfo.from_file(file, name, strict_timestamps=False)
            with file.open("rb") as source, archive.open(entry, "w") as sink:
                while block := source.read(_BLOCK_BYTES):
                    meter.check()
                    sink.write(block)


def _read_me(offer: ReleaseOffer, content: BundleContent) -> str:
    packages = ", ".join(path.name for path in content.packages)
    return _TEXT.format(
        version=offer.release.version,
        targets=", ".join(content.targets),
        packages=f" ({packages}, which is in here)" if packages else "",
    )
