"""The protocol by which the guard inspects an engine. A probe leaves the engine and all random states as they were."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import torch

from burnish_engine.data.tokens.pack import MicroBatch


@dataclass(frozen=True)
class TensorAudit:
    """Gradient of one trained tensor.

    Attributes:
        group: name of the adapted module, or of the layer where the whole model is trained; empty where the tensor may
            rightly have no gradient.
        norm: L2 norm of the gradient.
        starts_zero: whether the tensor is 0 everywhere, so that its partner in the adapter has no gradient yet.
    """

    group: str
    norm: float
    starts_zero: bool


@dataclass(frozen=True)
class Audit:
    """Result of one forward and backward pass as training does it, without the update.

    Attributes:
        loss: mean loss over the supervised tokens, as the step counts them.
        counted: number of targets that the loss really had.
        tensors: gradient of each trained tensor, by name.
    """

    loss: float
    counted: int
    tensors: Mapping[str, TensorAudit]


class EngineProbe(Protocol):
    """Access to an engine's loss, gradients, logits and weights for checks, without a trace in the run."""

    def audit(self, batch: MicroBatch) -> Audit:
        """Run a micro-batch as training does, up to the gradients."""
        ...

    def logits(self, batch: MicroBatch, rows: torch.Tensor) -> torch.Tensor:
        """Compute the logits `[rows, V]` in fp32 at some places of a pass, without dropout; on the CPU."""
        ...

    def trained(self) -> Mapping[str, torch.Tensor]:
        """Return the tensors that the optimizer changes, by name; the caller must not change them."""
        ...

    def frozen(self) -> Mapping[str, torch.Tensor]:
        """Return the tensors that training must not change, by name; empty where every weight is trained."""
        ...

    def without_adapter(self) -> AbstractContextManager[bool]:
        """Switch the adapter off inside. Yields False where there is no adapter."""
        ...
