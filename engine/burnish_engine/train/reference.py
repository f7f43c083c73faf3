"""The reference of preference pairs: their log-probabilities without the adapter, computed once and cached.

The cache lies beside the tokenized rows. Its key says which numbers these are: checksums of the frozen weights as they
were loaded, token ids of all pairs, precision and engine. So another model, another quantization or an edited row never
finds them, and a resumed run finds the same bits.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.errors import NoSpaceError
from burnish_engine.contract.files import make_private, write_atomic
from burnish_engine.contract.paths import user_cache_dir
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.runs.recorder import Recorder
from burnish_engine.train.guard.checksums import checksums
from burnish_engine.train.guard.choose_probe import probe_for
from burnish_engine.train.lifecycle.run_setup import RunSetup
from burnish_engine.train.recovery.recovery import RecoveringEngine

_LAYOUT = 1  # part of the key; raise it when the numbers change
_Floats = npt.NDArray[np.float32]


def provide_reference(setup: RunSetup, engine: RecoveringEngine, recorder: Recorder) -> None:
    """Give the run's micro-batches and held-out pairs the log-probabilities that its objective compares with.

    Args:
        setup: settings and inputs of the run; nothing is done where the objective needs no reference.
        engine: loaded engine.
        recorder: recorder of the phase.
    """
    if not setup.recipe.preference.needs_reference:
        return
    inputs, budget = setup.inputs, setup.recipe.train.micro_batch_tokens
    path = user_cache_dir() / "references" / f"{_key(setup, engine)}.npz"
    counts = (len(inputs.data.train), len(inputs.held_out))
    found = _read(path, counts)
    if found is None:
        recorder.phase("preparing", "log-probabilities of the reference")
        total = sum(counts)

        def log_probs(documents: Sequence[Document], before: int) -> _Floats:
            return engine.log_probs(
                documents,
                budget,
                adapter=False,
                progress=lambda done: recorder.progress(before + done, total, "pairs"),
            )

        found = (log_probs(inputs.data.train, 0), log_probs(inputs.held_out, counts[0]))
        if all(np.isfinite(part).all() for part in found):  # else the guard says why
            _write(path, found)
    inputs.stream.reference, inputs.stream.held_out_reference = found


def _key(setup: RunSetup, engine: RecoveringEngine) -> str:
    frozen = engine.apply("the checksums of the weights", lambda one: checksums(probe_for(one).frozen()))
    parts = [_LAYOUT, setup.inputs.data.dataset_hash, len(setup.inputs.held_out), setup.precision, engine.name]
    return hashlib.sha256(json.dumps([*parts, sorted(frozen.items())]).encode()).hexdigest()[:40]


def _read(path: Path, counts: tuple[int, int]) -> tuple[_Floats, _Floats] | None:
    try:
        with np.load(path, allow_pickle=False) as file:
            found = (file["train"], file["held_out"])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return None
    fits = all(part.shape == (count, 2) and part.dtype == np.float32 for part, count in zip(found, counts, strict=True))
    return found if fits else None


def _write(path: Path, found: tuple[_Floats, _Floats]) -> None:
    """Cache the numbers; a cache that cannot be written costs only time the next time."""
    buffer = io.BytesIO()
    np.savez(buffer, train=found[0], held_out=found[1])
    try:
        make_private(path.parent)
        write_atomic(path, buffer.getvalue())
    except (OSError, NoSpaceError):
        return
