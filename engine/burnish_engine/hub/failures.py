"""Says why a call of huggingface_hub failed, in words of our own. For the processes that use that library online."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError

from burnish_engine.contract.files import is_full
from burnish_engine.hub.endpoint import endpoint

FailureKind = Literal["missing", "gated", "unreached", "refused", "disk", "other"]

_MOST_LETTERS = 200  # longest quotation of a library or a server, letters


class HubFailure(BaseModel):
    """The reason why a call of a hub failed.

    Attributes:
        kind: what a person can do something about: no such repository or revision, terms that were not accepted, no
            connection, a refusal, or a file that could not be written.
        text: the reason, to follow a colon; without a full stop.
    """

    kind: FailureKind
    text: str


def failure_of(error: BaseException) -> HubFailure:
    """Return the reason for an error of huggingface_hub, which may lie among the causes of the error."""
    import httpx2
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    host = urlsplit(endpoint()).hostname or endpoint()
    for one in _with_causes(error):
        if isinstance(one, GatedRepoError):
            return HubFailure(kind="gated", text=f"{host} gives it to accounts that accepted its terms")
        if isinstance(one, RepositoryNotFoundError | RevisionNotFoundError):
            return HubFailure(kind="missing", text=f"{host} answered with status {one.response.status_code}")
        if isinstance(one, HfHubHTTPError):
            said = f": {_short(one.server_message)}" if one.server_message else ""
            return HubFailure(kind="refused", text=f"{host} answered with status {one.response.status_code}{said}")
        if isinstance(one, httpx2.TimeoutException):
            return HubFailure(kind="unreached", text=f"{host} did not answer in time")
        if isinstance(one, httpx2.TransportError):
            return HubFailure(kind="unreached", text=f"{host} could not be reached ({_short(one)})")
        if isinstance(one, OSError) and is_full(one):
            return HubFailure(kind="disk", text="the disk is full")
        if isinstance(one, json.JSONDecodeError):
            return HubFailure(kind="refused", text=f"{host} answered with something that is no answer of a hub")
    return HubFailure(kind="other", text=_short(error))


def read_failure(text: str) -> HubFailure:
    """Read the reason that another process wrote as its last line; a process that wrote none ended without a word."""
    for line in reversed(text.splitlines()):
        try:
            return HubFailure.model_validate_json(line)
        except ValidationError:
            continue
    return HubFailure(kind="other", text="the transfer ended without a word")


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    while one is not None:
        yield one
        one = one.__cause__ or one.__context__


def _short(said: object) -> str:
    return " ".join(str(said).split())[:_MOST_LETTERS].rstrip(".") or type(said).__name__
