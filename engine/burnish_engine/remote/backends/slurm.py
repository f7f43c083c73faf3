"""Trains on a cluster with SLURM: sbatch on this machine, or on a login node that ssh reaches.

The login node and the compute nodes have to see the same home folder, or the same BURNISH_REMOTE_FOLDER.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import IO

from typing_extensions import override

from burnish_engine.contract.errors import ExitCode, SetupError
from burnish_engine.contract.facts.remote_job import RemoteJob
from burnish_engine.contract.run.commands import Command
from burnish_engine.remote.backends.backend import ENDINGS, JobStatus, Offer
from burnish_engine.remote.backends.bounded_numbers import first_number, gpu_count, job_number
from burnish_engine.remote.backends.machines import service_machine
from burnish_engine.remote.backends.on_host import kept_if_taken, send_bundle
from burnish_engine.remote.backends.shell import run
from burnish_engine.remote.backends.ssh import HostBackend
from burnish_engine.remote.bundle.bundle import Bundle
from burnish_engine.remote.there.job_folder import JobEnd

SAVE_BEFORE_S = 120
_MOST_CORES = 8  # for each GPU, or for a run on the processor: reading and packing data, and torch's own threads
_SINFO = "sinfo --noheader --format '%P|%G|%m|%c|%l'"
# A batch job gets the environment that it was submitted in, and the cluster keeps it in files: tokens stay out of it.
_SBATCH = "env -u HF_TOKEN -u HUGGING_FACE_HUB_TOKEN sbatch"
_JUDGE = f'said=$({_SBATCH} --test-only 2>&1) || {{ printf "%s\\n" "$said" >&2; exit 1; }}; printf "%s\\n" "$said"'
_GRES = re.compile(r"gpu:(?:([A-Za-z][\w.-]*):)?(\d{1,6})(?!\d)", flags=re.ASCII)
_WAITING = {"PENDING": "Waits in the cluster's queue", "CONFIGURING": "The cluster prepares a node"}
_TAKEN_OUT = "It was taken out of the cluster's queue before it began."
_GONE = {"", "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"}


class SlurmBackend(HostBackend):
    """A cluster with SLURM."""

    @override
    def offers(self) -> Sequence[Offer]:
        """List one machine for each kind of node; a cluster asks no price."""
        found: dict[str, Offer] = {}
        for line in run(self._shell, _SINFO).splitlines():
            partition, gres, memory, cores, limit = (*line.split("|"), "", "", "", "", "")[:5]
            gpu = _GRES.search(gres)
            name, count = (gpu[1] or "", gpu_count(int(gpu[2]))) if gpu else ("", 0)
            machine = service_machine(
                name or ("GPU" if count else ""),
                count,
                ram_gib=first_number(memory) / 1024,
                cores=first_number(cores) or 8,
            )
            label = f"{partition.rstrip('*')}, {count} x {name or 'GPU'}" if count else partition.rstrip("*")
            found.setdefault(label, Offer(partition.rstrip("*"), machine, gpus=count, longest_s=seconds_of(limit)))
        if not found:
            raise SetupError(f"The cluster of {self._shell.host} shows no partition (sinfo).", "Ask its operators.")
        return sorted(found.values(), key=lambda offer: not offer.gpus)

    @override
    def check(self, bundle: Bundle, offer: Offer) -> str:
        """Let sbatch judge the job without queueing it."""
        script = sbatch_script("burnish-check", "/tmp", "true", bundle, offer)  # noqa: S108  nothing is written
        return self._judge(script)

    @override
    def submit(self, bundle: Bundle, offer: Offer, name: str) -> RemoteJob:
        folder = send_bundle(self._shell, bundle, name)
        with kept_if_taken(folder):
            script = sbatch_script(name, folder.path, "exec " + folder.job_command(), bundle, offer)
            self._judge(script)
            target = shlex.quote(f"{folder.path}/job.sbatch")
            run(self._shell, f"cat > {target}", feed=lambda pipe: _write(pipe, script))
            return self._start(folder.job(self._where, ""))

    @override
    def restart(self, job: RemoteJob) -> RemoteJob:
        queued = self._is_queued_again(job)
        self._forget_end(job)
        return job if queued else self._start(job)

    @override
    def status(self, job: RemoteJob) -> JobStatus:
        state, reason = self._state(job)
        if state in _GONE:
            return JobStatus(False, self._last_words(job) or f"The cluster ended the job ({state or 'no trace'}).")
        wait = _WAITING.get(state, "")
        return JobStatus(True, f"{wait} ({reason})." if wait and reason not in ("", "None") else wait)

    @override
    def send(self, job: RemoteJob, command: Command) -> JobEnd | None:
        """Hand a command to the run; one that ends it takes a job that still waits out of the queue."""
        if (status := ENDINGS.get(command.name)) is not None and self._take_out(job):
            end = JobEnd(exit_code=ExitCode.STOPPED, status=status, message=_TAKEN_OUT)
            self._folder(job).write_end(end)
            return end
        return super().send(job, command)

    def _take_out(self, job: RemoteJob) -> bool:
        """Take a job out of the queue, unless it has begun meanwhile; return whether it is out."""
        if self._state(job)[0] != "PENDING":
            return False
        run(self._shell, f"scancel --state=PENDING {self._number(job)}")
        return self._state(job)[0] in ("", "CANCELLED")

    def _state(self, job: RemoteJob) -> tuple[str, str]:
        """Ask for the job's state and its reason; empty where the cluster has no trace of it."""
        answer = run(self._shell, f"squeue --noheader --jobs {self._number(job)} --format '%T|%r' 2> /dev/null || true")
        state, _, reason = answer.strip().partition("|")
        return state, reason

    def _is_queued_again(self, job: RemoteJob) -> bool:
        """Whether the cluster begins the job again by itself, as after preemption: it needs no second one."""
        state, _ = self._state(job)
        ended = f"[ -e {shlex.quote(job.folder + '/job_end.json')} ] && echo yes || true"
        return state in _WAITING or (state == "RUNNING" and run(self._shell, ended).strip() != "yes")

    def _judge(self, script: str) -> str:
        """Return what sbatch says of a script; raises `SetupError` with its words where it would not run."""
        return run(self._shell, _JUDGE, feed=lambda pipe: _write(pipe, script)).strip()

    def _start(self, job: RemoteJob) -> RemoteJob:
        answer = run(self._shell, f"{_SBATCH} --parsable {shlex.quote(job.folder + '/job.sbatch')}").strip()
        number = job_number(answer.partition(";")[0], f"sbatch of {self._shell.host}")  # NUMBER;CLUSTER on a federation
        return job.model_copy(update={"id": number})


def seconds_of(limit: str) -> int | None:
    """Read a time limit as SLURM writes it, such as "2-00:00:00", "1:00:00" or "30:00"; None: there is none."""
    found = re.fullmatch(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d{1,6})", limit.strip(), flags=re.ASCII)
    if not found:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def sbatch_script(name: str, folder: str, command: str, bundle: Bundle, offer: Offer) -> str:
    """Write the batch script of a job: one node, its GPUs, a termination in time to save, again after preemption.

    Args:
        name: name of the job.
        folder: folder of the job there.
        command: shell command that carries the job out; it takes the place of the script's shell, which the cluster
            sends the termination to.
        bundle: what was sent.
        offer: kind of node.
    """
    gpus = (bundle.manifest.gpus or 1) if offer.gpus else 0
    minutes = max(1, bundle.manifest.timeout_s // 60)
    lines = [
        "#!/bin/sh",
        f"#SBATCH --job-name={name}",
        f"#SBATCH --chdir={shlex.quote(folder)}",
        f"#SBATCH --output={shlex.quote(folder + '/job.log')}",
        "#SBATCH --open-mode=append",
        f"#SBATCH --partition={offer.name}",
        "#SBATCH --nodes=1",
        "#SBATCH --ntasks=1",
        *([f"#SBATCH --gres=gpu:{gpus}"] if gpus else []),
        f"#SBATCH --cpus-per-task={_cores(offer, gpus)}",
        f"#SBATCH --time={minutes}",
        f"#SBATCH --signal=B:TERM@{SAVE_BEFORE_S}",
        "#SBATCH --requeue",
        command,
    ]
    return "\n".join(lines) + "\n"


def _cores(offer: Offer, gpus: int) -> int:
    """Return the cores to ask for, where a cluster gives a task one by default: a fair share of the node's, not all."""
    share = offer.machine.cpu_cores * gpus // offer.gpus if gpus else offer.machine.cpu_cores
    return max(1, min(share, _MOST_CORES * max(gpus, 1)))


def _write(pipe: IO[bytes], text: str) -> None:
    pipe.write(text.encode())
