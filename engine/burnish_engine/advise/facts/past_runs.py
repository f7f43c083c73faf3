"""Keeps what past runs were predicted to take and what they took, in one small file. Loads no torch.

The file holds figures and the device's name, and nothing of models, data or folders. No failure here ends a run.
"""

from __future__ import annotations

import functools
import json
import logging
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from burnish_engine.contract.errors import NoSpaceError
from burnish_engine.contract.files import make_private, read_with_retry, write_atomic
from burnish_engine.contract.paths import past_runs_file

_log = logging.getLogger(__name__)

VERSION = 1
MOST_OF_A_KIND = 20
MOST = 200
_MOST_FILE_BYTES = 2_000_000  # 200 runs take about 150 kB: a larger file is not this one
_LOCK_S = 5.0

_Bytes = Annotated[int, Field(ge=0, le=2**50)]
_Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
_Rate = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]


class PastRun(BaseModel):
    """The prediction for one run that ended well, before any correction, and its measurements."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    when: float = Field(ge=0, allow_inf_nan=False, description="Seconds since the epoch.")
    burnish: str = Field(max_length=50, description="Version that predicted: others count otherwise.")
    device: str = Field(max_length=200)
    engine: Literal["fast", "plain"]
    kind: str = Field(max_length=50)
    memory: dict[str, _Bytes] = Field(max_length=50, description="Predicted components of the peak, bytes.")
    tokens_per_s: _Rate = Field(description="Predicted speed.")
    process_bytes: _Bytes = Field(default=0, description="Peak of the process on the device; 0: not known.")
    allocated_bytes: _Bytes = Field(default=0, description="Peak of torch's tensors; 0: not known.")
    reserved_bytes: _Bytes = Field(default=0, description="Peak of what torch's allocator held; 0: not known.")
    measured_tokens_per_s: _Rate | None = Field(default=None, description="None where there were too few steps.")
    times: dict[str, tuple[_Seconds, _Seconds]] = Field(
        default={}, max_length=20, description="By part of the run's time: what one was predicted to take, and took."
    )
    steps: int = Field(default=0, ge=0)
    outcome: Literal["finished", "stopped", "suspended"] = "finished"


class _File(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    version: Literal[1]
    runs: list[PastRun] = Field(max_length=10 * MOST)


def past_runs() -> tuple[PastRun, ...]:
    """Read all past runs, oldest first; none where the file is missing, damaged or of a newer version."""
    path = past_runs_file()
    try:
        found = path.stat()
    except OSError:
        return ()
    return _read(path, found.st_mtime_ns, found.st_size)[0]


def remember(run: PastRun) -> None:
    """Add a run, and drop the oldest of too many. Never fails; a newer version's file is left alone.

    Args:
        run: prediction and measurements of the run.
    """
    path = past_runs_file()
    try:
        make_private(path.parent)
        with FileLock(str(path.with_suffix(".lock")), timeout=_LOCK_S):
            known, ours = _read(path, 0, path.stat().st_size) if path.exists() else ((), True)
            _read.cache_clear()
            if ours:
                kept = [json.loads(each.model_dump_json()) for each in _newest([*known, run])]
                write_atomic(path, json.dumps({"version": VERSION, "runs": kept}, indent=1) + "\n")
    except (OSError, NoSpaceError, Timeout) as error:
        _log.warning("What the run took could not be kept in %s: %s", path, error)


def _newest(runs: list[PastRun]) -> list[PastRun]:
    """Keep the newest runs of each kind, oldest first."""
    count: Counter[tuple[str, str, str]] = Counter()
    kept = []
    for run in sorted(runs, key=lambda each: each.when, reverse=True):
        key = (run.device, run.engine, run.kind)
        count[key] += 1
        if count[key] <= MOST_OF_A_KIND:
            kept.append(run)
    return kept[:MOST][::-1]


@functools.lru_cache(maxsize=4)
def _read(path: Path, _changed_ns: int, size: int) -> tuple[tuple[PastRun, ...], bool]:
    """Read (runs, whether the file may be replaced). Cached, because plans are made by the hundred."""
    try:
        if size > _MOST_FILE_BYTES:
            raise ValueError(f"it has {size:,} bytes")
        document = json.loads(read_with_retry(path))
        version = document.get("version") if isinstance(document, dict) else None
        if isinstance(version, int) and version > VERSION:
            _log.warning("%s is of a newer version (%d) and is not used.", path, version)
            return (), False
        return tuple(_File.model_validate(document).runs), True
    except (OSError, ValueError, RecursionError) as error:  # pydantic's and JSON's errors are ValueErrors
        reason = f"{error.error_count()} values are wrong" if isinstance(error, ValidationError) else error
        _log.warning("What past runs took is not used: %s is damaged (%s).", path, reason)
        return (), True
