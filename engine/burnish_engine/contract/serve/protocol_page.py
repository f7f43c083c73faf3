"""Describes the protocol of `burnish serve` as Markdown, from the classes that define it."""

from __future__ import annotations

import json
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from burnish_engine.contract.errors import EXIT_CODE_MEANINGS
from burnish_engine.contract.facts.capacity import DeviceCapacity, LargestPass, ModelCapacity
from burnish_engine.contract.facts.data_report import FileColumns, RowPlace
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
from burnish_engine.contract.recipe.recipe_section import field_limits
from burnish_engine.contract.recipe.sweep import SweepSetting
from burnish_engine.contract.run.events import event_classes
from burnish_engine.contract.serve.duel_requests import DuelSideRequest
from burnish_engine.contract.serve.model_requests import ChatMessage, ChatOptions
from burnish_engine.contract.serve.protocol import message_classes, request_classes
from burnish_engine.contract.serve.protocol_line import MAX_LINE_BYTES, MOST_OPEN, PROTOCOL_VERSION
from burnish_engine.contract.serve.replies import Bench, ExportJob, Preview, Reply, RunSummary
from burnish_engine.contract.serve.reward_trial import RewardTrial, TriedRow

_PARTS: tuple[type[BaseModel], ...] = (
    ChatMessage,
    ChatOptions,
    TargetSection,
    RowPlace,
    SweepSetting,
    DuelSideRequest,
    RunSummary,
    Bench,
    ExportJob,
    FileColumns,
    Preview,
    RewardTrial,
    TriedRow,
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
longer than {MAX_LINE_BYTES // 2**20} MiB. The server says `hello` first. A request has an `id`, a `method` and that
method's keys, no others. The id is the client's choice: 1 to 64 characters, not the id of an open request; every answer
carries it. Up to {MOST_OPEN} requests may be open; answers come in any order. A request ends with exactly one `result`,
`failure` or `canceled`. A line that is no request is answered by a `failure` with an empty id, and nothing else
happens. NaN and infinity travel as strings.

A `recipe` is the text of a TOML file; relative paths in it count from the server's working folder. A `run` is a run
folder, a name in the folder of runs, or `last`, the newest.

The server ends when its standard input closes. Runs and exports continue: they are processes of their own, and their
folders say how far they are, a run's by its events, listed below. Only the protocol is written to standard output; logs
go to standard error.

With `--on ssh:HOST` the server of that machine answers. Messages with an empty id come before its `hello`: `progress`
on how the connection is made, and a `failure` where it cannot be made. A `failure` with an empty id at the end says how
it broke.

In this exchange `...` stands for what is left out: a message has all of its keys, null where they are not filled.

```
< {{"type":"hello","protocol":{PROTOCOL_VERSION}, ...}}
> {{"id":"1","method":"machine"}}
< {{"type":"result","id":"1", ...,"machine":{{"os":"Linux", ...}}, ...}}
> {{"id":"2","method":"chat","target":"last","messages":[{{"role":"user","content":"Hello"}}]}}
< {{"type":"piece","id":"2","text":"Hi"}}
> {{"id":"3","method":"cancel","request":"2"}}
< {{"type":"result","id":"3", ...}}
< {{"type":"canceled","id":"2"}}
```
"""

_OTHER_TYPES = """\
The other types come in answers; a client hands `DatasetFacts` and `MachineFacts` back as `inspect` and `machine`
answered them. `burnish doctor --json`, `inspect --json`, `plan --json` and `suggest --json` print some of them. All are
classes in `engine/burnish_engine/contract/`, with what each field means."""

_EVENTS = """\
A run's process appends them to `events.jsonl` in the run folder, one JSON object a line. Each also has its `type`, `v`
(the format, 1), `seq` (its number in the file) and `t` (seconds since the epoch). Where a run was resumed or rolled
back, what came after the step that it went back to no longer counts."""


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
    lines += ["", _OTHER_TYPES, "", "## Events of a run", "", _EVENTS]
    for event in event_classes():
        lines += _section(event, str(event.model_fields["type"].default), leave_out=("v", "seq", "t", "type"))
    lines += ["", "## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code.value} | {meaning} |" for code, meaning in EXIT_CODE_MEANINGS.items()]
    return "\n".join(lines) + "\n"


def _section(model: type[BaseModel], title: str, *, leave_out: tuple[str, ...]) -> list[str]:
    lines = ["", f"### `{title}`", "", " ".join(str(model.__doc__).split())]
    fields = {name: field for name, field in model.model_fields.items() if name not in leave_out}
    if not fields:
        return lines
    lines += ["", "| key | type | default | meaning |", "|---|---|---|---|"]
    schema = model.model_json_schema()["properties"]
    for name, field in fields.items():
        one = schema[name].get("anyOf", [schema[name]])[0]
        kind = f"`{_type(field.annotation)}` {field_limits(one)}".strip()
        lines.append(f"| `{name}` | {kind} | {_default(field)} | {_cell(field.description or '')} |")
    return lines


def _type(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation is type(None):
        return "null"
    if origin is Annotated:
        return _type(parts[0])
    if origin is Literal:
        return " or ".join(json.dumps(value) for value in parts)
    if origin in (Union, UnionType):
        return " or ".join(map(_type, parts))
    if parts:
        return f"{origin.__name__}[{', '.join(_type(part) for part in parts if part is not ...)}]"
    return str(annotation.__name__)


def _default(field: Any) -> str:
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, BaseModel):
        return "its defaults"
    return f"`{_cell(json.dumps(value, ensure_ascii=False))}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
