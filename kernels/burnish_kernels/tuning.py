"""Look up which configuration of a kernel is fastest on a device; training never searches for it.

Sources in order: the user's own table, which `burnish bench kernels --tune` writes; the tables shipped in `tuned/`, by
the device's name and then by its compute capability (`sm_89.json`); the default given. A table that cannot be read, or
a choice that the kernel does not know, is ignored: a wrong table may cost speed but never a run.

A table is one JSON object:
`{"device": NAME, "triton": VERSION, "ops": {OP: {"code": FINGERPRINT, "choices": {KEY: {FIELD: VALUE}}}}}`.
The user's table counts only for the same device, Triton and source code of the operation; shipped ones are measured
anew with each release and need `ops` alone.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import logging
import os
import re
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from burnish_kernels.registry import OPS

CACHE_VARIABLE = "BURNISH_KERNEL_CACHE"
"""Environment variable with the folder of the user's tables; without it there are none."""

SHIPPED = Path(__file__).parent / "tuned"
_LARGEST_TABLE = 1 << 20
_log = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class Tuning:
    """One choice to be tuned, from an operation's `cases.tunings(device)`, which makes one choice's tensors at a time.

    Attributes:
        key: key that the operation passes to `choose`.
        candidates: configurations to try, the default first.
        run: function that does the work once with a configuration.
    """

    key: str
    candidates: Sequence[Any]
    run: Callable[[Any], object]


@dataclass(frozen=True)
class Device:
    """The device facts that select a table.

    Attributes:
        name: name as the driver gives it, such as "NVIDIA GeForce RTX 4090".
        capability: compute capability, such as 89.
    """

    name: str
    capability: int

    @property
    def slug(self) -> str:
        """Name as a file name."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-") or "unnamed"


def choose(op: str, key: str, default: T, *, allowed: Collection[T] | None = None, device: Any = None) -> T:
    """Return the tuned configuration, or the default.

    Args:
        op: name of the operation.
        key: name of the choice, such as "forward-bf16-128".
        default: dataclass of numbers, or a dict of them; a choice must have the same fields and types.
        allowed: configurations that are compiled ahead; any other is ignored.
        device: device that it runs on: a `torch.device`, its name, or None for the current GPU; a processor has no
            tables.
    """
    found = device_of(device)
    if found is None:
        return default
    for ops in _tables(found, os.environ.get(CACHE_VARIABLE, "")):
        fields = ops.get(op, {}).get(key)
        choice = None if fields is None else _like(default, fields)
        if choice is not None and (allowed is None or choice in allowed):
            return choice
    return default


def save(op: str, choices: Mapping[str, Any], device: Device) -> Path:
    """Add choices to the user's table.

    Args:
        op: name of the operation.
        choices: dataclass or dict per key.
        device: device that they were measured on.

    Returns:
        The table's file.

    Raises:
        ValueError: No folder is set.
        OSError: The file cannot be written.
    """
    folder = os.environ.get(CACHE_VARIABLE)
    if not folder:
        raise ValueError(f"{CACHE_VARIABLE} names no folder")
    file = Path(folder) / f"{device.slug}.json"
    known = _users(file, device)
    mine = known.get(op, {}) | {key: _fields(choice) for key, choice in choices.items()}
    table = {
        "device": device.name,
        "triton": _triton_version(),
        "ops": {
            name: {"code": fingerprint(name), "choices": dict(sorted(found.items()))}
            for name, found in sorted((known | {op: mine}).items())
        },
    }
    _write(file, json.dumps(table, indent=1) + "\n")
    forget_tables()
    return file


def forget_tables() -> None:
    """Let the next choice read the tables anew, as after one was written."""
    _tables.cache_clear()


def device_of(device: Any) -> Device | None:
    """Return name and capability of a GPU, by default the current one; None for any other device."""
    import torch

    if device is None and not torch.cuda.is_available():
        return None
    chosen = torch.device("cuda" if device is None else device)
    if chosen.type != "cuda":
        return None
    return _cuda(torch.cuda.current_device() if chosen.index is None else chosen.index)


@functools.cache
def _cuda(index: int) -> Device:
    import torch

    major, minor = torch.cuda.get_device_capability(index)
    return Device(torch.cuda.get_device_name(index), 10 * major + minor)


@functools.cache
def fingerprint(op: str) -> str:
    """Return a hash of an operation's source code, because times measured on other code do not apply."""
    digest = hashlib.sha256()
    for file in sorted((Path(__file__).parent / op).glob("*.py")):
        if file.name not in {"cases.py", "reference.py"}:
            digest.update(file.read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()[:16]


Choices = dict[str, dict[str, dict[str, Any]]]
"""Op -> key -> fields."""


@functools.cache
def _tables(device: Device, folder: str) -> tuple[Choices, ...]:
    """Return the tables of a device, most trusted first. They are read once a process."""
    shipped = (SHIPPED / f"{device.slug}.json", SHIPPED / f"sm_{device.capability}.json")
    own = [_users(Path(folder) / f"{device.slug}.json", device)] if folder else []
    return (*own, *(_choices(_read(file)) for file in shipped))


def _users(file: Path, device: Device) -> Choices:
    table = _read(file)
    if (table.get("device"), table.get("triton")) != (device.name, _triton_version()):
        return {}
    return {
        op: choices
        for op, choices in _choices(table).items()
        if op in OPS and table["ops"][op].get("code") == fingerprint(op)
    }


def _read(file: Path) -> dict[str, Any]:
    """Return a table's content; empty where there is none or it is unusable, which is logged once."""
    try:
        if file.stat().st_size > _LARGEST_TABLE:
            raise ValueError("it is too large")
        table = json.loads(file.read_text(encoding="utf-8"))
        _choices(table)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as problem:
        _log.warning("The kernels' tuned choices in %s are ignored: %s", file, problem)
        return {}
    return dict(table)


def _choices(table: Any) -> Choices:
    """Return the choices of a table.

    Raises:
        ValueError: The table does not have the expected form.
    """
    ops = _object(table, "the table").get("ops", {})
    return {
        op: {
            key: _object(fields, f"{op}, {key}")
            for key, fields in _object(_object(entry, op).get("choices", {}), op).items()
        }
        for op, entry in _object(ops, "ops").items()
    }


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what[:80]} is no object")
    return value


def _fields(choice: Any) -> dict[str, Any]:
    return dataclasses.asdict(choice) if dataclasses.is_dataclass(choice) else dict(choice)  # type: ignore[arg-type]


def _like(default: T, fields: Mapping[str, Any]) -> T | None:
    """Return the fields as an object like the default; None where names or types differ, or a number is absurd."""
    shape = _fields(default)
    if set(fields) != set(shape) or any(type(fields[name]) is not type(value) for name, value in shape.items()):
        return None
    if any(isinstance(value, int) and not 0 <= value <= 1 << 16 for value in fields.values()):
        return None
    try:
        return type(default)(**{name: fields[name] for name in shape})
    except (TypeError, ValueError):  # a dataclass that checks itself
        return None


@functools.cache
def _triton_version() -> str:
    for name in ("triton", "triton-windows"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


def _write(file: Path, text: str) -> None:
    """Replace a file at once: readers see the old one or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=file.name, suffix=".new")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
