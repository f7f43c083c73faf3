"""Places that files of a release come from: a web address, a folder, or a bundle."""

from __future__ import annotations

import ssl
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from http.client import HTTPResponse
from pathlib import Path
from typing import IO, NamedTuple, Protocol
from urllib.parse import quote, urljoin, urlsplit

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.files import is_file
from burnish_engine.install.files.reasons import fetch_problem, page_instead
from burnish_engine.install.release.description import ReleaseFile

_TIMEOUT_S = 30.0
_PARTIAL = 206
_MOST_TEXT_BYTES = 20_000_000
FILES = "files"
"""Folder of the files in a folder or bundle."""


class Opened(NamedTuple):
    """A file that is read from somewhere in its middle.

    Attributes:
        stream: content from there on.
        offset: bytes before it.
    """

    stream: IO[bytes]
    offset: int


class Source(Protocol):
    """A place that files of a release come from.

    Attributes:
        place: its name, for people.
        is_local: whether it needs no network.
    """

    place: str
    is_local: bool

    def has(self, file: ReleaseFile) -> bool:
        """Whether it may have a file."""

    def open(self, file: ReleaseFile, offset: int) -> AbstractContextManager[Opened]:
        """Open a file, at an offset if that can be had, otherwise at its beginning."""

    def text(self, name: str) -> str:
        """Return a small text file of the release."""


class WebSource:
    """A release at a web address. Proxies are those of the environment and of the system.

    Args:
        address: address under which the release's files lie.
    """

    is_local = False

    def __init__(self, address: str) -> None:
        self.place = urlsplit(address).netloc or address
        self._address = address.rstrip("/") + "/"

    def has(self, file: ReleaseFile) -> bool:  # noqa: ARG002 - as the protocol has it
        """Whether it may have a file, which is seen when it is asked for."""
        return True

    @contextmanager
    def open(self, file: ReleaseFile, offset: int) -> Iterator[Opened]:
        """Open a file, at an offset if the server can do that, otherwise at its beginning."""
        address = urljoin(self._address, quote(file.address, safe="/:%?&=+~"))
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        with _opened(address, headers) as answer:
            if answer.headers.get_content_type() == "text/html":
                raise page_instead()
            continues = answer.status == _PARTIAL
            if continues and not answer.headers.get("Content-Range", "").startswith(f"bytes {offset}-"):
                raise ConnectionError("another part of the file came than was asked for")
            yield Opened(answer, offset if continues else 0)

    def text(self, name: str) -> str:
        """Return a small text file of the release.

        Raises:
            SetupError: The file cannot be fetched.
        """
        try:
            with _opened(urljoin(self._address, name), {}) as answer:
                return answer.read(_MOST_TEXT_BYTES).decode()
        except (OSError, ValueError) as error:
            raise fetch_problem(name, self.place, error, Path(name)) from error


class FolderSource:
    """A release in a folder: its files lie in there, or in a folder `files` in there.

    Args:
        folder: folder with the release's description.
    """

    is_local = True

    def __init__(self, folder: Path) -> None:
        self.place = str(folder)
        self._folder = folder

    def has(self, file: ReleaseFile) -> bool:
        """Whether it has a file of that name and size."""
        path = self._path(file)
        return path is not None and path.stat().st_size == file.size_bytes

    @contextmanager
    def open(self, file: ReleaseFile, offset: int) -> Iterator[Opened]:
        """Open a file at an offset."""
        path = self._path(file)
        if path is None:
            raise FileNotFoundError(f"{file.name} is not in {self._folder}")
        with path.open("rb") as stream:
            stream.seek(offset)
            yield Opened(stream, offset)

    def text(self, name: str) -> str:
        """Return a small text file of the release.

        Raises:
            SetupError: The file cannot be read.
        """
        try:
            return (self._folder / name).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise SetupError(f"{self._folder} holds no release of Burnish: {name}: {error}.", _CHOOSE) from error

    def _path(self, file: ReleaseFile) -> Path | None:
        places = (self._folder / file.name, self._folder / FILES / file.name)
        return next((path for path in places if path.is_file()), None)


class BundleSource:
    """A release in one archive, as `bundle.write_bundle` makes it.

    Args:
        path: path of the archive.
    """

    is_local = True

    def __init__(self, path: Path) -> None:
        self.place = str(path)
        self._path = path
        if not is_file(path):  # zipfile reads a device for ever
            raise SetupError(f"There is no folder and no file of a release at {str(path)!r:.200}.", _CHOOSE)
        try:
            with zipfile.ZipFile(path) as archive:
                self._sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
        except (OSError, zipfile.BadZipFile) as error:
            raise SetupError(f"{path} is no bundle of Burnish, or a damaged one: {error}.", _CHOOSE) from error

    def has(self, file: ReleaseFile) -> bool:
        """Whether it has a file of that name and size."""
        return self._sizes.get(f"{FILES}/{file.name}") == file.size_bytes

    @contextmanager
    def open(self, file: ReleaseFile, offset: int) -> Iterator[Opened]:
        """Open a file at an offset."""
        with zipfile.ZipFile(self._path) as archive, archive.open(f"{FILES}/{file.name}") as stream:
            stream.seek(offset)
            yield Opened(stream, offset)

    def text(self, name: str) -> str:
        """Return a small text file of the release.

        Raises:
            SetupError: The file cannot be read.
        """
        try:
            with zipfile.ZipFile(self._path) as archive:
                return archive.read(name).decode()
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise SetupError(f"{self._path} holds no release of Burnish: {error}.", _CHOOSE) from error


_CHOOSE = "Choose the folder or the bundle of a release."


def open_source(place: str) -> Source:
    """Return the source for an address, a folder or the path of a bundle.

    Raises:
        SetupError: There is no such thing.
    """
    if urlsplit(place).scheme in ("http", "https"):
        return WebSource(place)
    path = Path(place)
    if path.is_dir():
        return FolderSource(path)
    return BundleSource(path)


@contextmanager
def _opened(address: str, headers: dict[str, str]) -> Iterator[HTTPResponse]:
    if urlsplit(address).scheme not in ("http", "https"):
        raise ValueError(f"{address} is no web address")
    request = urllib.request.Request(address, headers=headers)  # noqa: S310 - checked above
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=_tls()) as answer:  # noqa: S310 - checked above
        yield answer


def _tls() -> ssl.SSLContext:
    """Return how servers are checked: by the system's certificates, found by truststore where that is installed."""
    try:
        import truststore
    except ImportError:
        return ssl.create_default_context()
    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
