"""Keeps what was measured of the links between this machine's GPUs, in one small file. Loads no torch, never fails.

GPUs are named by their UUIDs there: indices change with `CUDA_VISIBLE_DEVICES`. Whatever was measured with another
driver does not count, since settings and routes of copies change with it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from filelock import FileLock, Timeout
from pydantic import Field

from burnish_engine.contract.errors import NoSpaceError
from burnish_engine.contract.facts.machine import (
    ExchangeFacts,
    HostCopiesFacts,
    LinkMeasurement,
    MachineFacts,
    PcieFacts,
)
from burnish_engine.contract.files import make_private, read_with_retry, write_atomic
from burnish_engine.contract.paths import links_file
from burnish_engine.contract.record import Record

_log = logging.getLogger(__name__)

_MOST = 100
"""Exchanges, and groups of GPUs, that are kept; the newest."""
_MOST_FILE_BYTES = 1_000_000
_LOCK_S = 5.0
_PCIE = ("generation", "width", "under_load", "to_gpu_gb_s", "from_gpu_gb_s")  # fields of `PcieFacts` that are measured

_Rate = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
_Pair = tuple[str, str, LinkMeasurement]  # UUIDs of two GPUs, and what was measured between them
_Uuids = Annotated[tuple[str, ...], Field(max_length=64)]


class _Exchange(Record):
    gpus: _Uuids
    bytes: int = Field(gt=0, le=2**50)
    ms: _Rate


class _Links(Record):
    version: Literal[1] = 1
    driver: str | None = None
    pcie: dict[str, PcieFacts] = Field(default={})
    pairs: list[_Pair] = Field(default=[])
    all_reduce: list[tuple[_Uuids, _Rate]] = Field(default=[])
    host_copies: list[tuple[_Uuids, HostCopiesFacts]] = Field(default=[])
    exchanges: list[_Exchange] = Field(default=[])


def keep_links(machine: MachineFacts) -> None:
    """Keep the measured rates of a machine's links, in place of those measured before; not of a GPU without a UUID.

    Args:
        machine: facts of this machine with what was measured.
    """
    names = _names(machine)
    pcie = {gpu.uuid: gpu.pcie for gpu in machine.gpus if gpu.uuid and gpu.pcie and gpu.pcie.to_gpu_gb_s}
    pairs = [
        (names[link.first], names[link.second], link.measured)
        for link in machine.links
        if link.measured and {link.first, link.second} <= names.keys()
    ]
    group = tuple(sorted(names.values()))
    whole = len(group) == len(machine.gpus)
    reduce = [(group, machine.all_reduce_gb_s)] if machine.all_reduce_gb_s and whole else []
    copies = [(group, machine.host_copies)] if machine.host_copies and whole else []

    def change(old: _Links) -> _Links:
        new = {"pcie": {**old.pcie, **pcie}, "pairs": [*_other_pairs(old, pairs), *pairs]}
        sums = [one for one in old.all_reduce if not reduce or one[0] != group]
        others = [one for one in old.host_copies if not copies or one[0] != group]
        groups = {"all_reduce": [*sums, *reduce][-_MOST:], "host_copies": [*others, *copies][-_MOST:]}
        return old.model_copy(update={**new, **groups})

    _change(machine, change)


def keep_exchange(machine: MachineFacts, exchange: ExchangeFacts) -> None:
    """Keep how long one exchange took, in place of one of the same GPUs and size.

    Args:
        machine: facts of this machine.
        exchange: exchange over some of its GPUs.
    """
    names = _names(machine)
    if not set(exchange.gpus) <= names.keys():
        return
    group = tuple(sorted(names[index] for index in exchange.gpus))
    new = _Exchange(gpus=group, bytes=exchange.bytes, ms=exchange.ms)

    def change(old: _Links) -> _Links:
        kept = [one for one in old.exchanges if (one.gpus, one.bytes) != (new.gpus, new.bytes)]
        return old.model_copy(update={"exchanges": [*kept, new][-_MOST:]})

    _change(machine, change)


def with_kept_links(machine: MachineFacts) -> MachineFacts:
    """Return a machine's facts with what was measured of its links before; as they are where nothing was."""
    kept = _read()
    if not machine.gpus or kept is None or kept.driver != machine.driver:
        return machine
    indices = {gpu.uuid: gpu.index for gpu in machine.gpus if gpu.uuid}
    measured = {frozenset((first, second)): one for first, second, one in kept.pairs}
    names = _names(machine)
    gpus = [
        gpu.model_copy(update={"pcie": _merged(gpu.pcie, kept.pcie[gpu.uuid])}) if gpu.uuid in kept.pcie else gpu
        for gpu in machine.gpus
    ]
    links = [
        link.model_copy(
            update={"measured": measured.get(frozenset((names.get(link.first, ""), names.get(link.second, ""))))}
        )
        for link in machine.links
    ]
    exchanges = [
        ExchangeFacts(gpus=sorted(indices[uuid] for uuid in one.gpus), bytes=one.bytes, ms=one.ms)
        for one in kept.exchanges
        if set(one.gpus) <= indices.keys()
    ]
    rates = [rate for group, rate in kept.all_reduce if set(group) == indices.keys()]
    copies = [one for group, one in kept.host_copies if set(group) == indices.keys()]
    facts = {
        "gpus": gpus,
        "links": links,
        "exchanges": exchanges,
        "all_reduce_gb_s": rates[-1] if rates else None,
        "host_copies": copies[-1] if copies else None,
    }
    return machine.model_copy(update=facts)


def _names(machine: MachineFacts) -> dict[int, str]:
    """Return the UUID of each GPU that has one."""
    return {gpu.index: gpu.uuid for gpu in machine.gpus if gpu.uuid}


def _other_pairs(old: _Links, new: Sequence[_Pair]) -> list[_Pair]:
    replaced = {frozenset(pair[:2]) for pair in new}
    return [pair for pair in old.pairs if frozenset(pair[:2]) not in replaced]


def _merged(idle: PcieFacts | None, kept: PcieFacts) -> PcieFacts:
    values = {name: getattr(kept, name) for name in _PCIE if getattr(kept, name) is not None}
    return (idle or PcieFacts()).model_copy(update=values)


def _change(machine: MachineFacts, change: Callable[[_Links], _Links]) -> None:
    """Change the file; what a newer version wrote is left alone, and another driver's figures are dropped."""
    path = links_file()
    try:
        make_private(path.parent)
        with FileLock(str(path.with_suffix(".lock")), timeout=_LOCK_S):
            old = _read()
            if old is None:
                return
            old = old if old.driver == machine.driver else _Links(driver=machine.driver)
            write_atomic(path, change(old).model_dump_json(indent=1) + "\n")
    except (OSError, NoSpaceError, Timeout) as error:
        _log.warning("What was measured of the links could not be kept in %s: %s", path, error)


def _read() -> _Links | None:
    """Read the file; None where a newer version wrote it, and no figures where it is missing or damaged."""
    path = links_file()
    try:
        if path.stat().st_size > _MOST_FILE_BYTES:
            raise ValueError("it is too large")
        document = json.loads(read_with_retry(path))
        if isinstance(document, dict) and isinstance(document.get("version"), int) and document["version"] > 1:
            return None
        return _Links.model_validate(document)
    except FileNotFoundError:
        return _Links()
    except (OSError, ValueError, RecursionError) as error:  # pydantic's and JSON's errors are ValueErrors
        _log.warning("What was measured of the links is not used: %s is damaged (%s).", path, type(error).__name__)
        return _Links()
