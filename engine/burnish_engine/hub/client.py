"""Asks a hub for the list of a model's files and for the bytes of one file.

huggingface_hub's own downloader (version 2.4) does not fit: it deletes its temporary file on failure, so a killed
download starts over; it cannot be canceled; and its session refuses all requests once HF_HUB_OFFLINE was set at import,
which Burnish sets for the other libraries in the process. The protocol is small and stable, one JSON document and plain
files with Range, so this module speaks it over the HTTP library that huggingface_hub itself uses. The newer chunked
storage ("xet") is not needed: the hub serves the same files over HTTP, up to 50 GB each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar
from urllib.parse import quote, urlencode, urljoin, urlsplit

import httpx2
from pydantic import TypeAdapter, ValidationError

from burnish_engine.contract.errors import BurnishError, SetupError, StoppedError, UsageError
from burnish_engine.contract.version import burnish_version
from burnish_engine.hub.endpoint import endpoint
from burnish_engine.hub.files import FoundAnswer, ModelAnswer

_TIMEOUT = httpx2.Timeout(20.0, connect=10.0)  # seconds; also the longest wait before a cancel is seen
_MAX_HOPS = 10
_MAX_ANSWER_BYTES = 64 * 2**20  # the largest listings, of thousands of files, are a few MB
_BUSY = {408, 429, 500, 502, 503, 504}
_SEARCH_FIELDS = ("sha", "gated", "downloads", "tags", "cardData", "pipeline_tag", "safetensors")
_MODEL, _FOUND = TypeAdapter(ModelAnswer), TypeAdapter(list[FoundAnswer])
_Answer = TypeVar("_Answer")
Canceled = Callable[[], bool]
_CHECKSUM = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class TransientError(Exception):
    """A failure that may pass: no connection, a broken connection, or a busy server.

    Args:
        problem: error to raise when the retries are used up.
        wait_s: time that the server asks to wait, seconds; None where it does not say.
    """

    def __init__(self, problem: BurnishError, wait_s: float | None = None) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.wait_s = wait_s


def raise_if_canceled(canceled: Canceled) -> None:
    """Raise `StoppedError` where the person canceled the download."""
    if canceled():
        raise StoppedError("The download was stopped.", "Start it again; it resumes where it stopped.")


@dataclass(frozen=True)
class FileBody:
    """The answer to a request for a file.

    Attributes:
        start: offset in the file of the first byte, bytes.
        checksum: the hub's current checksum of the file; empty where it gives no usable one.
        chunks: bytes of the file as they arrive; iterating raises `TransientError` where the connection breaks.
    """

    start: int
    checksum: str
    chunks: Iterator[bytes]


class HubClient:
    """A client of one hub. It keeps connections open, which leaving its context closes.

    Args:
        token: access token; sent to the hub alone, never to where it redirects.
        canceled: function that is asked before each request and at each piece of an answer; True stops.

    Raises:
        UsageError: HF_ENDPOINT is no web address, or the token holds characters that no token has.
    """

    def __init__(self, token: str = "", canceled: Canceled = lambda: False) -> None:
        if not re.fullmatch(r"[!-~]*", token):
            raise UsageError("The access token holds spaces or characters that no token has.", "Copy it again.")
        self._endpoint = endpoint()
        self._token = token
        self._canceled = canceled
        agent = f"burnish/{burnish_version()}"
        self._http = httpx2.Client(timeout=_TIMEOUT, headers={"user-agent": agent, "accept-encoding": "identity"})

    def __enter__(self) -> HubClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    @property
    def host(self) -> str:
        """Host name of the hub, for messages."""
        return urlsplit(self._endpoint).hostname or self._endpoint

    @property
    def has_token(self) -> bool:
        """Whether a token was given."""
        return bool(self._token)

    def model(self, name: str, revision: str) -> ModelAnswer:
        """Ask for a model's files and properties.

        Raises:
            UsageError: The hub has no such model or revision.
            SetupError: The model's terms were not accepted, or the answer is not one of a hub.
            TransientError: The request may work later.
        """
        path = f"/api/models/{quote(name)}/revision/{quote(revision, safe='')}?blobs=true"
        with self._open(path, {}) as (response, _):
            self._check(response, name, revision)
            return self._read(response, _MODEL)

    def search(self, query: str, most: int) -> list[FoundAnswer]:
        """Search for models with safetensors weights, those that are downloaded most first.

        Args:
            query: words that the name holds.
            most: number of models at most.

        Raises:
            SetupError: The answer is not one of a hub.
            TransientError: The request may work later.
        """
        asked = [("search", query), ("filter", "safetensors"), ("sort", "downloads"), ("limit", str(most))]
        asked += [("expand", name) for name in _SEARCH_FIELDS]
        with self._open(f"/api/models?{urlencode(asked)}", {}) as (response, _):
            self._check(response, query, "main")
            return self._read(response, _FOUND)

    def _read(self, response: httpx2.Response, form: TypeAdapter[_Answer]) -> _Answer:
        raw = bytearray()
        for chunk in self._chunks(response):
            raw += chunk
            if len(raw) > _MAX_ANSWER_BYTES:
                break
        try:
            return form.validate_json(bytes(raw))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the document"
            raise SetupError(
                f"{self.host} did not answer as a model hub does: {where}: {first['msg']}.",
                "If HF_ENDPOINT is set, check that it names a hub; else see whether a proxy stands in the way.",
            ) from None

    @contextmanager
    def file(self, name: str, commit: str, file: str, offset: int) -> Iterator[FileBody]:
        """Ask for the bytes of a file from an offset on; a server that cannot do that sends it from its start.

        Raises:
            UsageError: The hub has no such model.
            SetupError: The model's terms were not accepted, or it no longer has the file.
            TransientError: The request may work later.
        """
        path = f"/{quote(name)}/resolve/{commit}/{quote(file)}"
        headers = {"range": f"bytes={offset}-"} if offset else {}
        with self._open(path, headers) as (response, checksum):
            if response.status_code == 416:  # the part is longer than the file, so it is useless
                yield FileBody(0, checksum, iter(()))
                return
            self._check(response, name, commit, file)
            encoded = response.headers.get("content-encoding", "identity") != "identity"
            start = _range_start(response) if response.status_code == 206 else 0
            if encoded and start:  # compressed bytes have other offsets than the file: ask for the whole
                yield FileBody(0, checksum, iter(()))
                return
            yield FileBody(start, checksum, self._chunks(response))

    @contextmanager
    def _open(self, path: str, headers: dict[str, str]) -> Iterator[tuple[httpx2.Response, str]]:
        """Follow all redirects; give the last answer and the checksum that the hub named on the way."""
        url = self._endpoint + path
        checksum = ""
        for _ in range(_MAX_HOPS):
            raise_if_canceled(self._canceled)
            own = {"authorization": f"Bearer {self._token}"} if self._token and self._is_hub(url) else {}
            with self._answer(url, headers | own) as response:
                checksum = checksum or _checksum(response)
                if not response.has_redirect_location:
                    yield response, checksum
                    return
                url = self._redirected(url, response.headers["location"])
        raise SetupError(f"{self.host} redirects without end.", "Check HF_ENDPOINT and the proxy settings.")

    @contextmanager
    def _answer(self, url: str, headers: dict[str, str]) -> Iterator[httpx2.Response]:
        try:
            response = self._http.send(self._http.build_request("GET", url, headers=headers), stream=True)
        except httpx2.TransportError as error:
            raise self._connection_error(error, urlsplit(url).hostname or self.host) from None
        except (httpx2.InvalidURL, ValueError, OverflowError):  # a name that no host has, such as a part of 64 letters
            raise self._no_address() from None
        try:
            yield response
        finally:
            response.close()

    def _redirected(self, url: str, location: str) -> str:
        """Return the address that a hub redirects to."""
        try:
            found = urljoin(url, location)
            parts = urlsplit(found)
            is_web = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_web = False
        if not is_web:
            raise self._no_address()
        return found

    def _no_address(self) -> SetupError:
        return SetupError(
            f"{self.host} is no name of a host, or redirects to an address that is none.",
            "Check HF_ENDPOINT and the proxy settings.",
        )

    def _chunks(self, response: httpx2.Response) -> Iterator[bytes]:
        try:
            for chunk in response.iter_bytes():
                raise_if_canceled(self._canceled)
                yield chunk
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise self._connection_error(error, self.host) from None

    def _is_hub(self, url: str) -> bool:
        """Whether the token may be sent to a URL: the endpoint itself, or a host that huggingface_hub trusts."""
        from huggingface_hub import constants

        here, there = urlsplit(self._endpoint), urlsplit(url)
        if (here.scheme, here.netloc.lower()) == (there.scheme, there.netloc.lower()):
            return True
        return there.scheme == "https" and there.netloc.lower() in constants.HF_URL_HOSTS

    def _connection_error(self, error: Exception, host: str) -> Exception:
        """Return the error for a failed connection: `TransientError` where it may pass, else `SetupError`.

        The messages hold no URLs, which may be signed.
        """
        text = str(error)
        if "CERTIFICATE_VERIFY_FAILED" in text or "certificate verify failed" in text:
            return SetupError(
                f"The certificate of {host} is not trusted here.",
                "Does a proxy read encrypted traffic? Add its certificate to the system's.",
            )
        if isinstance(error, httpx2.UnsupportedProtocol):
            return self._no_address()
        kind = "did not answer in time" if isinstance(error, httpx2.TimeoutException) else "could not be reached"
        if isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError | httpx2.DecodingError):
            kind = "cut the connection"
        return TransientError(
            SetupError(f"{host} {kind} ({text or type(error).__name__}).", "Check the network, then start it again.")
        )

    def _check(self, response: httpx2.Response, name: str, revision: str, file: str = "") -> None:
        """Raise the error for a refused request, with what the person can do about it."""
        status, code = response.status_code, response.headers.get("x-error-code", "")
        if status in (200, 206):
            return
        if status in _BUSY:
            busy = SetupError(f"{self.host} is busy or out of order (status {status}).", "Start it again later.")
            raise TransientError(busy, _retry_after(response))
        if code == "GatedRepo":
            raise self.gated(name)
        if code == "RevisionNotFound":
            raise UsageError(f"{name} has no revision {revision!r}.", 'Leave --revision out for the newest ("main").')
        if code == "EntryNotFound":
            raise SetupError(
                f"{name} no longer has the file {file}.", "Start it again to get the newest list of files."
            )
        if status in (401, 403, 404):
            token = "the access token may not see it, or is not valid" if self._token else "it is private"
            raise UsageError(
                f"{self.host} knows no public model {name} (status {status}).",
                f"Check the spelling, capitals included; or {token}.",
            )
        raise SetupError(f"{self.host} refused with status {status}.", "Start it again later.")

    def gated(self, name: str) -> BurnishError:
        """Return the error for a model whose terms were not accepted."""
        if self._token:
            return SetupError(
                f"{name} is gated, and the account of the given access token has no access to it (yet).",
                f"Sign in on the model page {name}, accept its terms (some owners answer by hand, which takes a while) "
                "and see that the token may read gated models; then start it again.",
            )
        return SetupError(
            f"{name} is gated: its owner asks to accept terms before the download.",
            f"Sign in on the model page {name}, accept its terms, make an access token that may read, and start again "
            "with it in the environment variable HF_TOKEN.",
        )


def _range_start(response: httpx2.Response) -> int:
    found = re.match(r"bytes (\d{1,18})-", response.headers.get("content-range", ""))
    return int(found[1]) if found else 0


def _checksum(response: httpx2.Response) -> str:
    """Return the hub's own checksum of the file, empty without one; a content server's ETag is ignored."""
    text = response.headers.get("x-linked-etag", "")
    if not text and "x-repo-commit" in response.headers:
        text = response.headers.get("etag", "")
    text = text.removeprefix("W/").strip('"')
    return text if _CHECKSUM.fullmatch(text) else ""


def _retry_after(response: httpx2.Response) -> float | None:
    value = response.headers.get("retry-after", "")
    return float(value) if re.fullmatch(r"\d{1,6}", value) else None
