"""What a session asks of an engine, whichever trains: Burnish's own decoder (fast) or transformers and PEFT (plain)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import torch

from burnish_engine.contract.coverage import Coverage
from burnish_engine.data.pack import MicroBatch
from burnish_engine.data.tokenize import Document
from burnish_engine.models.device import MEMORY_ERRORS, is_out_of_memory
from burnish_engine.models.sampling import Reply

Trained = Literal["adapter", "model"]
"""What is trained: an adapter, or every weight of the model. Also the name of the folder that holds it."""

SMALLEST = "smallest"
"""The plan that takes the least memory, whatever it is for an engine."""


class HalfUpdatedError(Exception):
    """Memory ran out in the middle of an update: the weights are neither the old nor the new ones."""


@contextmanager
def whole_update() -> Iterator[None]:
    """Inside, an engine changes what it trains.

    Raises:
        HalfUpdatedError: Memory ran out meanwhile.
    """
    try:
        yield
    except MEMORY_ERRORS as error:
        if is_out_of_memory(error):
            raise HalfUpdatedError(str(error)) from error
        raise


@dataclass(frozen=True)
class StepResult:
    """What an optimizer step found.

    Attributes:
        step: Its number, from 1.
        micro_batches: Passes it consisted of.
        tokens: Real tokens of all its passes.
        supervised: Tokens that the loss counts.
        loss: Mean cross entropy over these, nats.
        grad_norm: Global L2 norm before clipping.
        learning_rate: Of the step.
        taken: False where the gradient was not finite, so that nothing was changed.
        loss_scale: What the loss was multiplied by (fp16), else 1.
        seconds: From the step before to this one.
    """

    step: int
    micro_batches: int
    tokens: int
    supervised: int
    loss: float
    grad_norm: float
    learning_rate: float
    taken: bool
    loss_scale: float
    seconds: float


class Engine(Protocol):
    """Trains one adapter, or a whole model.

    Attributes:
        notes: What the person should know, each once.
    """

    notes: list[str]

    @property
    def name(self) -> str:
        """Which engine, "fast" or "plain"."""
        ...

    @property
    def trains(self) -> Trained:
        """What it trains."""
        ...

    @property
    def coverage(self) -> Coverage:
        """Which share of each kind of layer's weights it trains or adapts, counted on what was loaded."""
        ...

    @property
    def layout(self) -> str:
        """How rows are laid out in a pass, "packed" or "padded"."""
        ...

    @property
    def memory_plan(self) -> str:
        """How it uses memory now, in the words that `make_engine` takes it up again with; empty for as it chooses."""
        ...

    @property
    def locked_bytes(self) -> int:
        """Host memory for what layers keep there."""
        ...

    def start(
        self,
        step: int,
        total_steps: int,
        total_micro_batches: int,
        source: Sequence[MicroBatch] | None = None,
    ) -> None:
        """Get ready to go on after `step` optimizer steps, without gradients. What was begun is dropped.

        Args:
            step: Optimizer steps done.
            total_steps: Of the run.
            total_micro_batches: Of the run.
            source: Train on these instead of the run's micro-batches, as a dry run does.
        """
        ...

    def queue_step(self) -> None:
        """Do the next optimizer step, or let the device begin with it.

        Raises:
            HalfUpdatedError: Memory ran out where that leaves neither the old nor the new weights. Any other error
                leaves them, and all random numbers, as they were before the step.
        """
        ...

    def shrink(self) -> str:
        """Give back what it can and go on with the next smaller plan. `start` comes next.

        It may run out of memory itself; called again, it goes on to the plan after that.

        Returns:
            What is done otherwise now, as half a sentence; empty where there is nothing smaller.
        """
        ...

    @property
    def loading_plan(self) -> str:
        """A plan still smaller than what `shrink` comes to, which only loading takes up; empty where there is none."""
        ...

    @property
    def state_bytes(self) -> int:
        """Most host memory that a snapshot takes."""
        ...

    def snapshot(self) -> Callable[[], None]:
        """Copy everything that steps change to host memory. Calling what is returned puts it back."""
        ...

    def results(self, *, wait: bool = False) -> Iterator[StepResult]:
        """Results that came in since, in order; with `wait`, those of all steps queued."""
        ...

    def held_out_loss(self, documents: Sequence[Document], budget: int) -> tuple[float, int]:
        """Mean cross entropy (nats) over the supervised tokens of documents, and their number."""
        ...

    def replies(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> list[Reply]:
        """Greedy replies to prompts of token ids, leaving the training as it was."""
        ...

    def save_adapter(self, folder: Path) -> None:
        """Write what was trained, exactly, into a folder that does not exist yet.

        An adapter in PEFT's format, or the whole model as transformers loads it, with its tokenizer.
        """
        ...

    def optimizer_tensors(self) -> dict[str, torch.Tensor]:
        """The optimizer's state by name, on the CPU."""
        ...

    def restore_optimizer(self, tensors: dict[str, torch.Tensor]) -> None:
        """Put saved state back.

        Raises:
            KeyError: The tensors belong to another adapter.
        """
        ...

    def close(self) -> None:
        """Let go of threads."""
        ...
