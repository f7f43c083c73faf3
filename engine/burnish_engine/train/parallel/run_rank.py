"""The process of a rank other than the leader: it joins the leader, and trains as that says."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

import torch

from burnish_engine.contract.errors import ExitCode, UsageError
from burnish_engine.train.exchange.collectives import Collectives
from burnish_engine.train.parallel.rank_server import RankServer, Replica
from burnish_engine.train.parallel.replica import RunReplica
from burnish_engine.train.parallel.world import World, link_to_leader


def join(make: Callable[[RankServer, torch.device], Replica]) -> ExitCode:
    """Join the leader and carry out its orders to the end.

    Args:
        make: function that makes what this rank trains.

    Raises:
        UsageError: The environment does not say which rank this is.
    """
    world = World.from_environment()
    if world is None:
        raise UsageError(
            "WORLD_SIZE does not say that this process shares another one's run.",
            "Start ranks by torchrun or `burnish train --gpus`, which set RANK, WORLD_SIZE and MASTER_PORT.",
        )
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"):  # the leader decides what becomes of the run
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    store = world.store()
    link, device = link_to_leader(world, store)
    server = RankServer(
        link, world.rank, world.size, device, lambda: Collectives(device, store, world.rank, world.size)
    )
    return server.serve(make(server, device))


def main() -> None:
    """Train as a rank of a run."""
    code = join(RunReplica)
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)  # threads of libraries may wait for ranks that are gone


if __name__ == "__main__":
    main()
