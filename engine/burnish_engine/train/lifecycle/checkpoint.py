"""Checkpoints: everything that a run needs to resume exactly, in safetensors and JSON.

A checkpoint is written into a staging folder, renamed, and only then marked COMPLETE with the SHA-256 of each file. A
folder without that marker, or with a file that does not match it, is not trusted.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.files import cannot_write, read_plain, replace_with_retry, sync_folder, write_atomic
from burnish_engine.train.base.engine import Engine

CHECKPOINT_VERSION = 1
_MARKER = "COMPLETE"
_PARTIAL = ".partial"


@dataclass(frozen=True)
class Position:
    """Position of a run at a checkpoint. Everything else about the data order follows from the recipe.

    Attributes:
        step: optimizer steps done.
        micro_batches: micro-batches consumed, over all epochs.
        tokens: real tokens trained on.
        dataset_hash: fingerprint of the tokenized data; a resumed run must see the same.
        recipe_hash: fingerprint of the recipe.
        threads: number of CPU threads; sums depend on it.
        precision: precision of the base weights.
        layout: arrangement of rows in a pass, see `EngineFacts.layout`.
        device: type of the device, cpu or cuda.
        engine: name of the engine, fast or plain; a run resumes with the same.
        plan: `EngineFacts.memory_plan` at the time of saving; a run resumes with it.
        guard: state of guard, early stopping and rollback after the steps so far, as JSON (`GuardRecord`).
        products: number format of products with the frozen weights, "16" or one of `EIGHT_BITS`; kept by a resumed run.
    """

    step: int
    micro_batches: int
    tokens: int
    dataset_hash: str
    recipe_hash: str
    threads: int
    precision: str
    layout: str
    device: str
    engine: str = "plain"
    plan: str = ""
    guard: str = ""
    products: str = "16"


def save_adapter(engine: Engine, folder: Path) -> None:
    """Write the trained weights, replacing older ones file by file so that the folder is always loadable."""
    with replaced_files(folder) as aside:
        engine.save_adapter(aside)


@contextmanager
def replaced_files(folder: Path) -> Iterator[Path]:
    """Replace the files of a folder one by one by those that are written inside, so that it is always loadable.

    Yields:
        Path of a folder to make and fill.

    Raises:
        NoSpaceError: The files could not be written.
    """
    aside = folder.with_name(folder.name + _PARTIAL)
    with _writing(folder):
        shutil.rmtree(aside, ignore_errors=True)
        yield aside
        folder.mkdir(parents=True, exist_ok=True)
        for file in sorted(aside.iterdir()):
            file.chmod(0o644)  # safetensors writes for the owner only; an adapter is made to be handed on
            _sync(file)
            replace_with_retry(file, folder / file.name)
        sync_folder(folder)
        aside.rmdir()


def save_checkpoint(folder: Path, engine: Engine, position: Position, device: torch.device) -> Path:
    """Write `folder/step-NNNNNN` and return it.

    Raises:
        NoSpaceError: The checkpoint could not be written; no incomplete one stays under the final name.
    """
    target = folder / f"step-{position.step:06d}"
    aside = folder / f".{target.name}{_PARTIAL}"
    with _writing(target):
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        engine.save_adapter(aside / engine.facts.trains)
        save_file(engine.optimizer_tensors(), aside / "optimizer.safetensors")
        save_file(_torch_rng(device), aside / "rng.safetensors")
        there = replace(position, plan=engine.facts.memory_plan)  # it may have become smaller while this was written
        state = {"v": CHECKPOINT_VERSION, **asdict(there), "python_rng": _python_rng(), "numpy_rng": _numpy_rng()}
        write_atomic(aside / "state.json", json.dumps(state) + "\n")
        hashes = {path.relative_to(aside).as_posix(): _sync_and_hash(path) for path in _files(aside)}
        if target.exists():
            shutil.rmtree(target)
        replace_with_retry(aside, target)
        sync_folder(folder)
        write_atomic(target / _MARKER, json.dumps(hashes, indent=1) + "\n")
    return target


def try_saving(folder: Path, engine: Engine) -> None:
    """Write the trained weights into the folder of checkpoints, and delete them again.

    Raises:
        NoSpaceError: They could not be written.
    """
    aside = folder / f".dry-run{_PARTIAL}"
    try:
        with _writing(folder):
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir(parents=True)
            engine.save_adapter(aside / engine.facts.trains)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def trained_folder(checkpoint: Path) -> Path:
    """Return the folder of a checkpoint that holds the trained weights: the adapter, or the whole model."""
    model = checkpoint / "model"
    return model if model.is_dir() else checkpoint / "adapter"


def find_checkpoint(folder: Path, before: int | None = None) -> tuple[Path | None, list[str]]:
    """Find the newest intact checkpoint, and the names of newer ones that are damaged.

    Args:
        folder: folder of the checkpoints.
        before: number of steps that a checkpoint must be below to count; None: all count.
    """
    broken: list[str] = []
    for candidate in reversed(_by_step(folder)):
        if before is not None and _step_of(candidate) >= before:
            continue
        if _is_whole(candidate):
            return candidate, broken
        broken.append(candidate.name)
    return None, broken


def discard_from(folder: Path, step: int) -> None:
    """Delete the checkpoints of `step` steps or more."""
    for late in _by_step(folder):
        if _step_of(late) >= step:
            (late / _MARKER).unlink(missing_ok=True)
            shutil.rmtree(late, ignore_errors=True)


def positions(folder: Path) -> list[Position]:
    """Read the position of each finished checkpoint, oldest first; damaged ones are left out."""
    found = []
    for checkpoint in _by_step(folder):
        if (checkpoint / _MARKER).is_file():
            with suppress(OSError, ValueError, TypeError, AttributeError, RecursionError, UsageError):
                found.append(read_position(checkpoint))
    return found


def prune_checkpoints(folder: Path, keep: int) -> None:
    """Delete all but the newest `keep` finished checkpoints, and the leftovers of interrupted saves.

    A folder without its marker is such a leftover, whatever its step: it must not push out a usable checkpoint.
    """
    finished = [checkpoint for checkpoint in _by_step(folder) if (checkpoint / _MARKER).is_file()]
    unfinished = [checkpoint for checkpoint in _by_step(folder) if checkpoint not in finished]
    for leftover in (*folder.glob(f".*{_PARTIAL}"), *unfinished):
        shutil.rmtree(leftover, ignore_errors=True)
    for old in finished[:-keep]:
        (old / _MARKER).unlink(missing_ok=True)
        shutil.rmtree(old, ignore_errors=True)


def read_position(checkpoint: Path) -> Position:
    """Read a checkpoint's position.

    Raises:
        UsageError: The checkpoint has another version.
    """
    state = json.loads(read_plain(checkpoint / "state.json"))
    if state.get("v") != CHECKPOINT_VERSION:
        raise UsageError(
            f"The checkpoint {checkpoint} has version {state.get('v')!r}; this Burnish reads {CHECKPOINT_VERSION}.",
            "Resume it with the Burnish that made it.",
        )
    return Position(**{name: state[name] for name in Position.__dataclass_fields__ if name in state})


def refuse_changes(position: Position, dataset_hash: str, recipe_hash: str, recipe: Path) -> None:
    """Refuse to resume a run whose data or recipe changed.

    Args:
        position: position of the checkpoint.
        dataset_hash: fingerprint of the data now.
        recipe_hash: fingerprint of the recipe now.
        recipe: path of the recipe, for the message.

    Raises:
        UsageError: Data or recipe differ from the checkpoint's.
    """
    if position.dataset_hash != dataset_hash:
        raise UsageError(
            "The training data is not what this run was started with (its files changed since).",
            "Put the files back as they were, or start a new run.",
        )
    if position.recipe_hash != recipe_hash:
        raise UsageError(
            f"The recipe in {recipe} was changed after the run started.",
            "Put it back as it was, or start a new run with the changed recipe.",
        )


def restore_training(checkpoint: Path, engine: Engine, device: torch.device) -> None:
    """Restore optimizer state and all random generators. The engine must already hold the checkpoint's weights."""
    engine.restore_optimizer(load_file(checkpoint / "optimizer.safetensors"))
    state = json.loads(read_plain(checkpoint / "state.json"))
    rng = load_file(checkpoint / "rng.safetensors")
    torch.set_rng_state(rng["cpu"])
    if device.type == "cuda" and "cuda" in rng:
        torch.cuda.set_rng_state(rng["cuda"], device)
    version, numbers, gauss = state["python_rng"]
    random.setstate((version, tuple(numbers), gauss))
    kind, keys, *rest = state["numpy_rng"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn a failed write into a NoSpaceError; safetensors raises its own error, which has the cause only as text."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from error
    except SafetensorError as error:
        full = "No space left" in str(error) or "os error 28" in str(error) or "os error 112" in str(error)
        raise cannot_write(path, OSError(errno.ENOSPC if full else errno.EIO, str(error))) from error


def _by_step(folder: Path) -> list[Path]:
    numbered = [path for path in folder.glob("step-*") if path.name.removeprefix("step-").isdecimal()]
    return sorted(numbered, key=_step_of)


def _step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("step-"))


def _torch_rng(device: torch.device) -> dict[str, torch.Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _python_rng() -> list[Any]:
    version, numbers, gauss = random.getstate()
    return [version, list(numbers), gauss]


def _numpy_rng() -> list[Any]:
    kind, keys, *rest = np.random.get_state(legacy=True)
    return [kind, np.asarray(keys).tolist(), *rest]


def _is_whole(checkpoint: Path) -> bool:
    try:
        hashes = json.loads(read_plain(checkpoint / _MARKER))
        if not isinstance(hashes, dict) or "state.json" not in hashes:
            return False
        return all(_sha256(checkpoint / name) == digest for name, digest in hashes.items())
    except (OSError, ValueError, RecursionError):
        return False


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _sync_and_hash(path: Path) -> str:
    _sync(path)
    return _sha256(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
