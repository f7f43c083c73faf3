"""The folder of a job on the other machine: the files that were sent, the run, and the job's own records."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, Field, ValidationError

from burnish_engine.contract.errors import DataError, SetupError
from burnish_engine.contract.files import read_with_retry, write_atomic
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.record import Record
from burnish_engine.runs.file_hashes import sha256_file
from burnish_engine.runs.process import is_alive

RESULT_FOLDERS = ("adapter", "model", "checkpoints", "start")
RESULT_FILES = ("card.json", "task_rows.json", "held_out.json", "chat_template.jinja")
"""Files and folders of a run that are brought back; the follower writes the others itself."""

MANIFEST = "manifest.json"
_Form = TypeVar("_Form", bound=BaseModel)


class BundleManifest(Record):
    """List of what was sent: the request, and each file with its hash."""

    v: int = 1
    run: str = Field(description="Name of the run.")
    files: dict[str, str] = Field(description="SHA-256 of each file, by its path in the folder.")
    gpus: int = Field(default=0, description="GPUs that share the steps; 0: as the recipe says.")
    timeout_s: int = Field(default=0, description="Time after which the job saves and ends, seconds; 0: none.")
    anyway: bool = Field(default=False, description="Whether to train although the plan says that it does not fit.")


class JobRecord(Record):
    """Record that a job keeps while it lives."""

    host: str
    pid: int
    process_created: float
    attempt: int = 0
    beat: int = Field(default=0, description="Counts up while the job lives.")

    @property
    def is_here(self) -> bool:
        """Whether the job runs on this host, where its process can be looked up."""
        return self.host == socket.gethostname()

    @property
    def is_alive(self) -> bool:
        """Whether the job's process exists; only meaningful on its host."""
        return is_alive(self.pid, self.process_created)


class JobEnd(Record):
    """Record of how a job ended, with the hashes of its result."""

    exit_code: int
    status: str = ""
    message: str = ""
    files: dict[str, str] = Field(default={})


@dataclass(frozen=True)
class JobFolder:
    """The files of a job."""

    root: Path

    @property
    def run(self) -> RunPaths:
        """The run that the job trains."""
        return RunPaths(self.root / "run")

    @property
    def recipe(self) -> Path:
        """The recipe that was sent; its paths begin at the folder."""
        return self.root / "recipe.toml"

    @property
    def log(self) -> Path:
        """Output of the job."""
        return self.root / "job.log"

    def manifest(self) -> BundleManifest:
        """Read what was sent.

        Raises:
            SetupError: The manifest is missing or damaged.
        """
        try:
            return BundleManifest.model_validate_json(read_with_retry(self.root / MANIFEST))
        except (OSError, ValueError) as error:
            raise SetupError(f"The job's {MANIFEST} cannot be read: {error}.", "Submit the run again.") from None

    def verify(self, manifest: BundleManifest) -> None:
        """Check that every file arrived as it was sent.

        Raises:
            DataError: A file is missing or has other bytes.
        """
        for name, sha256 in manifest.files.items():
            path = self.root / name
            if not path.is_file() or sha256_file(path) != sha256:
                raise DataError(f"{name} did not arrive as it was sent.", "Submit the run again.")

    def record(self) -> JobRecord | None:
        """Read what the job says while it lives; None where it has not begun."""
        return _read(self.root / "job.json", JobRecord)

    def write_record(self, record: JobRecord) -> None:
        """Replace what the job says."""
        write_atomic(self.root / "job.json", record.model_dump_json() + "\n", durable=False)

    def end(self) -> JobEnd | None:
        """Read how the job ended; None where it has not, or could not say so."""
        return _read(self.root / "job_end.json", JobEnd)

    def write_end(self, end: JobEnd | None) -> None:
        """Write how the job ended; None: it begins, and an earlier end no longer counts."""
        path = self.root / "job_end.json"
        if end is None:
            path.unlink(missing_ok=True)
        else:
            write_atomic(path, end.model_dump_json() + "\n")


def _read(path: Path, form: type[_Form]) -> _Form | None:
    try:
        return form.model_validate_json(read_with_retry(path))
    except (OSError, ValidationError, UnicodeDecodeError):
        return None


def result_files(run: RunPaths) -> list[Path]:
    """List the files of a run that are brought back."""
    found = [run.root / name for name in RESULT_FILES]
    for name in RESULT_FOLDERS:
        found += sorted((run.root / name).rglob("*"))
    return [path for path in found if path.is_file()]
