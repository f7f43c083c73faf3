"""The reference of preferences: log-probabilities of replies as training begins, computed once and cached.

That is the model without its adapter, or with the adapter that the run continues from.

The cache lies beside the tokenized rows. Its key says which numbers these are: checksums of the frozen weights as they
were loaded, token ids of all rows, precision, engine and the starting adapter. So another model, another quantization
or an edited row never finds them, and a resumed run finds the same bits.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from burnish_engine.contract.errors import NoSpaceError
from burnish_engine.contract.files import make_private, write_atomic
from burnish_engine.contract.paths import user_cache_dir
from burnish_engine.contract.run.events import ProgressUnit
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.runs.recorder import Recorder
from burnish_engine.train.base.engine import EvaluationRequest
from burnish_engine.train.base.stream import References
from burnish_engine.train.guard.checksums import checksums
from burnish_engine.train.guard.choose_probe import probe_for
from burnish_engine.train.lifecycle.run_setup import RunSetup
from burnish_engine.train.lifecycle.start import hashed_files
from burnish_engine.train.recovery.recovery import RecoveringEngine

_LAYOUT = 2  # part of the key; raise it when the numbers change
_Floats = npt.NDArray[np.float32]


def provide_reference(setup: RunSetup, engine: RecoveringEngine, recorder: Recorder) -> None:
    """Give the run's micro-batches and held-out rows the log-probabilities that its objective compares with.

    Args:
        setup: settings and inputs of the run; nothing is done where the objective needs no reference.
        engine: loaded engine.
        recorder: recorder of the phase.
    """
    if not setup.recipe.preference.needs_reference:
        return
    inputs, budget = setup.inputs, setup.recipe.train.micro_batch_tokens
    path = user_cache_dir() / "references" / f"{_key(setup, engine)}.npz"
    parts: dict[str, Sequence[Document]] = {
        "train": inputs.data.train,
        "held_out": inputs.held_out,
        "mismatched": inputs.stream.mismatched or (),
        "held_out_mismatched": inputs.held_out_mismatched or (),
    }
    found = _read(path, parts)
    if found is None:
        recorder.phase("preparing", "log-probabilities of the reference")
        total = sum(len(documents) for documents in parts.values())
        unit: ProgressUnit = "rows" if setup.recipe.preference.learns_labels else "pairs"

        def log_probs(documents: Sequence[Document], before: int) -> _Floats:
            request = EvaluationRequest(documents, budget, lambda done: recorder.progress(before + done, total, unit))
            return engine.log_probs(request, inputs.start or False)

        found, done = {}, 0
        for name, documents in parts.items():
            found[name] = log_probs(documents, done)
            done += len(documents)
        if all(np.isfinite(part).all() for part in found.values()):  # else the guard says why
            _write(path, found)
    inputs.stream.references = References(**found)


def _key(setup: RunSetup, engine: RecoveringEngine) -> str:
    frozen = engine.apply("the checksums of the weights", lambda one: checksums(probe_for(one).frozen()))
    inputs, section = setup.inputs, setup.recipe.preference
    # What divides a row into prompt and reply is in the hash; the rest of what makes mismatched documents is here.
    mismatch = setup.recipe.data.max_length if section.estimates_kl else 0
    parts = [_LAYOUT, inputs.data.dataset_hash, len(inputs.held_out), mismatch, setup.precision, engine.facts.name]
    parts += [file.sha256 for file in hashed_files(inputs.start)] if inputs.start else []
    products = setup.products.products
    parts += [products, "logits in int8"] if products != "16" else []
    return hashlib.sha256(json.dumps([*parts, sorted(frozen.items())]).encode()).hexdigest()[:40]


def _read(path: Path, parts: Mapping[str, Sequence[Document]]) -> dict[str, _Floats] | None:
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in parts}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return None
    fits = all(
        len(found[name]) == len(documents) and found[name].ndim == 2 and found[name].dtype == np.float32
        for name, documents in parts.items()
    )
    return found if fits else None


def _write(path: Path, found: dict[str, _Floats]) -> None:
    """Cache the numbers; a cache that cannot be written costs only time the next time."""
    buffer = io.BytesIO()
    np.savez(buffer, **found)  # type: ignore[arg-type]
    try:
        make_private(path.parent)
        write_atomic(path, buffer.getvalue())
    except (OSError, NoSpaceError):
        return
