"""Find the other processes of a run, by torchrun's environment variables, whoever started them.

The leader listens; the others learn where from a store that all reach (torch's TCPStore), together with a secret word.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import torch
from pydantic import ValidationError

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.facts.machine import GpuFacts
from burnish_engine.contract.recipe.recipe import MOST_GPUS
from burnish_engine.train.parallel.link import Link, LinkLostError
from burnish_engine.train.recovery.recovery import short_message

_LOCAL = "127.0.0.1"
_KEY = "burnish/leader"
_JOIN_S = 300.0  # until all processes have loaded their libraries
_POLL_S = 0.2
_GREETING_S = 10.0


def _number(variables: Mapping[str, str], name: str, default: int | None = None, *, among: range | None = None) -> int:
    text = variables.get(name, "") if default is None else variables.get(name, str(default))
    why = "no number"
    with suppress(ValueError):
        number = int(text)
        if among is None or number in among:
            return number
        why = f"not among {among.start} to {among[-1]}"
    raise SetupError(
        f"{name} is {text!r:.60}, which is {why}; it is one of the variables that say which processes share the run.",
        "torchrun sets all of them. To train alone, unset RANK and WORLD_SIZE.",
    )


@dataclass(frozen=True)
class World:
    """Place of this process among those of a run.

    Attributes:
        rank: number of this process, from 0.
        size: number of processes.
        local_rank: number of this process on its machine, from 0.
        local_size: number of processes on its machine, as far as the launcher says.
        address: host name of the leader.
        port: port of the store on it; 0: the leader chooses one.
        store_exists: whether the launcher holds the store, as torchrun does.
    """

    rank: int
    size: int
    local_rank: int
    address: str = _LOCAL
    port: int = 0
    store_exists: bool = False
    local_size: int = 1

    @classmethod
    def from_environment(cls, variables: Mapping[str, str] | None = None) -> World | None:
        """Read torchrun's variables; None where there are none, or this process is alone.

        Args:
            variables: environment; None: that of this process.

        Raises:
            SetupError: They say that there are several processes, and one of them is no number of a process.
            UsageError: They do not say which of the processes this is, or where all meet.
        """
        found = os.environ if variables is None else variables
        if "WORLD_SIZE" not in found:
            return None
        size = _number(found, "WORLD_SIZE", among=range(1, MOST_GPUS + 1))
        rank = _number(found, "RANK", 0, among=range(size))
        missing = [name for name in ("RANK", "MASTER_PORT") if name not in found]
        if size == 1:
            return None
        if missing:
            raise UsageError(
                f"WORLD_SIZE is {size}: {size} processes share the run, and {' and '.join(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} not set, by which they find each other.",
                "Unset RANK and WORLD_SIZE to train alone; torchrun and `burnish train --gpus` set all of them.",
            )
        port = _number(found, "MASTER_PORT")
        local = _number(found, "LOCAL_RANK", rank, among=range(size))
        beside = _number(found, "LOCAL_WORLD_SIZE", 1, among=range(1, size + 1))
        agent = found.get("TORCHELASTIC_USE_AGENT_STORE", "").lower() == "true"
        address = found.get("MASTER_ADDR", _LOCAL)
        return cls(rank, size, local, address, port, agent, beside)

    def environment(self, rank: int) -> dict[str, str]:
        """Return the variables for another process on this machine."""
        return {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(self.size),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
        }

    def store(self) -> torch.distributed.TCPStore:
        """Connect to the store, or hold it where this is the leader and nobody else does.

        Raises:
            SetupError: The address is not this machine's, the port is none or taken, or nothing answers there.
        """
        if self.port not in range(2**16):
            raise SetupError(
                f"MASTER_PORT is {self.port}, which is no port (1 to 65535).",
                "Set it to a free port of the machine of rank 0; torchrun does.",
            )
        try:
            return self._store()
        except (OSError, torch.distributed.DistNetworkError) as error:
            at = f"{self.address}, port {self.port or 'any'}"
            raise SetupError(
                f"The processes of the run cannot meet at {at} ({short_message(error)}).",
                "MASTER_ADDR has to be the machine of rank 0, and MASTER_PORT a free port of it; torchrun sets both.",
            ) from error

    def _store(self) -> torch.distributed.TCPStore:
        holds, port, listening = self.rank == 0 and not self.store_exists, self.port, None
        if holds and self.is_local and sys.platform != "win32":
            # By itself the store listens on all of the machine's addresses, and whoever reaches it can read the word.
            server = socket.create_server((_LOCAL, port), backlog=self.size)
            port, listening = server.getsockname()[1], server.detach()
        return torch.distributed.TCPStore(
            self.address,
            port,
            self.size,
            is_master=holds,
            timeout=timedelta(seconds=_JOIN_S),
            wait_for_workers=False,
            master_listen_fd=listening,
            use_libuv=sys.platform != "win32",  # torch for Windows is built without
        )

    @property
    def is_local(self) -> bool:
        """Whether all processes are on this machine."""
        return self.address in (_LOCAL, "localhost")


def gather_links(
    world: World, store: torch.distributed.Store, devices: Sequence[torch.device], alive: Callable[[], None]
) -> dict[int, Link]:
    """Wait, as the leader, until all other ranks have connected; return their links by rank.

    Args:
        world: place of the leader.
        store: store that all ranks reach.
        devices: device of each rank; of fewer, only the kind counts, and each takes the one of its local rank.
        alive: function that raises where a rank has ended.

    Raises:
        SetupError: Not all connected in time.
    """
    word = secrets.token_hex(32)
    links: dict[int, Link] = {}
    with socket.create_server((_LOCAL if world.is_local else "", 0), backlog=world.size) as server:
        server.settimeout(_POLL_S)
        told = {"port": server.getsockname()[1], "word": word, "devices": [str(device) for device in devices]}
        store.set(_KEY, json.dumps(told))
        until = time.monotonic() + _JOIN_S
        while len(links) < world.size - 1:
            alive()
            if time.monotonic() > until:
                missing = sorted(set(range(1, world.size)) - set(links))
                raise SetupError(
                    f"Of {world.size} processes, those of rank {missing} did not join within {_JOIN_S:.0f} s.",
                    "Their logs in the run's folder say more.",
                )
            try:
                connected, _ = server.accept()
            except TimeoutError:
                continue
            link = Link(connected)
            rank = _greeted(link, word)
            if rank is None or rank in links or not 0 < rank < world.size:
                link.close()
            else:
                links[rank] = link
    return links


def _greeted(link: Link, word: str) -> int | None:
    """Read which rank connected, and on what GPU it is; None where it does not know the word."""
    try:
        greeting = link.receive_greeting(_GREETING_S)
        if greeting.get("gpu"):
            link.gpu = GpuFacts.model_validate(greeting["gpu"])
    except (LinkLostError, ValidationError):
        return None
    knows = hmac.compare_digest(str(greeting.get("word", "")).encode(), word.encode())
    return greeting["rank"] if knows and isinstance(greeting.get("rank"), int) else None


def gpu_of(device: torch.device) -> GpuFacts | None:
    """Return what tells GPUs of several models apart; None for another device, and one that is not there."""
    if device.type != "cuda" or not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count():
        return None
    found = torch.cuda.get_device_properties(device)
    return GpuFacts(
        index=device.index or 0,
        name=found.name,
        compute_capability=(found.major, found.minor),
        multiprocessors=found.multi_processor_count,
        vram_total_bytes=found.total_memory,
    )


def link_to_leader(world: World, store: torch.distributed.Store) -> tuple[Link, torch.device]:
    """Connect, as another rank, to the leader; return the link, and the device to train on.

    Raises:
        SetupError: The leader ended, or does not say in time where it listens.
    """
    try:
        found = json.loads(store.get(_KEY))
        connected = socket.create_connection((world.address, found["port"]), timeout=_JOIN_S)
        connected.settimeout(None)
        link = Link(connected)
        devices = [torch.device(name) for name in found["devices"]]
        if len(devices) == world.size:
            device = devices[world.rank]
        else:
            device = devices[0] if devices[0].type == "cpu" else torch.device(devices[0].type, world.local_rank)
        gpu = gpu_of(device)
        told = gpu.model_dump(exclude_defaults=True) if gpu else None
        link.send({"rank": world.rank, "word": found["word"], "gpu": told})
    except (OSError, LinkLostError, torch.distributed.DistError) as error:
        raise SetupError(
            f"Rank {world.rank} cannot reach the run's first process ({short_message(error)}).",
            "Where that ended, its own output says why.",
        ) from error
    return link, device
