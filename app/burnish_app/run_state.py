"""What is known about a run, folded from its events. Pure: no Qt, no files, no clock.

`fold` is cheap however long the run is: a state holds views into append-only columns that later states share, so adding
a step neither copies what came before nor changes what an older state shows.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from burnish_engine.contract.events import (
    CheckpointSaved,
    CommandDone,
    DataReady,
    EvaluationDone,
    Event,
    PhaseChanged,
    PlanMade,
    RunEnded,
    RunStarted,
    SampleDone,
    StepDone,
    Warned,
)

T = TypeVar("T")


class Column:
    """A growing column of numbers of which this is the first `length`. Appending gives a new view."""

    __slots__ = ("_data", "length")

    def __init__(self, data: array[float] | None = None, length: int = 0) -> None:
        self._data: array[float] = array("d") if data is None else data
        self.length = length

    def __len__(self) -> int:
        return self.length

    @property
    def last(self) -> float:
        """The newest number, NaN where there is none."""
        return self._data[self.length - 1] if self.length else math.nan

    def values(self) -> array[float]:
        """A copy of the numbers; numpy reads it without another copy."""
        return self._data[: self.length]

    def append(self, value: float) -> Column:
        """A view that is one longer. Shares the data unless another view has grown it already."""
        data = self._data if len(self._data) == self.length else self._data[: self.length]
        data.append(value)
        return Column(data, self.length + 1)

    def cut(self, length: int) -> Column:
        """A view of the first `length` numbers at most."""
        return self if length >= self.length else Column(self._data, length)

    def count_up_to(self, limit: float) -> int:
        """How many of the numbers, which rise, are not above `limit`."""
        return bisect_right(self._data, limit, 0, self.length)


class Log(Generic[T]):
    """A growing list of which this is the first `length`; as `Column`, for anything."""

    __slots__ = ("_items", "length")

    def __init__(self, items: list[T] | None = None, length: int = 0) -> None:
        self._items: list[T] = [] if items is None else items
        self.length = length

    def __len__(self) -> int:
        return self.length

    def items(self) -> list[T]:
        """A copy of the items."""
        return self._items[: self.length]

    def append(self, item: T) -> Log[T]:
        """A view that is one longer."""
        items = self._items if len(self._items) == self.length else self._items[: self.length]
        items.append(item)
        return Log(items, self.length + 1)

    def keep(self, kept: list[T]) -> Log[T]:
        """A log of these items; itself where nothing is left out."""
        return self if len(kept) == self.length else Log(kept, len(kept))


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
        bad_steps: Steps whose loss was no finite number.
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
    bad_steps: int = 0
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
    return after


def _step(state: RunState, event: StepDone) -> RunState:
    bad = 0 if math.isfinite(event.loss) else 1
    steps = state.steps.up_to(event.step - 1).append(event)  # a repeated step replaces the former one
    return replace(state, steps=steps, last_step=event, bad_steps=state.bad_steps + bad)


def _evaluation(state: RunState, event: EvaluationDone) -> RunState:
    kept = state.evaluation_steps.count_up_to(event.step - 1)
    return replace(
        state,
        evaluation_steps=state.evaluation_steps.cut(kept).append(event.step),
        evaluation_losses=state.evaluation_losses.cut(kept).append(event.loss),
    )


def _start(state: RunState, event: RunStarted) -> RunState:
    safe = event.resumed_from_step if event.resumed_from_step is not None else -1
    kept = state.evaluation_steps.count_up_to(safe)
    return replace(
        state,
        started=event,
        starts=state.starts + 1,
        ended=None,
        refused=None,
        steps=state.steps.up_to(safe),
        evaluation_steps=state.evaluation_steps.cut(kept),
        evaluation_losses=state.evaluation_losses.cut(kept),
        samples=state.samples.keep([sample for sample in state.samples.items() if sample.step <= safe]),
        safe_step=event.resumed_from_step,
        last_step=state.last_step if state.last_step and state.last_step.step <= safe else None,
    )
