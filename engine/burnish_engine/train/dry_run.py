"""Before a long run: its longest pass, an evaluation and a save, so that what does not fit shows now and not in hours.

Afterwards everything is as it was, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from burnish_engine.data.pack import MicroBatch, held_out_batches
from burnish_engine.data.tokenize import Document
from burnish_engine.hardware.host_memory import host_memory
from burnish_engine.train import checkpoint as checkpoints
from burnish_engine.train.engine import Engine
from burnish_engine.train.random_state import hold_random
from burnish_engine.train.stream import pass_size

_LONG_S = 300.0
_MANY_STEPS = 50
_STEPS = 2  # the second one has the optimizer's moments, and on a GPU it is captured


def is_worthwhile(steps: int, seconds: float) -> bool:
    """Whether a run is so long that it shall be tried before.

    Args:
        steps: Still to be made.
        seconds: Predicted for them; 0 where that is not known.
    """
    return steps > _MANY_STEPS or seconds > _LONG_S


def has_room(engine: Engine) -> bool:
    """Whether host memory has room for a copy of all that steps change; of a whole model that is much."""
    return engine.state_bytes < host_memory()[1] / 2


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
    """Train two steps, evaluate one pass, save, and put everything back. `start` has to come next.

    Args:
        engine: Loaded.
        batch: The longest of the run.
        passes: Of an optimizer step, with accumulation.
        held_out: Documents of an evaluation.
        budget: Tokens of a pass.
        checkpoints_folder: Something is written there and deleted again.
        device: Where the engine trains.
    """
    put_random_back = hold_random(device)
    put_back = engine.snapshot()
    source = [batch] * min(passes, 2)  # in a second pass the gradient of the first one is kept
    for _ in range(_STEPS):
        engine.start(0, 1, len(source), source)
        engine.queue_step()
        for _result in engine.results(wait=True):
            pass
    if held_out:
        engine.held_out_loss(_longest_pass(held_out, budget, padded=engine.layout == "padded"), budget)
    checkpoints.try_saving(checkpoints_folder, engine)
    put_back()
    put_random_back()


def _longest_pass(documents: Sequence[Document], budget: int, *, padded: bool) -> list[Document]:
    """The documents of the evaluation's largest pass."""
    groups = held_out_batches(documents, budget).groups
    longest = max(groups, key=lambda group: pass_size([len(documents[row]) for row in group], padded=padded))
    return [documents[row] for row in longest]
