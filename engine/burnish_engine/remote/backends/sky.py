"""Trains on a cloud's machine that SkyPilot finds, starts and gives back.

SkyPilot's own command does all of that, and writes the machine into the person's ssh configuration; from there on it
is a machine that ssh reaches. The job itself is SkyPilot's, so that a machine without one is taken down by itself.
"""

from __future__ import annotations

import json
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.facts.remote_job import RemoteJob
from burnish_engine.remote.backends.backend import JobStatus, Offer
from burnish_engine.remote.backends.bounded_numbers import core_count, gpu_count, price
from burnish_engine.remote.backends.machines import service_machine
from burnish_engine.remote.backends.on_host import HostFolder, find_root, send_bundle
from burnish_engine.remote.backends.shell import LocalShell, SshShell, run
from burnish_engine.remote.backends.ssh import HostBackend
from burnish_engine.remote.bundle.bundle import Bundle

IDLE_MINUTES = 10
"""Time without a job after which SkyPilot takes the machine down."""
_WAIT_S = 1800  # for the bundle, after which a machine that nobody sends anything to ends
_LAUNCH_S = 3600.0
_READY = "ready-to-train"


class SkyBackend(HostBackend):
    """A cloud's machine by SkyPilot.

    Args:
        where: place as the recipe names it.
        gpu: GPU as SkyPilot calls it; empty: the cheapest that the run fits on.
    """

    def __init__(self, where: str, gpu: str) -> None:
        super().__init__(where, LocalShell())
        self._gpu = gpu

    @override
    def offers(self) -> Sequence[Offer]:
        """List the machines with their prices, by SkyPilot's own list."""
        answer = run(self._shell, f"sky gpus list {shlex.quote(self._gpu)} -o json" if self._gpu else _LIST)
        offers = read_offers(answer)
        if not offers:
            raise SetupError(
                f"SkyPilot lists no machine with the GPU {self._gpu or 'of any kind'}.", "Run `sky check`."
            )
        return offers

    @override
    def check(self, bundle: Bundle, offer: Offer) -> str:
        """Let SkyPilot choose a machine without starting it; return its table."""
        with tempfile.TemporaryDirectory() as folder:
            task = self._write_task(Path(folder), "burnish-check", offer.name)
            return run(self._shell, f"sky launch --dryrun --yes {shlex.quote(str(task))} 2>&1").strip()

    @override
    def submit(self, bundle: Bundle, offer: Offer, name: str) -> RemoteJob:
        self._launch(name, offer.name)
        folder = send_bundle(SshShell(name), bundle, name)
        job = folder.job(self._where, name).model_copy(update={"machine": offer.name})
        self._let_begin(job)
        return job

    @override
    def restart(self, job: RemoteJob) -> RemoteJob:
        self._forget_end(job)
        with tempfile.TemporaryDirectory() as folder:
            task = self._write_task(Path(folder), job.id, job.machine)
            run(self._shell, f"sky exec --detach-run {shlex.quote(job.id)} {shlex.quote(str(task))} 1>&2")
        return job

    @override
    def status(self, job: RemoteJob) -> JobStatus:
        pattern = shlex.quote(f"[{job.folder[0]}]{job.folder[1:]}")  # which does not match its own command line
        alive = run(SshShell(job.id), f"pgrep -f -- {pattern} > /dev/null && echo yes || true").strip() == "yes"
        return JobStatus(alive, "" if alive else "The machine has no such job any more.")

    @override
    def release(self, job: RemoteJob) -> None:
        run(self._shell, f"sky down --yes {shlex.quote(job.id)} 1>&2", wait_s=_LAUNCH_S)

    @override
    def _folder(self, job: RemoteJob) -> HostFolder:
        return HostFolder(SshShell(job.id), job.folder)

    def _launch(self, name: str, accelerators: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            task = self._write_task(Path(folder), name, accelerators)
            options = f"--detach-run --yes --down --idle-minutes-to-autostop {IDLE_MINUTES}"
            run(self._shell, f"sky launch --cluster {name} {options} {shlex.quote(str(task))} 1>&2", wait_s=_LAUNCH_S)

    def _let_begin(self, job: RemoteJob) -> None:
        run(SshShell(job.id), f"touch {shlex.quote(job.folder)}/{_READY}")

    @staticmethod
    def _write_task(folder: Path, name: str, accelerators: str) -> Path:
        path = folder / "task.yaml"
        path.write_text(task_yaml(name, accelerators), encoding="utf-8")
        return path


_LIST = "sky gpus list -o json"


def task_yaml(name: str, accelerators: str) -> str:
    """Write SkyPilot's description of a job: a machine, and a command that waits for the bundle and carries it out.

    Args:
        name: name of the job, and of its folder there.
        accelerators: GPUs as SkyPilot calls them, such as "A100:1".
    """
    lines = [
        f"name: {name}",
        "num_nodes: 1",
        "resources:",
        f"  accelerators: {json.dumps(accelerators)}",  # a JSON string is a YAML string
        "run: |",
        f'  {find_root()}; job="$root/jobs/{name}"; waited=0',
        f'  until [ -e "$job/{_READY}" ]; do',
        f'    sleep 2; waited=$((waited + 2)); [ "$waited" -lt {_WAIT_S} ] || exit 1',
        "  done",
        '  cd "$job" && exec sh ./python -m burnish_engine.remote.there.job "$job"',
    ]
    return "\n".join(lines) + "\n"


def read_offers(answer: str) -> list[Offer]:
    """Read SkyPilot's list of machines; of those with the same GPUs the cheapest.

    Raises:
        SetupError: The answer is no such list.
    """
    try:
        listed: Mapping[str, Sequence[Mapping[str, Any]]] = json.loads(answer[answer.index("{") :])
        entries = [entry for group in listed.values() for entry in group]
        offers: dict[str, Offer] = {}
        for entry in sorted(entries, key=lambda entry: float(entry["price"] or "inf")):
            count = gpu_count(float(entry["accelerator_count"]))
            name = f"{entry['accelerator_name']}:{count}"
            if count < 1 or name in offers:
                continue
            machine = service_machine(
                str(entry["accelerator_name"]),
                count,
                memory_gib=float(entry["device_memory"] or 0.0),
                ram_gib=float(entry["memory"] or 0.0),
                cores=core_count(float(entry["cpu_count"] or 8)),
            )
            offers[name] = Offer(name, machine, usd_per_hour=price(float(entry["price"] or "inf")), gpus=count)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise SetupError(f"SkyPilot's list of machines cannot be read: {error}.", "Is it 0.10 or newer?") from None
    return list(offers.values())
