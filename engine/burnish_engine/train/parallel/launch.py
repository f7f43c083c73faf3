"""Start the processes of a run that several GPUs share, and connect them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.facts.machine import GpuFacts
from burnish_engine.hardware.gpu.gpu_table import gpu_rates
from burnish_engine.hardware.gpu.interconnect import parallel_settings
from burnish_engine.hardware.probe import probe
from burnish_engine.train.exchange.collectives import Collectives, backend_of
from burnish_engine.train.parallel.link import Link
from burnish_engine.train.parallel.ranks import Rank, Ranks, kill_process, lost_rank
from burnish_engine.train.parallel.world import World, gather_links, gpu_of

RUN_MODULE = "burnish_engine.train.parallel.run_rank"
"""Module of a process that helps to train a run."""
_WATCHED = "burnish_engine.train.parallel.watched_rank"


def devices_of(kind: torch.device, gpus: Sequence[int]) -> list[torch.device]:
    """Return the device of each rank; under torchrun, of those on this machine, where each takes that of its place.

    Args:
        kind: device that the leader would train on alone.
        gpus: indices of the GPUs; on the CPU only their number counts.
    """
    given = World.from_environment()
    if given:
        gpus = range(given.local_size)
    return [torch.device("cuda", index) if kind.type == "cuda" else kind for index in gpus]


@contextmanager
def started_ranks(devices: Sequence[torch.device], logs: Path, module: str = RUN_MODULE) -> Iterator[Ranks | None]:
    """Start the other ranks inside; None where there is at most one device. Under torchrun they exist and only connect.

    Args:
        devices: device of each rank, the leader's first.
        logs: folder for `rank-N.log`, the output of each other rank.
        module: module that the processes run.

    Raises:
        SetupError: They cannot be connected.
        RankLostError: A process ended before it was connected.
        UsageError: A GPU does not exist, or some compute in bf16 and others cannot.
    """
    given = World.from_environment()
    if not devices or (given is None and len(devices) < 2):
        yield None
        return
    if devices[0].type == "cuda":
        _refuse_gpus(devices)
    backend_of(devices[0])  # refuses before anything is started
    if devices[0].type == "cuda":
        for name, value in parallel_settings(probe()).environment.items():
            os.environ.setdefault(name, value)
    world = given or World(0, len(devices), 0)
    store = world.store()
    world = replace(world, port=store.port)
    processes: list[subprocess.Popen[bytes]] = []
    failed = True
    try:
        if not given:
            for rank in range(1, world.size):
                processes.append(_start(world, rank, logs, module))
        alive = _watch(processes, logs)
        links = gather_links(world, store, devices[:1] if given else devices, alive)
        others = [
            Rank(rank, links[rank], processes[rank - 1] if processes else None, _log(logs, rank))
            for rank in range(1, world.size)
        ]
        is_local = given is None or given.local_size == given.size
        ranks = Ranks(
            others,
            lambda: Collectives(devices[0], store, 0, world.size),
            is_local=is_local,
            gpus=_gpus_of(devices, links),
        )
        if devices[0].type == "cuda":
            torch.cuda.set_device(devices[0])  # the collectives did so on a thread of their own
        try:
            yield ranks
            failed = False
        finally:
            ranks.close(kill=failed)
    finally:
        for process in processes:
            kill_process(process)
            if process.stdin:
                process.stdin.close()


def _refuse_gpus(devices: Sequence[torch.device]) -> None:
    """Refuse GPUs that do not exist."""
    count = torch.cuda.device_count()
    missing = [device.index for device in devices if device.index >= count]
    if missing:
        raise UsageError(
            f"GPU {missing[0]} is to share the run; this machine has {count}, numbered from 0.",
            "Ask for as many as `burnish doctor` lists, with --gpus or devices.gpus.",
        )


def _gpus_of(devices: Sequence[torch.device], links: Mapping[int, Link]) -> list[GpuFacts]:
    """Return the GPU of each rank; none on CPUs."""
    found = [gpu_of(devices[0]), *(links[rank].gpu for rank in sorted(links))]
    gpus = [gpu for gpu in found if gpu]
    able = {gpu_rates(gpu).bf16: gpu.name for gpu in gpus}
    if len(able) > 1:
        raise UsageError(
            f"{able[True]} computes in bf16 and {able[False]} cannot, so they cannot share a run.",
            "Name GPUs of like generations in devices.gpus; `burnish doctor` lists them.",
        )
    return gpus


def _log(logs: Path, rank: int) -> Path:
    return logs / f"rank-{rank}.log"


def _start(world: World, rank: int, logs: Path, module: str) -> subprocess.Popen[bytes]:
    with _log(logs, rank).open("wb") as log:
        # A session of its own: Ctrl-C is for the leader, which tells the others when to end.
        return subprocess.Popen(
            [sys.executable, "-P", "-m", _WATCHED, module],
            stdin=subprocess.PIPE,  # never written to: its end is the leader's
            stdout=log,
            stderr=log,
            env={**os.environ, **world.environment(rank)},
            start_new_session=os.name != "nt",
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )


def _watch(processes: Sequence[subprocess.Popen[bytes]], logs: Path) -> Callable[[], None]:
    def alive() -> None:
        for rank, process in enumerate(processes, start=1):
            if process.poll() is not None:
                raise lost_rank(rank, process, _log(logs, rank))

    return alive
