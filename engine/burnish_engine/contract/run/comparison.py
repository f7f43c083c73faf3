"""Types of a comparison of several runs: their outcomes, and what they did differently. Plain data, no torch."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from burnish_engine.contract.facts.task_score import TaskChange
from burnish_engine.contract.number import Number
from burnish_engine.contract.record import Facts
from burnish_engine.contract.run.forgetting import Forgetting
from burnish_engine.contract.run.state import ObservedStatus

DifferenceGroup = Literal["recipe", "model", "data", "machine", "versions"]


class ComparedRun(Facts):
    """Outcome of a run so far. None: not measured.

    Attributes:
        run: name of the run's folder.
        standing: current status.
        step: number of finished optimizer steps.
        total_steps: number of steps of the whole run.
        loss: training loss of the last step, nats per supervised token.
        held_out_loss: held-out loss of the run's result so far, nats per supervised token.
        held_out_step: number of the step that it was measured after.
        held_out_tokens: number of held-out tokens that it was measured on.
        objective: objective of the recipe; losses compare only where it is the same.
        accuracy: share of held-out pairs whose chosen reply the result prefers, 0 to 1; None: it learns from none.
        margin: mean difference of the rewards of held-out pairs; None likewise.
        forgetting: loss on general text before training and of the result.
        task: score of the task before training and of the result.
        votes: count of the blind votes, as text; empty: there are none.
        tokens_per_s: median over the steps.
        memory_bytes: peak of what the process held of the device, over the steps.
        training_s: time spent in steps, without loading, evaluation and saving.
    """

    run: str
    standing: ObservedStatus
    step: int
    total_steps: int
    loss: Number | None = None
    held_out_loss: Number | None = None
    held_out_step: int | None = None
    held_out_tokens: int | None = None
    objective: str = "sft"
    accuracy: Number | None = None
    margin: Number | None = None
    forgetting: Forgetting | None = None
    task: TaskChange | None = None
    votes: str = ""
    tokens_per_s: Number | None = None
    memory_bytes: int | None = None
    training_s: Number | None = None


class DifferenceRow(Facts):
    """Something in which some of the compared runs differ."""

    group: DifferenceGroup
    key: str = Field(description="A recipe key such as train.learning_rate, or the name of a fact.")
    values: list[Any] = Field(description="Value of each run, in their order; None: it is not known of this one.")


class RunsComparison(Facts):
    """Several runs beside each other."""

    folders: list[str]
    outcomes: list[ComparedRun]
    rows: list[DifferenceRow] = Field(description="Only what differs.")
    notes: list[str] = Field(default=[], description="What makes the figures hard to compare.")
