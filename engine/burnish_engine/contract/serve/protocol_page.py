"""Describes the protocol of `burnish serve` as Markdown, from the classes that define it."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from burnish_engine.contract.errors import EXIT_CODE_MEANINGS
from burnish_engine.contract.facts.capacity import DeviceCapacity, LargestPass, ModelCapacity
from burnish_engine.contract.facts.data_report import FileColumns
from burnish_engine.contract.facts.export_forecast import ExportForecast, ExportStage
from burnish_engine.contract.facts.hardware import (
    GpuHolders,
    GpuSample,
    HardwareSample,
    HardwareStart,
    MemoryHolder,
    MemoryUsers,
    SampledGpu,
)
from burnish_engine.contract.recipe.recipe_export import TargetSection
from burnish_engine.contract.serve.model_requests import ChatMessage, ChatOptions
from burnish_engine.contract.serve.protocol import message_classes, request_classes
from burnish_engine.contract.serve.protocol_line import MAX_LINE_BYTES, PROTOCOL_VERSION
from burnish_engine.contract.serve.replies import Bench, ExportJob, Preview, Reply, RunSummary

_PARTS: tuple[type[BaseModel], ...] = (
    ChatMessage,
    ChatOptions,
    TargetSection,
    RunSummary,
    Bench,
    ExportJob,
    FileColumns,
    Preview,
    Reply,
    DeviceCapacity,
    ModelCapacity,
    LargestPass,
    ExportForecast,
    ExportStage,
    HardwareStart,
    SampledGpu,
    HardwareSample,
    GpuSample,
    MemoryUsers,
    GpuHolders,
    MemoryHolder,
)

_INTRODUCTION = f"""# The protocol of `burnish serve`

Made by `burnish serve --protocol` from `engine/burnish_engine/contract/serve/`. Version {PROTOCOL_VERSION}.

A client starts `burnish serve` and talks to it over standard input and output: one JSON object a line, UTF-8, no line
longer than {MAX_LINE_BYTES // 2**20} MiB. Each request has an `id` of the client's choice and a `method`; every answer
carries that id. Any number of requests may be open; answers come in any order. A request ends with exactly one
`result`, `failure` or `canceled`. A line that is no request is answered by a `failure` with an empty id, and nothing
else happens. NaN and infinity travel as strings.

The server ends when its standard input closes. Runs and exports go on: they are processes of their own, and their
folders say how far they are. Only the protocol is written to standard output; logs go to standard error.

With `--on ssh:HOST` the server of that machine answers. Messages with an empty id come before its `hello`: `progress`
on how the connection is made, and a `failure` where it cannot be made. A `failure` with an empty id at the end says how
it broke.

```
> {{"id":"1","method":"machine"}}
< {{"type":"result","id":"1","machine":{{"os":"Linux", ...}}}}
> {{"id":"2","method":"chat","target":"last","messages":[{{"role":"user","content":"Hello"}}]}}
< {{"type":"piece","id":"2","text":"Hi"}}
> {{"id":"3","method":"cancel","request":"2"}}
< {{"type":"result","id":"3"}}
< {{"type":"canceled","id":"2"}}
```
"""


def protocol_page() -> str:
    """Make the page as Markdown."""
    lines = [_INTRODUCTION, "## Requests"]
    for request in request_classes():
        lines += _section(request, str(request.model_fields["method"].default), leave_out=("id", "method"))
    lines += ["", "## Messages"]
    for message in message_classes():
        lines += _section(message, str(message.model_fields["type"].default), leave_out=("type",))
    lines += ["", "## Parts"]
    for part in _PARTS:
        lines += _section(part, part.__name__, leave_out=())
    lines += ["", "The other types are described by the JSON documents that `burnish doctor --json`, `inspect --json`,"]
    lines += ["`plan --json` and `suggest --json` print.", "", "## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code.value} | {meaning} |" for code, meaning in EXIT_CODE_MEANINGS.items()]
    return "\n".join(lines) + "\n"


def _section(model: type[BaseModel], title: str, *, leave_out: tuple[str, ...]) -> list[str]:
    lines = ["", f"### `{title}`", "", " ".join(str(model.__doc__).split())]
    fields = {name: field for name, field in model.model_fields.items() if name not in leave_out}
    if not fields:
        return lines
    lines += ["", "| key | type | default | meaning |", "|---|---|---|---|"]
    for name, field in fields.items():
        lines.append(f"| `{name}` | {_type(field.annotation)} | {_default(field)} | {_cell(field.description or '')} |")
    return lines


def _type(annotation: Any) -> str:
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    text = re.sub(r"(?:\w+\.)+(\w+)", r"\1", text)
    text = re.sub(r"Literal\[([^\]]*)\]", lambda found: found[1].replace("'", '"').replace(", ", " or "), text)
    return f"`{_cell(text)}`"


def _default(field: Any) -> str:
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, BaseModel):
        return "its defaults"
    return f"`{_cell(json.dumps(value, ensure_ascii=False))}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
