"""Trains on a machine that ssh reaches: the job is a process of its own there and outlives the connection."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from typing_extensions import override

from burnish_engine.contract.errors import SetupError
from burnish_engine.contract.facts.remote_job import RemoteJob
from burnish_engine.contract.run.commands import Command
from burnish_engine.remote.backends.backend import Backend, JobStatus, MirrorPosition, Offer
from burnish_engine.remote.backends.bounded_numbers import job_number
from burnish_engine.remote.backends.machines import SURVEY, host_machine
from burnish_engine.remote.backends.on_host import HostFolder, kept_if_taken, send_bundle
from burnish_engine.remote.backends.shell import Shell, run
from burnish_engine.remote.bundle.bundle import Bundle
from burnish_engine.remote.there.job_folder import JobEnd
from burnish_engine.remote.there.relay_line import RelayLine

# One simple command in the background: a list of commands would be a shell of its own that keeps the connection open.
_START = (
    "cd {folder} || exit; set --; command -v setsid > /dev/null && set -- setsid; "
    "nohup \"$@\" {command} >> job.log 2>&1 < /dev/null & printf '%s\\n' $!"
)


class HostBackend(Backend):
    """Common part of the ways to a host with a shell, which differ in how a job is started.

    Args:
        where: place as the recipe names it.
        shell: how the host is reached.
    """

    def __init__(self, where: str, shell: Shell) -> None:
        self._where, self._shell = where, shell

    @override
    def lines(self, job: RemoteJob, position: MirrorPosition) -> Iterator[RelayLine]:
        return self._folder(job).lines(position)

    @override
    def send(self, job: RemoteJob, command: Command) -> JobEnd | None:
        self._folder(job).send(command)
        return None

    @override
    def fetch(self, job: RemoteJob, files: Sequence[str], target: Path) -> None:
        self._folder(job).fetch(files, target)

    @override
    def release(self, job: RemoteJob) -> None:
        self._folder(job).remove()

    def _forget_end(self, job: RemoteJob) -> None:
        """Remove what the job said of its last time, before it begins again: a reader would take it for the new end."""
        folder = shlex.quote(job.folder)
        run(self._folder(job).shell, f"rm -f -- {folder}/job_end.json {folder}/job.json")

    def _folder(self, job: RemoteJob) -> HostFolder:
        return HostFolder(self._shell, job.folder)

    def _number(self, job: RemoteJob) -> str:
        """Return the number of the job or process, from a record that somebody may have changed."""
        return job_number(job.id, f"The record of the job on {self._shell.host}")

    def _last_words(self, job: RemoteJob) -> str:
        return run(self._shell, f"tail -c 800 {shlex.quote(job.folder + '/job.log')} 2> /dev/null || true").strip()


class SshBackend(HostBackend):
    """A machine that ssh reaches."""

    @override
    def offers(self) -> Sequence[Offer]:
        machine = host_machine(run(self._shell, SURVEY))
        if machine.os not in ("Linux", "Darwin"):
            raise SetupError(f"{self._shell.host} is no Linux machine ({machine.os!r}).", "Choose another.")
        return [Offer(self._shell.host, machine, gpus=len(machine.gpus))]

    @override
    def submit(self, bundle: Bundle, offer: Offer, name: str) -> RemoteJob:
        folder = send_bundle(self._shell, bundle, name)
        with kept_if_taken(folder):
            return self._start(folder.job(self._where, ""))

    @override
    def restart(self, job: RemoteJob) -> RemoteJob:
        self._forget_end(job)
        return self._start(job)

    @override
    def status(self, job: RemoteJob) -> JobStatus:
        alive = run(self._shell, f"kill -0 {self._number(job)} 2> /dev/null && echo yes || true").strip() == "yes"
        return JobStatus(alive, "" if alive else self._last_words(job))

    def _start(self, job: RemoteJob) -> RemoteJob:
        command = self._folder(job).job_command()
        answer = run(self._shell, _START.format(folder=shlex.quote(job.folder), command=command)).strip()
        return job.model_copy(update={"id": job_number(answer, self._shell.host)})
