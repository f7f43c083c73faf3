"""The protocol of training engines: Burnish's own decoder (fast) and transformers with PEFT (plain) implement it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch

from burnish_engine.contract.facts.coverage import Coverage
from burnish_engine.data.tokens.pack import MicroBatch
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.models.device.device import MEMORY_ERRORS, is_out_of_memory
from burnish_engine.models.generation.sampling import GeneratedReply, Sampling
from burnish_engine.train.base.policy import ReplyFigures

TrainedKind = Literal["adapter", "model"]
"""Kind of training: an adapter, or every weight of the model. It also names the folder that holds the result."""

CountListener = Callable[[int], object]
"""Function that is told how many items are done."""


def ignore_count(_done: int) -> None:
    """Do nothing with a count."""


SMALLEST = "smallest"
"""Name of the memory plan that takes the least memory; each engine has its own."""


class HalfUpdatedError(Exception):
    """Memory ran out in the middle of an update: the weights are neither the old nor the new ones."""


@contextmanager
def whole_update() -> Iterator[None]:
    """Guard the code that changes trained weights: running out of memory within it becomes its own error.

    Raises:
        HalfUpdatedError: Memory ran out inside.
    """
    try:
        yield
    except MEMORY_ERRORS as error:
        if is_out_of_memory(error):
            raise HalfUpdatedError(str(error)) from error
        raise


@dataclass(frozen=True)
class PreferenceFigures:
    """Means over some preference pairs, or replies labeled good (chosen) or bad (rejected).

    `train.base.preference` explains the terms. A figure is None where the objective does not have it, or no reply has
    the label that it is of.

    Attributes:
        margin: reward of the chosen replies less that of the rejected ones.
        accuracy: share of pairs with a positive margin, 0 to 1; of labeled replies, those whose reward lies on their
            label's side of `kl`.
        chosen_log_prob: log-probability of the chosen replies, nats.
        rejected_log_prob: log-probability of the rejected replies, nats.
        preference_loss: loss without the cross entropy of the chosen replies.
        sft_loss: that cross entropy, nats a token, before its weight.
        kl: estimated divergence from the reference, nats a reply.
    """

    margin: float | None
    accuracy: float | None
    chosen_log_prob: float | None
    rejected_log_prob: float | None
    preference_loss: float | None
    sft_loss: float | None = None
    kl: float | None = None


@dataclass(frozen=True)
class StepResult:
    """Result of one optimizer step.

    Attributes:
        step: number of the step, from 1.
        micro_batches: number of micro-batches in the step.
        tokens: real tokens of all micro-batches.
        supervised: tokens that the loss counts.
        loss: mean cross entropy over the supervised tokens, nats; of preferences, the mean loss of a pair or reply.
        grad_norm: global L2 norm of the gradient before clipping.
        learning_rate: learning rate of the step.
        taken: whether the weights were updated; False where the gradient was not finite.
        loss_scale: factor on the loss (fp16), else 1.
        seconds: time from the end of the step before to the end of this one.
        preference: figures of the step's preferences; None where it learns from none.
        replies: figures of the replies that the model wrote itself; None where it learns from rows.
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
    preference: PreferenceFigures | None = None
    replies: ReplyFigures | None = None


@dataclass(frozen=True)
class EngineFacts:
    """Facts of a loaded engine, as it is at present: a smaller memory plan changes some.

    Attributes:
        name: which engine, "fast" or "plain".
        trains: kind of training.
        layout: arrangement of rows in a pass, such as "packed" or "padded".
        coverage: share of each layer kind's weights that is trained or adapted, counted on the loaded model.
        memory_plan: plan in use, as text that `EngineSpec.plan` takes; empty where the engine decides for itself.
        locked_bytes: host memory that holds offloaded activations and weights, page-locked as far as possible.
        state_bytes: most bytes of host memory that a snapshot takes.
    """

    name: str
    trains: TrainedKind
    layout: str
    coverage: Coverage
    memory_plan: str
    locked_bytes: int
    state_bytes: int


@dataclass(frozen=True)
class EvaluationRequest:
    """Documents to evaluate a model on.

    Attributes:
        documents: documents of as many sequences each.
        budget: tokens per forward pass.
        progress: function that is told the number of documents done so far.
    """

    documents: Sequence[Document]
    budget: int
    progress: CountListener = ignore_count


class Engine(Protocol):
    """Trains one adapter, or a whole model.

    Attributes:
        notes: sentences that the user should read; the session removes each after showing it.
    """

    notes: list[str]

    @property
    def facts(self) -> EngineFacts:
        """Facts of the engine, as it is at present."""
        ...

    def start(
        self,
        step: int,
        total_steps: int,
        total_micro_batches: int,
        source: Sequence[MicroBatch] | None = None,
    ) -> None:
        """Prepare to continue after `step` optimizer steps; gradients and unfinished steps are dropped.

        Args:
            step: optimizer steps done so far.
            total_steps: optimizer steps of the whole run.
            total_micro_batches: micro-batches of the whole run.
            source: micro-batches of the next step, to train on instead of the run's own. So does a dry run, and a run
                that learns from replies of the model, which calls this before each step.
        """
        ...

    def queue_step(self) -> None:
        """Run the next optimizer step, or queue it on the device.

        Raises:
            HalfUpdatedError: Memory ran out in the middle of the update. Any other error leaves the weights and all
                random states as they were before the step.
        """
        ...

    def shrink(self) -> str:
        """Free memory and adopt the next smaller memory plan; the caller must call `start` next.

        The call may run out of memory itself. Called again, it tries the plan after that.

        Returns:
            Half a sentence on the change; empty where no smaller plan exists.
        """
        ...

    @property
    def loading_plan(self) -> str:
        """Plan that needs less than any plan of `shrink` and takes effect only on loading; empty where none exists."""
        ...

    def snapshot(self) -> Callable[[], None]:
        """Copy everything that steps change to host memory, and return a function that restores it."""
        ...

    def results(self, *, wait: bool = False) -> Iterator[StepResult]:
        """Yield the results that arrived since the last call, in order; with `wait`, those of all queued steps."""
        ...

    def held_out_loss(self, request: EvaluationRequest) -> tuple[float, int]:
        """Compute the mean cross entropy (nats) over the supervised tokens of documents, and count these tokens."""
        ...

    def log_probs(self, request: EvaluationRequest, adapter: Path | bool = True) -> npt.NDArray[np.float32]:
        """Compute the summed log-probabilities (nats) of supervised tokens.

        Args:
            request: documents to evaluate.
            adapter: whether the adapter takes part; a folder: the adapter of the same form that is saved there does.

        Returns:
            [documents, sequences]: of preference pairs, those of the chosen and of the rejected reply.
        """
        ...

    def token_log_probs(self, request: EvaluationRequest, adapter: Path | bool = True) -> list[npt.NDArray[np.float32]]:
        """Compute the log-probability (nats) of each supervised token.

        Args:
            request: documents of one sequence each.
            adapter: as for `log_probs`.

        Returns:
            For each document, those of its supervised tokens in order.
        """
        ...

    def kl_to_base(self, request: EvaluationRequest) -> float | None:
        """Compute the mean divergence (nats a token) of the model from the one without its adapter.

        It is that of the distribution of the next token, over the whole vocabulary, at the supervised tokens.

        Args:
            request: documents of one sequence each.

        Returns:
            The mean; None where there is no adapter, or no supervised token.
        """
        ...

    @property
    def replies_are_paged(self) -> bool:
        """Whether replies take memory as they grow, so that any number may be asked for at once."""
        return False

    def replies(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, samplings: Sequence[Sampling] = ()
    ) -> list[GeneratedReply]:
        """Generate replies to prompts of token ids; the state of training stays as it was.

        Args:
            prompts: token ids of each prompt.
            max_new_tokens: most tokens of a reply.
            samplings: how the tokens of each reply are chosen; empty: the likeliest ones.
        """
        ...

    def save_adapter(self, folder: Path) -> None:
        """Write the trained weights, exactly, into a folder that does not exist yet.

        An adapter is written in PEFT's format, a whole model as transformers loads it, with its tokenizer.
        """
        ...

    def optimizer_tensors(self) -> dict[str, torch.Tensor]:
        """Return the optimizer's state by name, on the CPU."""
        ...

    def restore_optimizer(self, tensors: dict[str, torch.Tensor]) -> None:
        """Restore saved optimizer state.

        Raises:
            KeyError: The tensors belong to another adapter.
        """
        ...

    def close(self) -> None:
        """Stop the engine's threads."""
        ...
