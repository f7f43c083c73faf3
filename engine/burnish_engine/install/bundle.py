"""Makes a bundle: one archive that sets an engine up on a PC without a network, whatever card that has.

It is a zip file that compresses nothing, as its wheels are compressed: the release's description with its signature,
and the files of the chosen kinds of machine. Files beside it, such as the window's own package, may go along.
"""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.files import cannot_write, replace_with_retry
from burnish_engine.install.files.fetch import Fetcher
from burnish_engine.install.files.meter import Meter
from burnish_engine.install.files.sources import FILES, Source
from burnish_engine.install.offer import ReleaseOffer
from burnish_engine.install.release.description import DESCRIPTION, SIGNATURE, ReleaseFile

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
        SetupError: The release has no engine for one of them, or a file is not there.
    """
    files = {file.sha256: file for name in targets for file in offer.release.target(name).files}
    packages = tuple(packages)
    for path in packages:
        if not path.is_file():
            raise SetupError(f"There is no file {path}.", "Check its path.")
    return BundleContent(tuple(dict.fromkeys(targets)), tuple(files.values()), packages)


def write_bundle(
    offer: ReleaseOffer, content: BundleContent, sources: Sequence[Source], target: Path, meter: Meter | None = None
) -> None:
    """Write a bundle. Its files are fetched beside it first, and continued where an earlier call was cut.

    Args:
        offer: release that it is made of.
        content: content of the bundle.
        sources: places that its files come from, the first that has one first.
        target: path of the bundle.
        meter: counter of the bytes that come.

    Raises:
        SetupError: A file cannot be had.
        NoSpaceError: The disk is full.
        StoppedError: The meter's stop was set.
    """
    folder = target.with_name(f"{target.name}.files")
    aside = target.with_name(f"{target.name}.new")
    meter = meter or Meter(sum(file.size_bytes for file in content.files), threading.Event())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        Fetcher(folder, sources, meter).fetch_all(content.files)
        with zipfile.ZipFile(aside, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr(_READ_ME, _read_me(offer, content))
            archive.writestr(DESCRIPTION, offer.release.text)
            archive.writestr(SIGNATURE, offer.signature)
            for path in content.packages:
                archive.write(path, path.name)
            for file in content.files:
                archive.write(folder / file.name, f"{FILES}/{file.name}")
                (folder / file.name).unlink()
        replace_with_retry(aside, target)
        folder.rmdir()
    except OSError as error:
        raise cannot_write(target, error) from error
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def _read_me(offer: ReleaseOffer, content: BundleContent) -> str:
    packages = ", ".join(path.name for path in content.packages)
    return _TEXT.format(
        version=offer.release.version,
        targets=", ".join(content.targets),
        packages=f" ({packages}, which is in here)" if packages else "",
    )
