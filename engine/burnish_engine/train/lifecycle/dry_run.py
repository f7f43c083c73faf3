"""Try a long run's longest pass, an evaluation and a save first, so that a lack of memory shows now and not in hours.

Afterwards the engine is as it was, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from burnish_engine.data.tokens.pack import MicroBatch, held_out_batches
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.hardware.host.host_memory import host_memory
from burnish_engine.runs.recorder import Recorder
from burnish_engine.train.base.engine import Engine, EvaluationRequest
from burnish_engine.train.base.random_state import snapshot_random_state
from burnish_engine.train.base.stream import pass_size
from burnish_engine.train.lifecycle import checkpoint as checkpoints
from burnish_engine.train.lifecycle.announce import report_notes
from burnish_engine.train.lifecycle.run_setup import RunSetup

_LONG_S = 300.0
_MANY_STEPS = 50
_STEPS = 2  # the second one has the optimizer's moments, and on a GPU it is captured


def dry_run_if_long(engine: Engine, setup: RunSetup, recorder: Recorder, step: int) -> None:
    """Make a dry run where the run is long enough for one; the engine must be started afterwards.

    Args:
        engine: loaded engine.
        setup: settings and inputs of the run.
        recorder: recorder of events and state.
        step: optimizer steps made so far.
    """
    inputs, section = setup.inputs, setup.recipe.train
    steps = inputs.budget.steps
    left = steps - step
    if not (is_worthwhile(left, setup.predicted_s * left / steps) and has_room(engine)):
        return
    batch = inputs.stream.longest(inputs.budget.micro_batches, padded=engine.facts.layout == "padded")
    recorder.phase("dry_run", f"{batch.tokens:,} tokens, evaluation and save")
    dry_run(
        engine,
        batch,
        passes=section.accumulation,
        held_out=inputs.held_out,
        budget=section.micro_batch_tokens,
        checkpoints_folder=setup.paths.checkpoints,
        device=setup.device,
    )
    report_notes(engine, recorder)


def is_worthwhile(steps: int, seconds: float) -> bool:
    """Return whether a run is long enough for a dry run.

    Args:
        steps: optimizer steps still to be made.
        seconds: predicted time of these steps; 0 where not known.
    """
    return steps > _MANY_STEPS or seconds > _LONG_S


def has_room(engine: Engine) -> bool:
    """Return whether host memory has room for a copy of everything that steps change; a whole model takes much."""
    return engine.facts.state_bytes < host_memory()[1] / 2


def dry_run(
    engine: Engine,
    batch: MicroBatch,
    *,
    passes: int,
    held_out: Sequence[Document],
    budget: int,
    checkpoints_folder: Path,
    device: torch.device,
) -> None:
    """Train two steps, evaluate one pass, save, and restore everything. The caller must call `start` next.

    Args:
        engine: loaded engine.
        batch: longest micro-batch of the run.
        passes: micro-batches of an optimizer step (accumulation).
        held_out: documents of an evaluation.
        budget: tokens of a pass.
        checkpoints_folder: folder to write the trained weights to; they are deleted again.
        device: device of the engine.
    """
    put_random_back = snapshot_random_state(device)
    put_back = engine.snapshot()
    source = [batch] * min(passes, 2)  # in a second pass the gradient of the first one is kept
    for _ in range(_STEPS):
        engine.start(0, 1, len(source), source)
        engine.queue_step()
        for _result in engine.results(wait=True):
            pass
    if held_out:
        longest = _longest_pass(held_out, budget, padded=engine.facts.layout == "padded")
        engine.held_out_loss(EvaluationRequest(longest, budget))
    checkpoints.try_saving(checkpoints_folder, engine)
    put_back()
    put_random_back()


def _longest_pass(documents: Sequence[Document], budget: int, *, padded: bool) -> list[Document]:
    """Return the documents of the evaluation's largest pass."""
    groups = held_out_batches(documents, budget).groups
    longest = max(groups, key=lambda group: pass_size([len(documents[row]) for row in group], padded=padded))
    return [documents[row] for row in longest]
