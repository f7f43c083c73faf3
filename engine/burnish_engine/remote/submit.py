"""Hands a run folder's recipe over to another machine, follows it, and brings its result back."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from contextlib import suppress

from burnish_engine.contract.errors import BurnishError, SetupError, UsageError
from burnish_engine.contract.facts.facts import DatasetFacts
from burnish_engine.contract.facts.remote_job import RemoteJob
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.plain_text import typed
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.run.commands import Command, CommandName
from burnish_engine.remote.backends.backend import Backend, DroppedError
from burnish_engine.remote.bundle.bundle import make_bundle
from burnish_engine.remote.follow import Follower, RemoteOutcome, ended_status
from burnish_engine.remote.mirror import Listener, Mirror, handing_over, read_job, write_job
from burnish_engine.remote.places import open_backend
from burnish_engine.remote.plan_there import PlanThere, choose, plan_there
from burnish_engine.runs.control import ControlReader
from burnish_engine.runs.jobs import lease
from burnish_engine.runs.store import read_recipe, read_state

_ENDED = ("finished", "stopped", "suspended", "failed")
Note = Callable[[str], object]


def train_elsewhere(
    paths: RunPaths,
    recipe: Recipe,
    *,
    note: Note,
    listener: Listener | None = None,
    dataset: DatasetFacts | None = None,
    gpus: int = 0,
    anyway: bool = False,
    backend: Backend | None = None,
    waits_s: tuple[float, ...] | None = None,
) -> RemoteOutcome:
    """Train a run where its recipe says, or follow the job that does; its result is here when this returns.

    Args:
        paths: paths of the run folder.
        recipe: frozen recipe of the run.
        note: callback given what a person should know meanwhile.
        listener: callback given every new event.
        dataset: facts on the data; None where it was not read, so that time and price are not known.
        gpus: number of GPUs that share the steps; 0: as the recipe says.
        anyway: whether to train although the plan says that it does not fit.
        backend: way to the machine; None: the one that the recipe names.
        waits_s: times to wait before another try, seconds; None: the usual ones.

    Raises:
        BurnishError: The run does not fit there, the place refuses, or the result is damaged.
        KeyboardInterrupt: The person stopped following; the job continues.
    """
    name = job_name(paths.root.name)
    backend = backend or open_backend(recipe.devices.place)
    with lease.owned(paths):
        mirror: Mirror | None = None
        commands = ControlReader(paths.control)  # also those that come while the run is packed and sent
        try:
            job = read_job(paths)
            if job is None or read_state(paths).status in _ENDED:
                with handing_over(paths, recipe.devices.where) as say:
                    speak = _both(note, say)
                    if job is None:
                        job = _hand_over(paths, recipe, backend, speak, name, dataset=dataset, gpus=gpus, anyway=anyway)
                    else:
                        speak(f"Starting the job at {job.where} again.")
                        job = backend.restart(job)
            write_job(paths, job)
            mirror = Mirror(paths, job, listener)
            waits = {"waits_s": waits_s} if waits_s else {}
            outcome = Follower(backend, mirror, paths, note, commands=commands, **waits).follow()
            write_job(paths, mirror.job)
            mirror.end(outcome.status, int(outcome.exit_code), outcome.message)
        except DroppedError as dropped:
            where = recipe.devices.where
            _let_go(mirror, f"{where} cannot be reached: {dropped}")
            raise SetupError(f"{where} cannot be reached: {dropped}.", _again(paths, name)) from None
        except KeyboardInterrupt:
            _let_go(mirror, "Nobody follows the job; it may continue there.")
            raise
        except BurnishError as error:
            if mirror is not None:
                _let_go(mirror, str(error))
            raise
        if outcome.status == "finished":
            with suppress(DroppedError, BurnishError):
                backend.release(mirror.job)
        return outcome


def send_elsewhere(paths: RunPaths, name: CommandName) -> str:
    """Send a command to a run elsewhere that nobody follows just now.

    Returns:
        How the job ended, where the command ended one that had not begun; empty where the run takes the command.

    Raises:
        UsageError: The run has no job elsewhere.
        SetupError: The place cannot be reached.
    """
    job = read_job(paths)
    if job is None:
        raise UsageError(f"The run {paths.root.name} has no job on another machine.", "`burnish runs show` says more.")
    try:
        end = open_backend(read_recipe(paths).devices.place).send(job, Command(name=name, t=time.time()))
    except DroppedError as dropped:
        raise SetupError(f"{job.where} cannot be reached: {dropped}.", "Try again.") from None
    if end is None:
        return ""
    Mirror(paths, job).end(ended_status(end.status), end.exit_code, end.message)
    return end.message


def _hand_over(
    paths: RunPaths,
    recipe: Recipe,
    backend: Backend,
    note: Note,
    name: str,
    *,
    dataset: DatasetFacts | None,
    gpus: int,
    anyway: bool,
) -> RemoteJob:
    """Plan, pack, send and start; return the job."""
    chosen = choose(plan_there(recipe, backend.offers(), gpus=gpus, dataset=dataset), anyway=anyway)
    note(f"Sending the run to {chosen.offer.name}.")
    timeout_s = chosen.timeout_s(recipe.devices.timeout_hours)
    bundle = make_bundle(recipe, paths.root.name, gpus=gpus, timeout_s=timeout_s, anyway=anyway)
    job = backend.submit(bundle, chosen.offer, name)
    return job.model_copy(
        update={
            "started": time.time(),
            "gpu": _gpu_text(chosen),
            "usd_per_hour": chosen.offer.usd_per_hour,
            "timeout_s": timeout_s,
        }
    )


def job_name(run: str) -> str:
    """Return a name that every service takes and that no other job has: letters, digits and hyphens."""
    plain = re.sub(r"[^a-z0-9]+", "-", run.lower()).strip("-")[:40].strip("-")
    return f"burnish-{plain or 'run'}-{secrets.token_hex(3)}"


def _gpu_text(chosen: PlanThere) -> str:
    gpus = chosen.offer.machine.gpus
    return f"{len(gpus)} x {gpus[0].name}" if gpus else ""


def _let_go(mirror: Mirror | None, message: str) -> None:
    if mirror is not None:
        with suppress(BurnishError):
            mirror.let_go(message)


def _both(first: Note, second: Note) -> Note:
    def speak(text: str) -> None:
        first(text)
        second(text)

    return speak


def _again(paths: RunPaths, name: str) -> str:
    if not paths.remote.exists():
        return f"Look there whether a job {name} was started all the same, and end it; then submit again."
    return f"The job may continue there. Follow it again: burnish runs resume {typed(paths.root.name)}"
