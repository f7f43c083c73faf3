"""Two questions to a hub: what is in this model, and these bytes of that file.

Why not huggingface_hub's own downloader (read in 2.4): it writes to a temporary file that it deletes on failure, so a
killed download starts over; it cannot be canceled; and its session refuses everything once HF_HUB_OFFLINE was set at
import, which Burnish sets for every other library in the process. The protocol is small and stable: one JSON document
and plain files with Range, so it is spoken here over the HTTP library that huggingface_hub itself uses. The newer
chunked storage ("xet") is not needed: the hub serves the same files over HTTP, up to 50 GB each.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import quote, urljoin, urlsplit

import httpx2
from pydantic import ValidationError

from burnish_engine.contract.errors import BurnishError, SetupError, UsageError
from burnish_engine.contract.version import burnish_version
from burnish_engine.hub.files import ModelAnswer

_TIMEOUT = httpx2.Timeout(20.0, connect=10.0)  # seconds; also the longest wait before a cancel is seen
_MAX_HOPS = 10
_MAX_ANSWER_BYTES = 64 * 2**20  # the largest listings, of thousands of files, are a few MB
_BUSY = {408, 429, 500, 502, 503, 504}
_CHECKSUM = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class TryAgainError(Exception):
    """A failure that may pass: no connection, a cut one, a busy server.

    Args:
        problem: The failure as it is told when patience ends.
        wait_s: How long the server asks to wait; None where it does not say.
    """

    def __init__(self, problem: BurnishError, wait_s: float | None = None) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.wait_s = wait_s


@dataclass(frozen=True)
class Body:
    """The answer to a request for a file.

    Attributes:
        start: Offset in the file that the body begins at.
        checksum: What the hub says the file is now; empty where it says nothing usable.
        chunks: The bytes, as they come. Raises `TryAgainError`.
    """

    start: int
    checksum: str
    chunks: Iterator[bytes]


def endpoint() -> str:
    """Address of the hub: HF_ENDPOINT, else the usual one as huggingface_hub knows it.

    Raises:
        UsageError: HF_ENDPOINT is no web address.
    """
    from huggingface_hub import constants

    address = (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"HF_ENDPOINT is {address!r}, which is no web address.", "Start it with https:// or unset it.")
    return address


class HubClient:
    """Speaks to one hub. A context manager, because it keeps connections open.

    Args:
        token: Access token; sent to the hub alone, never to where it redirects.

    Raises:
        UsageError: HF_ENDPOINT or the token cannot be right.
    """

    def __init__(self, token: str = "") -> None:
        if not re.fullmatch(r"[!-~]*", token):
            raise UsageError("The access token holds spaces or characters that no token has.", "Copy it again.")
        self._endpoint = endpoint()
        self._token = token
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
        """The hub's host, for messages."""
        return urlsplit(self._endpoint).hostname or self._endpoint

    @property
    def has_token(self) -> bool:
        """Whether a token was given."""
        return bool(self._token)

    def model(self, name: str, revision: str) -> ModelAnswer:
        """What is in a model.

        Raises:
            UsageError: There is no such model or revision.
            SetupError: Terms were not accepted, or the answer makes no sense.
            TryAgainError: It may work later.
        """
        path = f"/api/models/{quote(name)}/revision/{quote(revision, safe='')}?blobs=true"
        with self._open(path, {}) as (response, _):
            self._check(response, name, revision)
            raw = bytearray()
            for chunk in self._chunks(response):
                raw += chunk
                if len(raw) > _MAX_ANSWER_BYTES:
                    break
        try:
            return ModelAnswer.model_validate_json(bytes(raw))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the document"
            raise SetupError(
                f"{self.host} did not answer as a model hub does: {where}: {first['msg']}.",
                "If HF_ENDPOINT is set, check that it names a hub; else see whether a proxy stands in the way.",
            ) from None

    @contextmanager
    def file(self, name: str, commit: str, file: str, offset: int) -> Iterator[Body]:
        """The bytes of a file from an offset on; from its start where the server cannot do that.

        Raises:
            UsageError: There is no such file.
            SetupError: Terms were not accepted.
            TryAgainError: It may work later.
        """
        path = f"/{quote(name)}/resolve/{commit}/{quote(file)}"
        headers = {"range": f"bytes={offset}-"} if offset else {}
        with self._open(path, headers) as (response, checksum):
            if response.status_code == 416:  # the part is longer than the file; nothing of it can be used
                yield Body(0, checksum, iter(()))
                return
            self._check(response, name, commit, file)
            encoded = response.headers.get("content-encoding", "identity") != "identity"
            start = _range_start(response) if response.status_code == 206 else 0
            if encoded and start:  # offsets of compressed bytes are not the file's: no use, ask for the whole
                yield Body(0, checksum, iter(()))
                return
            yield Body(start, checksum, self._chunks(response))

    @contextmanager
    def _open(self, path: str, headers: dict[str, str]) -> Iterator[tuple[httpx2.Response, str]]:
        """The answer at the end of all redirects, and the checksum that the hub named on the way."""
        url = self._endpoint + path
        checksum = ""
        for _ in range(_MAX_HOPS):
            own = {"authorization": f"Bearer {self._token}"} if self._token and self._is_hub(url) else {}
            with self._answer(url, headers | own) as response:
                checksum = checksum or _checksum(response)
                if not response.has_redirect_location:
                    yield response, checksum
                    return
                url = urljoin(url, response.headers["location"])
        raise SetupError(f"{self.host} redirects without end.", "Check HF_ENDPOINT and the proxy settings.")

    @contextmanager
    def _answer(self, url: str, headers: dict[str, str]) -> Iterator[httpx2.Response]:
        try:
            response = self._http.send(self._http.build_request("GET", url, headers=headers), stream=True)
        except httpx2.TransportError as error:
            raise self._lost(error, urlsplit(url).hostname or self.host) from None
        except httpx2.InvalidURL:
            raise SetupError(f"{self.host} redirects to an address that is none.", "Check HF_ENDPOINT.") from None
        try:
            yield response
        finally:
            response.close()

    def _chunks(self, response: httpx2.Response) -> Iterator[bytes]:
        try:
            yield from response.iter_bytes()
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise self._lost(error, self.host) from None

    def _is_hub(self, url: str) -> bool:
        """Whether the token may go there: the endpoint itself, and the hosts that huggingface_hub trusts as well."""
        from huggingface_hub import constants

        here, there = urlsplit(self._endpoint), urlsplit(url)
        if (here.scheme, here.netloc.lower()) == (there.scheme, there.netloc.lower()):
            return True
        return there.scheme == "https" and there.netloc.lower() in constants.HF_URL_HOSTS

    def _lost(self, error: Exception, host: str) -> Exception:
        """The failure to reach a host; what cannot pass by itself is not tried again.

        URLs are not told: they may be signed.
        """
        text = str(error)
        if "CERTIFICATE_VERIFY_FAILED" in text or "certificate verify failed" in text:
            return SetupError(
                f"The certificate of {host} is not trusted here.",
                "Does a proxy read encrypted traffic? Add its certificate to the system's.",
            )
        if isinstance(error, httpx2.UnsupportedProtocol):
            return SetupError(f"{self.host} redirects to an address that is none.", "Check HF_ENDPOINT.")
        kind = "did not answer in time" if isinstance(error, httpx2.TimeoutException) else "could not be reached"
        if isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError | httpx2.DecodingError):
            kind = "cut the connection"
        return TryAgainError(
            SetupError(f"{host} {kind} ({text or type(error).__name__}).", "Check the network, then start it again.")
        )

    def _check(self, response: httpx2.Response, name: str, revision: str, file: str = "") -> None:
        """Turn the hub's refusals into what a person can do about them."""
        status, code = response.status_code, response.headers.get("x-error-code", "")
        if status in (200, 206):
            return
        if status in _BUSY:
            busy = SetupError(f"{self.host} is busy or out of order (status {status}).", "Start it again later.")
            raise TryAgainError(busy, _retry_after(response))
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
        """The error for a model whose terms were not accepted."""
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
    found = re.match(r"bytes (\d+)-", response.headers.get("content-range", ""))
    return int(found[1]) if found else 0


def _checksum(response: httpx2.Response) -> str:
    """The hub's own checksum of the file; a content server's ETag, which may be anything, does not count."""
    text = response.headers.get("x-linked-etag", "")
    if not text and "x-repo-commit" in response.headers:
        text = response.headers.get("etag", "")
    text = text.removeprefix("W/").strip('"')
    return text if _CHECKSUM.fullmatch(text) else ""


def _retry_after(response: httpx2.Response) -> float | None:
    value = response.headers.get("retry-after", "")
    return float(value) if re.fullmatch(r"\d{1,6}", value) else None
