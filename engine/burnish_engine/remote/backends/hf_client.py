"""Speaks the protocol of Hugging Face Jobs and buckets: small JSON documents, and a job's log as server-sent events.

huggingface_hub 2.4 speaks it too, but its session refuses all requests in a process that was started offline, as
Burnish's are (see `hub.client`). Paths and documents are those of its `HfApi.run_job` and its neighbors.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import httpx2

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.files import cannot_write
from burnish_engine.hub.endpoint import endpoint
from burnish_engine.hub.offline import GO_ONLINE, is_offline
from burnish_engine.remote.backends.backend import DroppedError

_TIMEOUT = httpx2.Timeout(30.0, connect=10.0)
_SILENCE_S = 120.0  # the service sends a sign of life every 30 s
_BUSY = {408, 429, 500, 502, 503, 504}
_MOST_HOPS = 5
_LARGEST_SMALL = 16 * 2**20  # bytes
_SHOWN = 300


def read_token() -> str:
    """Return the person's access token, from HF_TOKEN or an earlier `hf auth login`.

    Raises:
        SetupError: There is none, or the person asked for no network.
    """
    if is_offline():
        raise SetupError("Hugging Face Jobs is not asked: the environment asks for no network.", GO_ONLINE)
    token = os.environ.get("HF_TOKEN", "").strip()
    if not token:
        from huggingface_hub import get_token

        token = (get_token() or "").strip()
    if not re.fullmatch(r"[!-~]+", token):
        raise SetupError(
            "Hugging Face Jobs needs an access token.", "Set HF_TOKEN, or run `hf auth login`; it needs jobs to write."
        )
    return token


class JobsClient:
    """A client of the service. The token goes into the header of requests to the service, and nowhere else.

    Args:
        token: access token.
    """

    def __init__(self, token: str) -> None:
        self.endpoint = endpoint()
        self._token = token
        self._http = httpx2.Client(timeout=_TIMEOUT)
        self._name = ""

    @property
    def namespace(self) -> str:
        """Name of the person at the service."""
        if not self._name:
            answer = self.ask("GET", "/api/whoami-v2")
            name = str(answer.get("name", "")) if isinstance(answer, dict) else ""
            if not re.fullmatch(r"[\w.-]+", name, flags=re.ASCII):
                raise SetupError(f"{self._host} does not say whose token it is.", "Check HF_ENDPOINT and the token.")
            self._name = name
        return self._name

    def ask(self, method: str, path: str, document: object = None) -> Any:
        """Send a request and return its JSON answer.

        Raises:
            DroppedError: The service cannot be reached just now.
            SetupError: The service refuses.
        """
        try:
            response = self._http.request(
                method, self.endpoint + path, json=document, headers=self._headers(self.endpoint)
            )
        except httpx2.HTTPError as error:
            raise DroppedError(f"{self._host} cannot be reached ({type(error).__name__})") from None
        self._check(response)
        try:
            return response.json() if response.content else {}
        except ValueError:
            raise SetupError(f"{self._host} did not answer as Hugging Face does.", "Check HF_ENDPOINT.") from None

    def log(self, job: str) -> Iterator[str]:
        """Yield the lines of a job's log from its beginning, as they come.

        Raises:
            DroppedError: The connection broke.
            SetupError: The service refuses.
        """
        path = f"/api/jobs/{quote(self.namespace)}/{quote(job)}/logs"
        timeout = httpx2.Timeout(_SILENCE_S, connect=10.0)
        try:
            with self._http.stream(
                "GET", self.endpoint + path, headers=self._headers(self.endpoint), timeout=timeout
            ) as response:
                if response.status_code != 200:
                    response.read()
                self._check(response)
                for line in response.iter_lines():
                    if line.startswith("data: {"):
                        with suppress(ValueError):
                            yield str(json.loads(line.removeprefix("data: ")).get("data", ""))
        except httpx2.HTTPError as error:
            raise DroppedError(f"{self._host} cut the connection ({type(error).__name__})") from None

    def read_bucket_file(self, bucket: str, path: str) -> bytes | None:
        """Read a small file of a bucket; None where there is none.

        Raises:
            DroppedError: The service cannot be reached just now.
            SetupError: The service refuses, or the file is larger than 16 MiB.
        """
        content = bytearray()
        with self._bucket_file(bucket, path) as response:
            if response.status_code == 404:
                return None
            self._check(response)
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > _LARGEST_SMALL:
                    raise SetupError(f"{path} in the bucket is larger than what a job writes.", "Look at the bucket.")
        return bytes(content)

    def copy_bucket_file(self, bucket: str, path: str, target: Path) -> None:
        """Copy a file of a bucket to this machine."""
        with self._bucket_file(bucket, path) as response:
            self._check(response)
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as file:
                    for chunk in response.iter_bytes():
                        file.write(chunk)
            except OSError as error:
                raise cannot_write(target, error) from error

    @contextmanager
    def _bucket_file(self, bucket: str, path: str) -> Iterator[httpx2.Response]:
        """Open a file, over redirects to where it is stored; the token stays with the service."""
        url = f"{self.endpoint}/buckets/{bucket}/resolve/{quote(path, safe='')}"
        try:
            for _ in range(_MOST_HOPS):
                with self._http.stream("GET", url, headers=self._headers(url)) as response:
                    if not response.has_redirect_location:
                        if response.status_code >= 400:
                            response.read()
                        yield response
                        return
                    url = urljoin(url, response.headers["location"])
        except httpx2.HTTPError as error:
            raise DroppedError(f"{self._host} cut the connection ({type(error).__name__})") from None
        raise SetupError(f"{self._host} redirects without end.", "Check HF_ENDPOINT and the proxy settings.")

    @property
    def _host(self) -> str:
        return urlsplit(self.endpoint).hostname or self.endpoint

    def _is_service(self, url: str) -> bool:
        here, there = urlsplit(self.endpoint), urlsplit(url)
        return (here.scheme, here.netloc.lower()) == (there.scheme, there.netloc.lower())

    def _headers(self, url: str) -> dict[str, str]:
        own = {"authorization": f"Bearer {self._token}"} if self._is_service(url) else {}
        return {"accept-encoding": "identity", **own}

    def _check(self, response: httpx2.Response) -> None:
        status = response.status_code
        if status < 400:
            return
        said = ""
        with suppress(ValueError, AttributeError, httpx2.HTTPError):
            said = str(response.json().get("error", ""))[:_SHOWN]
        said = said.replace(self._token, "***")
        if status in _BUSY:
            raise DroppedError(f"{self._host} is busy or out of order (status {status})")
        if status in (401, 403):
            raise SetupError(
                f"{self._host} does not let the access token do this: {said or f'status {status}'}.",
                "Make one that may write jobs and buckets; jobs also need a paid account.",
            )
        raise SetupError(f"{self._host} refused: {said or f'status {status}'}.", "Check the flavor and the token.")
