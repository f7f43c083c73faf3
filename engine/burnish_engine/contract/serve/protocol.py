"""The protocol of `burnish serve`: JSON lines over standard input and output, one object a line, UTF-8.

A client writes requests, each with an id of its own choice; the server answers with messages that carry that id. Any
number of requests may be open. The first line of the server is `hello`. The guide's `serve-protocol.md` is made from
here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import Field, TypeAdapter

from burnish_engine.contract.serve.data_requests import RequestsOnData
from burnish_engine.contract.serve.duel_requests import RequestsOnDuels
from burnish_engine.contract.serve.export_requests import RequestsOnExports
from burnish_engine.contract.serve.messages import Message
from burnish_engine.contract.serve.model_requests import RequestsOnModels
from burnish_engine.contract.serve.protocol_line import ProtocolLine, ProtocolRequest
from burnish_engine.contract.serve.run_requests import RequestsOnRuns


class CancelRequest(ProtocolRequest):
    """Stop working on another request, which then ends with `canceled`. Result: `done`."""

    method: Literal["cancel"] = "cancel"
    request: str = Field(description="Id of the request to stop.")


Request = Annotated[
    RequestsOnModels | RequestsOnData | RequestsOnRuns | RequestsOnDuels | RequestsOnExports | CancelRequest,
    Field(discriminator="method"),
]
"""Union of all requests of a client."""


_REQUESTS: TypeAdapter[Any] = TypeAdapter(Request)
_MESSAGES: TypeAdapter[Any] = TypeAdapter(Message)


def parse_request(line: str | bytes) -> Request:
    """Parse the request on a line.

    Raises:
        pydantic.ValidationError: The line is none.
    """
    request: Request = _REQUESTS.validate_json(line)
    return request


def parse_message(line: str | bytes) -> Message:
    """Parse the server's message on a line.

    Raises:
        pydantic.ValidationError: The line is none.
    """
    message: Message = _MESSAGES.validate_json(line)
    return message


def request_classes() -> tuple[type[ProtocolRequest], ...]:
    """List every request class, for tests and documentation."""
    return get_args(get_args(Request)[0])


def message_classes() -> tuple[type[ProtocolLine], ...]:
    """List every message class of the server, for tests and documentation."""
    return get_args(get_args(Message)[0])
