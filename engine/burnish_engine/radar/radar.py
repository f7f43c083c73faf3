"""Try model types, each in a process of its own with a time limit, and keep what was found as JSON lines."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from burnish_engine.contract.files import is_file
from burnish_engine.contract.paths import HOME_VARIABLE
from burnish_engine.radar.try_type import try_type
from burnish_engine.radar.verdict import Verdict

LIMIT_S = 600.0
_PRELOADED = ["transformers.models.auto.modeling_auto", "burnish_engine.train.run", "burnish_engine.export.job"]
"""Not PEFT: where there is a GPU its bitsandbytes begins CUDA, which no fork survives."""


def causal_types() -> list[str]:
    """Return the names of all causal model types of the installed transformers, sorted."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def scan(names: Sequence[str], kept: Path | None = None, limit_s: float = LIMIT_S) -> Iterator[Verdict]:
    """Yield what holds of each type, those that are kept from before first.

    Args:
        names: model types.
        kept: file of JSON lines that is read and added to, so that a radar that was ended continues; None: there is
            none.
        limit_s: seconds that a type may take.
    """
    before = _read(kept) if kept else {}
    yield from (before[name] for name in names if name in before)
    for name in names:
        if name not in before:
            verdict = scan_one(name, limit_s)
            if kept:
                with kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(verdict)) + "\n")
            yield verdict


def scan_one(name: str, limit_s: float = LIMIT_S) -> Verdict:
    """Try one type in a process of its own; where it crashes or hangs, the stages before count.

    Args:
        name: model type.
        limit_s: seconds that it may take.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = _processes().Process(target=_try_quietly, args=(name, folder), daemon=True)
        process.start()
        process.join(limit_s)
        hangs = process.is_alive()
        process.kill()
        process.join()
        found = _read(Path(folder, "verdict.json")).get(name, Verdict(name))
    if hangs or process.exitcode:
        return replace(found, why="takes too long" if hangs else "crashes")
    return found


def _processes() -> Any:
    """Return how processes start: forked from one that has the libraries loaded, anew where the system forks none."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def _try_quietly(name: str, folder: str) -> None:
    """Try a type on the processor, with all that libraries print going into a file, and Burnish's records beside it."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ |= {HOME_VARIABLE: str(Path(folder, "home")), "CUDA_VISIBLE_DEVICES": ""}
    log = os.open(Path(folder, "log.txt"), os.O_WRONLY | os.O_CREAT)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(log, stream.fileno())
    try_type(name, Path(folder))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _read(path: Path) -> dict[str, Verdict]:
    """Read verdicts, but for lines that are none, such as one that was cut when a radar was ended."""
    if not is_file(path):
        return {}
    found = map(_verdict, path.read_text(encoding="utf-8", errors="replace").splitlines())
    return {one.model_type: one for one in found if one is not None}


def _verdict(line: str) -> Verdict | None:
    try:
        found = Verdict(**json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return None
    return found if all(isinstance(value, str) for value in asdict(found).values()) else None
