"""Answer requests about machine, models, data and chat, in this process where that is light, else in a worker."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from burnish_engine.channel.child import Child
from burnish_engine.channel.job import Job
from burnish_engine.chat.chat_pool import ChatPool
from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.facts.advice import AdapterFacts
from burnish_engine.contract.facts.machine import Checkup
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe_file import load_recipe
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.contract.serve.data_requests import InspectRequest, TryRewardsRequest
from burnish_engine.contract.serve.messages import Result
from burnish_engine.contract.serve.model_requests import (
    AdapterRequest,
    ChatRequest,
    CheckFilesRequest,
    DoctorRequest,
    DownloadRequest,
    DownloadsRequest,
    FetchRequest,
    FreeRequest,
    MachineRequest,
    ModelRequest,
)
from burnish_engine.hub import download_queue as queue
from burnish_engine.hub.integrity import check_files
from burnish_engine.hub.local_models import find_local_models
from burnish_engine.models.checkpoint.source import model_folder
from burnish_engine.models.saved_adapters.saved_adapter import WEIGHTS_FILE
from burnish_engine.models.saved_adapters.start_adapter import StartAdapter, open_start
from burnish_engine.runs.file_hashes import known_sha256
from burnish_engine.runs.process import end_tree
from burnish_engine.service.machine import MachineCache
from burnish_engine.service.plans import PlanService
from burnish_engine.service.recipes import read_recipe_text

_POLL_S = 0.1


class LiveRequests:
    """Answer the requests that a window sends while a person works.

    Args:
        machine: source of the machine's facts.
        plans: store of facts on inspected datasets.
        data: process that reads datasets and model folders.
        chat: processes that hold the chat models.
    """

    def __init__(self, machine: MachineCache, plans: PlanService, data: Child, chat: ChatPool) -> None:
        self._machine = machine
        self._plans = plans
        self._data = data
        self._chat = chat

    def doctor(self, request: DoctorRequest, job: Job) -> Result:
        """Run the whole check-up."""
        return Result(id=request.id, checkup=_check_up_in_child(job, bandwidth=request.bandwidth))

    def machine(self, request: MachineRequest, _job: Job) -> Result:
        """Return the machine's facts as they are now."""
        return Result(id=request.id, machine=self._machine.facts())

    def model(self, request: ModelRequest, job: Job) -> Result:
        """Describe a model."""
        return self._data.ask(request, job, about=f"the model {request.path}")

    def fetch(self, request: FetchRequest, job: Job) -> Result:
        """Download a model and describe it."""
        from burnish_engine.advise.facts.catalog import catalog, find_model
        from burnish_engine.hub.fetch import fetch

        fetch(
            request.name,
            token=request.token,
            progress=job.progress,
            canceled=lambda: job.canceled,
            catalog_entry=find_model(request.name, catalog()),
        )
        return self.model(ModelRequest(id=request.id, path=request.name), job)

    def downloads(self, request: DownloadsRequest, _job: Job) -> Result:
        """Start the waiting downloads that can start, then list all."""
        if queue.list_downloads():
            queue.start_waiting()
        return Result(id=request.id, downloads=queue.list_downloads())

    def download(self, request: DownloadRequest, _job: Job) -> Result:
        """Queue, pause or cancel a download, then list all."""
        if request.do == "start":
            queue.add_download(request.name, request.token.strip())
        elif request.do == "pause":
            queue.pause_download(request.name)
        else:
            queue.cancel_download(request.name)
        return Result(id=request.id, downloads=queue.list_downloads())

    def check_files(self, request: CheckFilesRequest, job: Job) -> Result:
        """Compare a model's files with their published checksums."""
        return Result(id=request.id, integrity=check_files(model_folder(request.path), job.progress))

    def adapter(self, request: AdapterRequest, job: Job) -> Result:
        """Describe an adapter to continue from."""
        return Result(id=request.id, adapter=_adapter_facts(request.path, lambda: job.canceled))

    def inspect(self, request: InspectRequest, job: Job) -> Result:
        """Inspect a dataset."""
        recipe = read_recipe_text(request.recipe)
        result = self._data.ask(request, job, about=", ".join(recipe.data.files) or "the dataset")
        if result.dataset is not None:
            self._plans.remember(recipe, result.dataset)
        return result

    def try_rewards(self, request: TryRewardsRequest, job: Job) -> Result:
        """Try a recipe's rewards, in a process that ends with the trial: its memory is wanted for training."""
        self._chat.end_if_idle()
        trials = Child("burnish_engine.service.trial_worker", "trial process")
        try:
            return trials.ask(request, job, about="the rewards of the recipe")
        finally:
            trials.close()

    def chat(self, request: ChatRequest, job: Job) -> Result:
        """Stream a reply."""
        return self._chat.ask(request, job)

    def free(self, request: FreeRequest, _job: Job) -> Result:
        """End the chat processes."""
        self._chat.close()
        return Result(id=request.id)


def _adapter_facts(path: str, canceled: Callable[[], bool]) -> AdapterFacts:
    start = open_start(AdapterSection().model_copy(update={"start": path}))  # a path that is none is refused below
    if start is None:
        raise UsageError("No adapter was named.", "Give the folder of a run or of an adapter.")
    weights = start.folder / WEIGHTS_FILE
    return AdapterFacts(
        path=path,
        folder=str(start.folder),
        base=start.base,
        base_path=_base_path(start),
        method=start.section.method,
        rank=start.section.rank,
        alpha=start.section.alpha,
        targets=start.section.targets,
        bytes=weights.stat().st_size,
        sha256=known_sha256(weights, canceled),
    )


def _base_path(start: StartAdapter) -> str:
    """Return what names the adapter's base in a recipe; empty where it is not on this machine."""
    run = RunPaths(start.folder.parent)
    if start.folder == run.adapter and run.recipe.is_file():
        return load_recipe(run.recipe).model.path
    if Path(start.base).is_dir():
        return start.base
    named = [model for model in find_local_models() if model.name == start.base and not model.gguf_only]
    return named[0].path if named else ""


def _check_up_in_child(job: Job, *, bandwidth: bool) -> Checkup:
    """Run `burnish doctor`."""
    command = [sys.executable, "-P", "-m", "burnish_engine.cli.main", "doctor", "--json"]
    # Files, not pipes: nobody must drain them, and handles that the child's own children keep open do not matter.
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [*command, *(["--bandwidth"] if bandwidth else [])], stdin=subprocess.DEVNULL, stdout=said, stderr=errors
        )
        try:
            _wait(child, job)
        finally:
            _end(child)
        try:
            return Checkup.model_validate_json(_content(said))
        except ValidationError:
            last = (_content(errors).decode("utf-8", "replace").strip().splitlines() or ["it said nothing"])[-1]
            raise SetupError(
                f"The check-up ended without an answer (exit status {child.returncode}): {last}",
                "Run `burnish doctor` in a terminal.",
            ) from None


def _wait(child: subprocess.Popen[bytes], job: Job) -> None:
    while True:
        with suppress(subprocess.TimeoutExpired):
            child.wait(timeout=_POLL_S)
            return
        job.check()


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child and the processes that it started."""
    if child.poll() is not None:
        return
    end_tree(child.pid)
    child.kill()
    child.wait()


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
