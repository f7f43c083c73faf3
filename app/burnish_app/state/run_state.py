"""Folds a run's events into an immutable `RunState`. Pure: no Qt, no files, no clock.

`fold` costs the same however long the run is: a state holds views into append-only columns that later states share, so
adding a step neither copies earlier rows nor changes an older state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from burnish_app.state.columns import GrowingColumn, GrowingList
from burnish_engine.contract.run.events import (
    BestKept,
    CheckpointSaved,
    CommandDone,
    DataReady,
    EvaluationDone,
    Event,
    GuardReported,
    PhaseChanged,
    PlanMade,
    RolledBack,
    RunEnded,
    RunStarted,
    SampleDone,
    StepDone,
    Warned,
)

_MAX_BAD = 500  # steps that are remembered as bad


@dataclass(frozen=True)
class StepHistory:
    """The history of the optimizer steps: one column per quantity, one row per step; step numbers rise."""

    step: GrowingColumn = field(default_factory=GrowingColumn)
    loss: GrowingColumn = field(default_factory=GrowingColumn)
    learning_rate: GrowingColumn = field(default_factory=GrowingColumn)
    tokens_per_s: GrowingColumn = field(default_factory=GrowingColumn)
    memory_bytes: GrowingColumn = field(default_factory=GrowingColumn)
    grad_norm: GrowingColumn = field(default_factory=GrowingColumn)

    def append(self, event: StepDone) -> StepHistory:
        """Return the history with one more row."""
        return StepHistory(
            step=self.step.append(event.step),
            loss=self.loss.append(event.loss),
            learning_rate=self.learning_rate.append(event.learning_rate),
            tokens_per_s=self.tokens_per_s.append(event.tokens_per_s),
            memory_bytes=self.memory_bytes.append(event.held_bytes),
            grad_norm=self.grad_norm.append(event.grad_norm),
        )

    def up_to(self, step: int) -> StepHistory:
        """Return the rows whose step number is at most `step`."""
        length = self.step.count_up_to(step)
        if length == len(self.step):
            return self
        return StepHistory(
            step=self.step.cut(length),
            loss=self.loss.cut(length),
            learning_rate=self.learning_rate.cut(length),
            tokens_per_s=self.tokens_per_s.cut(length),
            memory_bytes=self.memory_bytes.cut(length),
            grad_norm=self.grad_norm.cut(length),
        )


@dataclass(frozen=True)
class RunState:
    """The state of a run after the events seen so far.

    Attributes:
        seq: sequence number of the last folded event; -1 before the first.
        started: the latest `run_started` event, one for each process of the run; None before the first.
        starts: number of `run_started` events.
        phase: current phase of the engine, as in `PhaseChanged`; empty before the first.
        phase_detail: text of that phase event.
        data: the prepared data's figures; None before they are known.
        plan: predicted memory and time; None before the prediction and if nothing could be predicted.
        last_step: newest step event; None before the first step.
        steps: loss, learning rate, speed, memory and gradient norm of each optimizer step.
        evaluation_steps: step number of each evaluation.
        evaluation_losses: held-out loss of each evaluation, nats.
        bad_steps: steps whose loss was not finite or that were skipped, in order, repeated steps included.
        guard: newest verdict of the training guard.
        rollbacks: rollback events, in order.
        best: evaluation whose weights were kept, at the end of a run with early stopping.
        samples: replies to the fixed prompts, in order.
        warnings: warning events, in order.
        refused: last command if the engine refused it, else None.
        saved_step: step of the newest checkpoint; None before the first.
        ended: end event of the run's current process; None while it runs.
    """

    seq: int = -1
    started: RunStarted | None = None
    starts: int = 0
    phase: str = ""
    phase_detail: str = ""
    data: DataReady | None = None
    plan: PlanMade | None = None
    last_step: StepDone | None = None
    steps: StepHistory = field(default_factory=StepHistory)
    evaluation_steps: GrowingColumn = field(default_factory=GrowingColumn)
    evaluation_losses: GrowingColumn = field(default_factory=GrowingColumn)
    bad_steps: tuple[int, ...] = ()
    guard: GuardReported | None = None
    rollbacks: tuple[RolledBack, ...] = ()
    best: BestKept | None = None
    samples: GrowingList[SampleDone] = field(default_factory=GrowingList)
    warnings: GrowingList[Warned] = field(default_factory=GrowingList)
    refused: CommandDone | None = None
    saved_step: int | None = None
    ended: RunEnded | None = None

    @property
    def step(self) -> int:
        """The number of the last optimizer step done; 0 before the first."""
        return int(self.steps.step.last) if len(self.steps.step) else 0

    @property
    def total_steps(self) -> int:
        """The number of optimizer steps that the run will make; 0 while unknown."""
        return self.started.total_steps if self.started else 0


def fold(state: RunState, event: Event) -> RunState:
    """Return the state after one more event.

    An event that was already folded (a file read twice) changes nothing. When a run resumes from a checkpoint, the
    steps after that checkpoint are removed.
    """
    if event.seq <= state.seq:
        return state
    state = replace(state, seq=event.seq)
    after = state
    match event:
        case StepDone():
            after = _step(state, event)
        case RunStarted():
            after = _start(state, event)
        case PhaseChanged():  # the first sign of a new process: it loads before it says `run_started`
            after = replace(state, phase=event.phase, phase_detail=event.detail, ended=None)
        case EvaluationDone():
            after = _evaluation(state, event)
        case SampleDone():
            after = replace(state, samples=state.samples.append(event))
        case CheckpointSaved():
            after = replace(state, saved_step=event.step)
        case RolledBack():
            after = replace(_cut(state, event.to_step), rollbacks=(*state.rollbacks, event))
        case RunEnded():
            after = replace(state, ended=event, phase="", phase_detail="")
        case _:
            after = _note(state, event)
    return after


def _note(state: RunState, event: Event) -> RunState:
    """Fold an event that only replaces or extends one field."""
    after = state
    match event:
        case DataReady():
            after = replace(state, data=event)
        case PlanMade():
            after = replace(state, plan=event)
        case CommandDone():
            after = replace(state, refused=None if event.accepted else event)
        case Warned():
            after = replace(state, warnings=state.warnings.append(event))
        case GuardReported():
            after = replace(state, guard=event)
        case BestKept():
            after = replace(state, best=event)
    return after


def _step(state: RunState, event: StepDone) -> RunState:
    steps = state.steps.up_to(event.step - 1).append(event)  # a repeated step replaces the former one
    bad = state.bad_steps
    if _is_bad(state, event):
        bad = (*(step for step in bad if step != event.step), event.step)[-_MAX_BAD:]
    return replace(state, steps=steps, last_step=event, bad_steps=bad)


def _is_bad(state: RunState, event: StepDone) -> bool:
    """Whether a step was unusable. In fp16 a skipped step is normal: the loss scale has to be found."""
    scaled = state.started is not None and state.started.precision == "fp16"
    return not math.isfinite(event.loss) or not (math.isfinite(event.grad_norm) or scaled)


def _evaluation(state: RunState, event: EvaluationDone) -> RunState:
    kept = state.evaluation_steps.count_up_to(event.step - 1)
    return replace(
        state,
        evaluation_steps=state.evaluation_steps.cut(kept).append(event.step),
        evaluation_losses=state.evaluation_losses.cut(kept).append(event.loss),
    )


def _start(state: RunState, event: RunStarted) -> RunState:
    safe = event.resumed_from_step if event.resumed_from_step is not None else -1
    return replace(
        _cut(state, safe),
        started=event,
        starts=state.starts + 1,
        ended=None,
        best=None,
        refused=None,
        bad_steps=tuple(step for step in state.bad_steps if step <= safe),
        rollbacks=tuple(back for back in state.rollbacks if back.to_step <= safe),
        saved_step=event.resumed_from_step,
    )


def _cut(state: RunState, safe: int) -> RunState:
    """Return the state without the steps, evaluations and samples after step `safe`, where the run continues."""
    kept = state.evaluation_steps.count_up_to(safe)
    return replace(
        state,
        steps=state.steps.up_to(safe),
        evaluation_steps=state.evaluation_steps.cut(kept),
        evaluation_losses=state.evaluation_losses.cut(kept),
        samples=state.samples.keep([sample for sample in state.samples.items() if sample.step <= safe]),
        last_step=state.last_step if state.last_step and state.last_step.step <= safe else None,
    )
