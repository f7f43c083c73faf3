"""Trains as a job of Hugging Face Jobs. A private bucket holds what is sent and what the run saves.

The job's machine may be taken back at any time; the next attempt continues from the bucket. Progress comes as the job's
log, commands go through the bucket.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import override

from burnish_engine.advise.facts.catalog import find_model
from burnish_engine.contract.errors import ExitCode, SetupError, UsageError
from burnish_engine.contract.facts.remote_job import RemoteJob
from burnish_engine.contract.paths import is_model_name
from burnish_engine.contract.recipe.recipe_file import parse_recipe
from burnish_engine.contract.run.commands import Command
from burnish_engine.hub.failures import read_failure
from burnish_engine.remote.backends.backend import ENDINGS, Backend, DroppedError, JobStatus, MirrorPosition, Offer
from burnish_engine.remote.backends.bounded_numbers import core_count, gpu_count, price
from burnish_engine.remote.backends.hf_client import JobsClient, read_token
from burnish_engine.remote.backends.machines import service_machine
from burnish_engine.remote.bundle.bundle import Bundle
from burnish_engine.remote.there.job_folder import JobEnd
from burnish_engine.remote.there.relay_line import LAST_ATTEMPT, RelayLine, read_line

IMAGE = "python:3.12-bookworm"
"""Image of the job: Python's own, with the C compiler and the headers that Triton needs at run time."""
ATTEMPTS = 3
BUCKET = "burnish-jobs"
_OVER = {"COMPLETED", "CANCELED", "ERROR", "DELETED"}
_HOURS = {"minute": 60.0, "hour": 1.0}
_LAST_LINES = 6
_NOT_BEGUN = "It was canceled while it waited for a machine of Hugging Face Jobs."
_CANCELED = "The job was canceled at once. Resume the run to continue from what it had saved."
_SCRIPT = """set -e
mkdir -p {scratch}
for one in {mount}/*; do
  case "$one" in {mount}/run|{mount}/attempt|{mount}/*.jsonl|{mount}/job_end.json) ;; *) cp -r "$one" {scratch}/ ;; esac
done
python3 -m venv {scratch}/env
{scratch}/env/bin/python -m pip install --quiet --disable-pip-version-check -c {scratch}/constraints.txt \\
  "{scratch}/{wheel}{extra}"
exec {scratch}/env/bin/python -P -m burnish_engine.remote.there.job {scratch} --relay --keep {mount}
"""
Uploader = Callable[[str, Sequence[tuple[Path, str]], str], None]


class HfBackend(Backend):
    """Hugging Face Jobs.

    Args:
        where: place as the recipe names it.
        flavor: kind of machine, such as "a10g-small"; empty: the cheapest that the run fits on.
        upload: function that writes files into a bucket, given the bucket, (path here, path there) and the token.
        mount: path of the bucket's folder in the job.
        scratch: folder of the job's own disk.
    """

    def __init__(
        self,
        where: str,
        flavor: str,
        *,
        upload: Uploader | None = None,
        mount: str = "/job",
        scratch: str = "/tmp/burnish",  # noqa: S108  a job's machine has no other users
    ) -> None:
        self._where, self._flavor = where, flavor
        self._upload = upload or upload_files
        self._mount, self._scratch = mount, scratch
        self._known: JobsClient | None = None
        self._token = ""

    @property
    def _client(self) -> JobsClient:
        if self._known is None:
            self._token = read_token()
            self._known = JobsClient(self._token)
        return self._known

    @override
    def offers(self) -> Sequence[Offer]:
        listed = self._client.ask("GET", "/api/jobs/hardware")
        try:
            offers = [offer for entry in listed if (offer := _offer(entry))]
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            what = f"The list of machines of Hugging Face Jobs cannot be read: {error!r}."
            raise SetupError(what, "Is Burnish up to date?") from None
        if self._flavor:
            named = [offer for offer in offers if offer.name == self._flavor]
            if not named:
                names = ", ".join(offer.name for offer in offers)
                raise UsageError(f"Hugging Face Jobs has no flavor {self._flavor!r}.", f"There are: {names}.")
            return named
        with_gpu = [offer for offer in offers if offer.gpus]
        return sorted(with_gpu, key=lambda offer: offer.usd_per_hour or 0.0)

    @override
    def submit(self, bundle: Bundle, offer: Offer, name: str) -> RemoteJob:
        bucket = self._bucket
        with tempfile.TemporaryDirectory() as folder:
            files = []
            for number, (there, source) in enumerate(bundle.files()):
                path = source if isinstance(source, Path) else Path(folder, str(number))
                if isinstance(source, bytes):
                    path.write_bytes(source)
                files.append((path, f"{name}/{there}"))
            self._upload(bucket, files, self._token)
        job = RemoteJob(where=self._where, id="", folder=name, machine=offer.name, timeout_s=bundle.manifest.timeout_s)
        return self._start(job, self._script(bundle.wheel.name, needs_demo=bundle.needs_demo), _secrets(bundle))

    @override
    def restart(self, job: RemoteJob) -> RemoteJob:
        former = self._job(job)
        command = former.get("command")
        if not isinstance(command, list) or len(command) != 3:
            raise SetupError("The former job cannot be read any more.", "Submit the recipe as a new run.")
        again = self._start(job, str(command[2]), {"HF_TOKEN"} if former.get("secrets") else set())
        return again.model_copy(update={"attempt": job.attempt})

    @override
    def lines(self, job: RemoteJob, position: MirrorPosition) -> Iterator[RelayLine]:
        if self._stage(job)[0] == "SCHEDULING":
            return  # its log may be empty and open for hours, in which nobody would hear what the job waits for
        for text in self._client.log(job.id):
            if (line := read_line(text)) is not None:
                yield line
                if line.kind == "end":
                    return
        stage = self._stage(job)[0]
        if stage in _OVER and (end := self._kept_end(job)) is not None:
            yield end
        elif stage == "CANCELED":  # so somebody wanted it to end
            yield _end_line(JobEnd(exit_code=ExitCode.STOPPED, status="stopped", message=_CANCELED))

    @override
    def status(self, job: RemoteJob) -> JobStatus:
        stage, message = self._stage(job)
        if stage in _OVER:
            return JobStatus(False, message or self._last_words(job) or f"The job is {stage}.")
        return JobStatus(True, "Waits for a machine of Hugging Face Jobs." if stage == "SCHEDULING" else "")

    @override
    def send(self, job: RemoteJob, command: Command) -> JobEnd | None:
        """Hand a command to the run; one that ends it cancels a job that still waits for a machine."""
        status = ENDINGS.get(command.name)
        if status is not None and self._stage(job)[0] == "SCHEDULING":
            end = JobEnd(exit_code=ExitCode.STOPPED, status=status, message=_NOT_BEGUN)
            self._write(f"{job.folder}/job_end.json", end.model_dump_json().encode())  # a job that begins deletes it
            self._cancel(job)
            return end
        if command.name == "stop_now":
            self._cancel(job)
            return None
        path = f"{job.folder}/control.jsonl"
        former = self._client.read_bucket_file(self._bucket, path) or b""
        self._write(path, former + command.model_dump_json().encode() + b"\n")
        return None

    def _cancel(self, job: RemoteJob) -> None:
        self._client.ask("POST", f"/api/jobs/{self._client.namespace}/{job.id}/cancel")

    def _write(self, path: str, content: bytes) -> None:
        """Replace a small file of the bucket."""
        with tempfile.TemporaryDirectory() as folder:
            whole = Path(folder, "file")
            whole.write_bytes(content)
            self._upload(self._bucket, [(whole, path)], self._token)

    @override
    def fetch(self, job: RemoteJob, files: Sequence[str], target: Path) -> None:
        for name in files:
            self._client.copy_bucket_file(self._bucket, f"{job.folder}/run/{name}", target / name)

    @override
    def release(self, job: RemoteJob) -> None:
        """Nothing to give back: a job that ended costs nothing, and the bucket is the person's."""

    @property
    def _bucket(self) -> str:
        return f"{self._client.namespace}/{BUCKET}"

    def _script(self, wheel: str, *, needs_demo: bool) -> str:
        return _SCRIPT.format(
            mount=shlex.quote(self._mount),
            scratch=shlex.quote(self._scratch),
            wheel=wheel,
            extra="[demo]" if needs_demo else "",
        )

    def _start(self, job: RemoteJob, script: str, secrets: set[str]) -> RemoteJob:
        spec: dict[str, Any] = {
            "dockerImage": IMAGE,
            "command": ["sh", "-c", script],
            "arguments": [],
            "environment": {"PYTHONUNBUFFERED": "1"},
            "flavor": job.machine,
            "timeoutSeconds": job.timeout_s,
            "attempts": ATTEMPTS,
            "labels": {"name": job.folder, "burnish-run": job.folder},
            "volumes": [
                {
                    "type": "bucket", "source": self._bucket, "mountPath": self._mount, "path": job.folder,
                    "readOnly": False,
                }
            ],
        }  # fmt: skip
        if secrets:
            spec["secrets"] = {"HF_TOKEN": self._token}
        made = self._client.ask("POST", f"/api/jobs/{self._client.namespace}", spec)
        number = str(made.get("id", ""))
        if not re.fullmatch(r"[A-Za-z0-9-]{1,100}", number):
            raise SetupError("Hugging Face Jobs gave no number of a job.", "Look at your page of jobs.")
        url = f"{self._client.endpoint}/jobs/{self._client.namespace}/{number}"
        return job.model_copy(update={"id": number, "url": url})

    def _job(self, job: RemoteJob) -> dict[str, Any]:
        answer: dict[str, Any] = self._client.ask("GET", f"/api/jobs/{self._client.namespace}/{job.id}")
        return answer

    def _stage(self, job: RemoteJob) -> tuple[str, str]:
        """Ask for the stage of the job, and what the service says of it."""
        told = self._job(job).get("status")
        if not isinstance(told, dict) or "stage" not in told:
            raise SetupError("Hugging Face Jobs does not say what became of the job.", "Look at your page of jobs.")
        return str(told["stage"]), str(told.get("message") or "")

    def _kept_end(self, job: RemoteJob) -> RelayLine | None:
        """Read the end from the bucket, where the log lost it."""
        text = self._client.read_bucket_file(self._bucket, f"{job.folder}/job_end.json")
        if text is None:
            return None
        try:
            end = JobEnd.model_validate_json(text)
        except ValueError:
            return None
        return _end_line(end)

    def _last_words(self, job: RemoteJob) -> str:
        lines: list[str] = []
        try:
            for text in self._client.log(job.id):
                if read_line(text) is None and text.strip():
                    lines = [*lines, text.strip()][-_LAST_LINES:]
        except DroppedError:
            pass
        return " ".join(lines)


def _end_line(end: JobEnd) -> RelayLine:
    """Return the line of an end that no log has, whatever the attempt."""
    return RelayLine(
        kind="end",
        text=end.message,
        status=end.status,
        exit_code=end.exit_code,
        files=end.files,
        attempt=LAST_ATTEMPT,
    )


def upload_files(bucket: str, files: Sequence[tuple[Path, str]], token: str) -> None:
    """Write files into a bucket, which is made where it is missing, by a process that may use the network.

    Raises:
        SetupError: The hub refuses, or cannot be reached.
    """
    environment = {name: value for name, value in os.environ.items() if name != "TRANSFORMERS_OFFLINE"}
    environment |= {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    environment["HF_TOKEN"] = token
    done = subprocess.run(
        [sys.executable, "-P", "-m", "burnish_engine.remote.backends.hf_upload"],
        input=json.dumps({"bucket": bucket, "files": [[str(here), there] for here, there in files]}),
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment,
        check=False,
    )
    if done.returncode:
        raise SetupError(
            f"The run could not be sent to the bucket {bucket}: {read_failure(done.stdout).text}.",
            "Check the connection and the access token, which has to be allowed to write buckets.",
        )


def _secrets(bundle: Bundle) -> set[str]:
    """Name the secrets that the job needs: the token only for a model that is, or may be, gated."""
    name = parse_recipe(bundle.text("recipe.toml")).model.path
    if not is_model_name(name):
        return set()
    entry = find_model(name)
    return set() if entry is not None and not entry.gated else {"HF_TOKEN"}


def _offer(entry: Mapping[str, Any]) -> Offer | None:
    """Read one kind of machine; None for accelerators that are no GPUs."""
    accelerator = entry.get("accelerator") or {}
    if accelerator and accelerator.get("type", "gpu") != "gpu":
        return None
    per_hour = _HOURS.get(str(entry.get("unitLabel", "")))
    told = entry.get("unitCostUSD")
    count = _number(accelerator.get("quantity", 0)) if accelerator else 0
    memory = _number(accelerator.get("vram", 0)) if accelerator else 0
    machine = service_machine(
        str(accelerator.get("model", "")),
        gpu_count(count),
        memory_gib=memory / count if count and memory else 0.0,
        ram_gib=_number(entry.get("ram", 0)),
        disk_gb=_number(entry.get("ephemeralStorage", 0)),
        cores=core_count(_number(entry.get("cpu", 0)) or 8),
    )
    hourly = price(float(told) * per_hour) if isinstance(told, int | float) and per_hour else None
    return Offer(str(entry["name"]), machine, usd_per_hour=hourly, gpus=len(machine.gpus))


def _number(value: object) -> float:
    """Read a number such as 4, "4", "16 GB" or "1.5 TB"."""
    found = re.match(r"\s*(\d{1,12}(?:\.\d{1,12})?)\s*(TB)?", str(value), flags=re.ASCII)
    return float(found[1]) * (1000.0 if found[2] else 1.0) if found else 0.0
