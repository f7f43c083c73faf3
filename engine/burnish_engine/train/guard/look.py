"""What the guard asks of an engine, whichever trains. A look leaves the engine and all random numbers as they were."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import torch

from burnish_engine.data.pack import MicroBatch
from burnish_engine.train.engine import Engine
from burnish_engine.train.fast_engine import FastEngine
from burnish_engine.train.plain_engine import PlainEngine


@dataclass(frozen=True)
class Part:
    """One trained tensor.

    Attributes:
        group: What it is a part of: the adapted module; the layer where the whole model is trained; empty: of nothing
            that must have a gradient.
        norm: L2 norm of its gradient.
        starts_zero: It is 0 everywhere, so that its partner in the adapter has no gradient yet.
    """

    group: str
    norm: float
    starts_zero: bool


@dataclass(frozen=True)
class Audit:
    """One forward and backward pass as training does it, without the update.

    Attributes:
        loss: Mean over the supervised tokens, as the step counts them.
        counted: Targets that the loss really had.
        parts: What was found of each trained tensor, by name.
    """

    loss: float
    counted: int
    parts: Mapping[str, Part]


class Look(Protocol):
    """See the module's text."""

    def audit(self, batch: MicroBatch) -> Audit:
        """Train on a pass, up to the gradients."""
        ...

    def logits(self, batch: MicroBatch, rows: torch.Tensor) -> torch.Tensor:
        """Logits `[rows, V]` in fp32 at some places of a pass, without dropout; on the CPU."""
        ...

    def trained(self) -> Mapping[str, torch.Tensor]:
        """What the optimizer changes, by name; not to be changed."""
        ...

    def frozen(self) -> Mapping[str, torch.Tensor]:
        """What must not change, by name; empty where every weight is trained."""
        ...

    def without_adapter(self) -> AbstractContextManager[bool]:
        """Within, the base model computes alone. Gives False where there is no adapter to leave out."""
        ...


def look_into(engine: Engine) -> Look:
    """The look that fits an engine.

    Args:
        engine: Itself, not what wraps it.
    """
    from burnish_engine.train.guard.look_fast import FastLook
    from burnish_engine.train.guard.look_plain import PlainLook

    if isinstance(engine, FastEngine):
        return FastLook(engine)
    assert isinstance(engine, PlainEngine)
    return PlainLook(engine)
