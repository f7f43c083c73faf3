"""Places that files of a release come from: a web address, a folder, or a bundle."""

from __future__ import annotations

import base64
import ssl
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from http.client import HTTPResponse
from pathlib import Path
from typing import IO, NamedTuple, Protocol
from urllib.parse import quote, unquote, urljoin, urlsplit, urlunsplit

import truststore

from burnish_engine.contract.cleaned_text import without_secrets
from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.files import is_file, is_folder, read_limited
from burnish_engine.contract.units import file_size
from burnish_engine.install.files.reasons import BAD_ANSWERS, fetch_problem, page_instead
from burnish_engine.install.release.description import ReleaseFile

_TIMEOUT_S = 30.0
_PARTIAL = 206
_MOST_TEXT_BYTES = 20_000_000  # a description that is longer is none: it is read before its signature is checked
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
        address: address under which the release's files lie. A user and a password in it go to that server alone.
    """

    is_local = False

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        secret, _, self.place = parts.netloc.rpartition("@")
        self._address = urlunsplit(parts._replace(netloc=self.place)).rstrip("/") + "/"
        self._secret = base64.b64encode(unquote(secret).encode()).decode() if secret else ""

    def has(self, file: ReleaseFile) -> bool:  # noqa: ARG002 - as the protocol has it
        """Whether it may have a file, which is seen when it is asked for."""
        return True

    @contextmanager
    def open(self, file: ReleaseFile, offset: int) -> Iterator[Opened]:
        """Open a file, at an offset if the server can do that, otherwise at its beginning."""
        address = urljoin(self._address, quote(file.address, safe="/:%?&=+~"))
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        with self._opened(address, headers) as answer:
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
            with self._opened(urljoin(self._address, name), {}) as answer:
                return _text_of(answer)
        except BAD_ANSWERS as error:
            raise fetch_problem(name, self.place, error, Path(name)) from error

    @contextmanager
    def _opened(self, address: str, headers: dict[str, str]) -> Iterator[HTTPResponse]:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https"):
            raise ValueError(f"{address} is no web address")
        request = urllib.request.Request(address, headers=headers)  # noqa: S310 - checked above
        if self._secret and parts.netloc == self.place:
            request.add_unredirected_header("Authorization", f"Basic {self._secret}")
        tls = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # by the system's certificates
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=tls) as answer:  # noqa: S310 - checked above
            yield answer


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
            return read_limited(self._folder / name, _MOST_TEXT_BYTES).decode()
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
                self._sizes = {entry.filename: entry.file_size for entry in archive.infolist() if _is_plain(entry)}
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
            with zipfile.ZipFile(self._path) as archive, archive.open(name) as stream:
                return _text_of(stream)
        except (*BAD_ANSWERS, RuntimeError) as error:  # RuntimeError: it is encrypted
            raise SetupError(f"{self._path} holds no release of Burnish: {error}.", _CHOOSE) from error


_CHOOSE = "Choose the folder or the bundle of a release."


def open_source(place: str) -> Source:
    """Return the source for an address, a folder or the path of a bundle.

    Raises:
        SetupError: There is no such thing.
    """
    if "://" not in place:
        path = Path(place)
        return FolderSource(path) if is_folder(path) else BundleSource(path)
    with suppress(ValueError):  # such as a bracket that is never closed
        parts = urlsplit(place)
        if parts.scheme in ("http", "https") and parts.hostname:
            return WebSource(place)
    raise SetupError(f"{without_secrets(place)} is no address of a release: it has to begin with https://.", _CHOOSE)


def _text_of(stream: IO[bytes]) -> str:
    """Return the text of a small file.

    Raises:
        ValueError: The file is too large, or no text.
    """
    content = stream.read(_MOST_TEXT_BYTES + 1)
    if len(content) > _MOST_TEXT_BYTES:
        raise ValueError(f"is larger than {file_size(_MOST_TEXT_BYTES)}")
    return content.decode()


def _is_plain(entry: zipfile.ZipInfo) -> bool:
    """Whether a file of an archive is neither compressed nor encrypted, as those of bundles are."""
    return entry.compress_type == zipfile.ZIP_STORED and not entry.flag_bits & 1
