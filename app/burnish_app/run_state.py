"""What is known about a run, folded from its events. Pure: no Qt, no files, no clock.

`fold` is cheap however long the run is: a state holds views into append-only columns that later states share, so adding
a step neither copies what came before nor changes what an older state shows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from burnish_app.columns import Column, Log
from burnish_engine.contract.events import (
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

_MOST_BAD = 500  # steps that are remembered as bad


@dataclass(frozen=True)
class Steps:
    """One column a quantity, one row an optimizer step; the steps rise."""

    step: Column = field(default_factory=Column)
    loss: Column = field(default_factory=Column)
    learning_rate: Column = field(default_factory=Column)
    tokens_per_s: Column = field(default_factory=Column)
    memory_bytes: Column = field(default_factory=Column)
    grad_norm: Column = field(default_factory=Column)

    def append(self, event: StepDone) -> Steps:
        """One row more."""
        return Steps(
            step=self.step.append(event.step),
            loss=self.loss.append(event.loss),
            learning_rate=self.learning_rate.append(event.learning_rate),
            tokens_per_s=self.tokens_per_s.append(event.tokens_per_s),
            memory_bytes=self.memory_bytes.append(event.held_bytes),
            grad_norm=self.grad_norm.append(event.grad_norm),
        )

    def up_to(self, step: int) -> Steps:
        """The rows of the steps not above `step`."""
        length = self.step.count_up_to(step)
        if length == len(self.step):
            return self
        return Steps(
            step=self.step.cut(length),
            loss=self.loss.cut(length),
            learning_rate=self.learning_rate.cut(length),
            tokens_per_s=self.tokens_per_s.cut(length),
            memory_bytes=self.memory_bytes.cut(length),
            grad_norm=self.grad_norm.cut(length),
        )


@dataclass(frozen=True)
class RunState:
    """What the events of a run say so far.

    Attributes:
        seq: Position of the last event counted; -1 before the first.
        started: What the engine said when it last took the run over.
        starts: How often it took it over.
        phase: What the engine does now, as in `PhaseChanged`; empty before the first.
        plan: What it was predicted to take; None before that and where nothing could be predicted.
        steps: What each optimizer step reported.
        evaluation_steps: Steps of the held-out losses.
        evaluation_losses: The held-out losses.
        bad_steps: Steps whose loss was no number or that were not taken, in order, also where they were done again.
        guard: The newest verdict on whether the run really trains.
        rollbacks: Where the run went back, in order.
        best: Which evaluation's result was kept, at the end of a run that may stop early.
        safe_step: Step of the newest checkpoint; None before the first.
        ended: How this process of the run ended; None while it goes on.
    """

    seq: int = -1
    started: RunStarted | None = None
    starts: int = 0
    phase: str = ""
    phase_detail: str = ""
    data: DataReady | None = None
    plan: PlanMade | None = None
    last_step: StepDone | None = None
    steps: Steps = field(default_factory=Steps)
    evaluation_steps: Column = field(default_factory=Column)
    evaluation_losses: Column = field(default_factory=Column)
    bad_steps: tuple[int, ...] = ()
    guard: GuardReported | None = None
    rollbacks: tuple[RolledBack, ...] = ()
    best: BestKept | None = None
    samples: Log[SampleDone] = field(default_factory=Log)
    warnings: Log[Warned] = field(default_factory=Log)
    refused: CommandDone | None = None
    safe_step: int | None = None
    ended: RunEnded | None = None

    @property
    def step(self) -> int:
        """The last optimizer step done, 0 before the first."""
        return int(self.steps.step.last) if len(self.steps.step) else 0

    @property
    def total_steps(self) -> int:
        """Optimizer steps the run will make, 0 while not known."""
        return self.started.total_steps if self.started else 0


def fold(state: RunState, event: Event) -> RunState:
    """The state after one more event.

    Events that were counted already (a file read twice) change nothing. When a run goes on from a checkpoint, the steps
    that were lost with its former process are cut off.
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
            after = replace(state, safe_step=event.step)
        case RolledBack():
            after = replace(_cut(state, event.to_step), rollbacks=(*state.rollbacks, event))
        case RunEnded():
            after = replace(state, ended=event, phase="", phase_detail="")
        case _:
            after = _note(state, event)
    return after


def _note(state: RunState, event: Event) -> RunState:
    """What is only remembered."""
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
        bad = (*(step for step in bad if step != event.step), event.step)[-_MOST_BAD:]
    return replace(state, steps=steps, last_step=event, bad_steps=bad)


def _is_bad(state: RunState, event: StepDone) -> bool:
    """Whether a step was no use. In fp16 one that was not taken is usual: the loss scale has to be found."""
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
        safe_step=event.resumed_from_step,
    )


def _cut(state: RunState, safe: int) -> RunState:
    """Without what came after a step that the run goes on from."""
    kept = state.evaluation_steps.count_up_to(safe)
    return replace(
        state,
        steps=state.steps.up_to(safe),
        evaluation_steps=state.evaluation_steps.cut(kept),
        evaluation_losses=state.evaluation_losses.cut(kept),
        samples=state.samples.keep([sample for sample in state.samples.items() if sample.step <= safe]),
        last_step=state.last_step if state.last_step and state.last_step.step <= safe else None,
    )
