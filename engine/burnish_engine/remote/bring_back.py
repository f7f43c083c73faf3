"""Brings a job's result into the run folder here and proves that it is what the job wrote."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path, PurePosixPath

from burnish_engine.contract.errors import BurnishError, SetupError
from burnish_engine.contract.facts.remote_job import RemoteJob
from burnish_engine.contract.files import cannot_write, replace_with_retry
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.plain_text import typed
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.checkpoint.safetensors_header import stored_tensors
from burnish_engine.models.saved_adapters.start_adapter import open_start
from burnish_engine.remote.backends.backend import Backend
from burnish_engine.remote.there.job_folder import RESULT_FILES, RESULT_FOLDERS
from burnish_engine.runs.file_hashes import sha256_file

_ROOMS = (*RESULT_FOLDERS, *RESULT_FILES)
_DEEPEST, _LONGEST = 8, 400  # folders, and characters, of a path in a run


def bring_back(backend: Backend, job: RemoteJob, paths: RunPaths, hashes: dict[str, str]) -> None:
    """Fetch the result, check it, and put it into the run folder.

    Args:
        backend: way to the machine.
        job: job that has ended.
        paths: paths of the run folder here.
        hashes: SHA-256 of each file of the result, by its path in the run's folder.

    Raises:
        DroppedError: The connection broke; nothing was put in place.
        SetupError: A file is not the one that the job wrote, or the adapter is damaged.
        NoSpaceError: The disk is full.
    """
    names = [_checked(name) for name in hashes]
    missing = _with_neighbors(names, {name for name in names if not _is(paths.root / name, hashes[name])})
    if not missing:
        return
    try:
        staging = Path(tempfile.mkdtemp(prefix=".brought-back-", dir=paths.root))
    except OSError as error:
        raise cannot_write(paths.root, error) from error
    try:
        backend.fetch(job, missing, staging)
        for name in missing:
            if not _is(staging / name, hashes[name]):
                raise SetupError(
                    f"{name} is not the file that the job wrote.",
                    f"Its result is still there; fetch it again: burnish runs resume {typed(paths.root.name)}",
                )
        _check_weights(staging)
        for name in missing:
            target = paths.root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            replace_with_retry(staging / name, target)
    except OSError as error:
        raise cannot_write(paths.root, error) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _with_neighbors(names: list[str], missing: set[str]) -> list[str]:
    """List the missing files, and of trained weights all where one is missing: they are checked as a whole."""
    weights = {folder for folder in ("adapter", "model") if any(name.startswith(f"{folder}/") for name in missing)}
    return [name for name in names if name in missing or PurePosixPath(name).parts[0] in weights]


def _checked(name: str) -> str:
    """Refuse a path that leads elsewhere: the list of files comes from another machine."""
    path = PurePosixPath(name)
    leaves = path.is_absolute() or ".." in path.parts or not path.parts or path.parts[0] not in _ROOMS
    if leaves or len(path.parts) > _DEEPEST or len(name) > _LONGEST or "\\" in name or not name.isprintable():
        raise SetupError(f"The job's result names a file {name!r:.80}, which no run has.", "Look at the run there.")
    return name


def _is(path: Path, sha256: str) -> bool:
    with suppress(OSError):
        return path.is_file() and not path.is_symlink() and sha256_file(path) == sha256
    return False


def _check_weights(folder: Path) -> None:
    """Check the trained weights as an adapter to continue from is checked, or the headers of a whole model's files."""
    try:
        if (folder / "adapter").is_dir():
            open_start(AdapterSection(start=str(folder / "adapter")))
        for file in sorted((folder / "model").glob("*.safetensors")):
            stored_tensors(file)
    except BurnishError as error:
        raise SetupError(f"What the job trained cannot be used: {error.what}", error.remedy) from None
