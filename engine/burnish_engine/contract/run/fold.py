"""Fold a run's events into an immutable `RunState`: the one reading of events for window, command line and duel.

Pure: no files, no clock. `fold` costs the same however long the run is: a state holds views into append-only columns
that later states share, so adding a step neither copies earlier rows nor changes an older state.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Self, TypeVar

from burnish_engine.contract.facts.task_score import TaskChange
from burnish_engine.contract.run.columns import GrowingColumn, GrowingList, numbers, whole_numbers
from burnish_engine.contract.run.events import (
    BestKept,
    CheckpointSaved,
    CommandDone,
    DataReady,
    EvaluationDone,
    Event,
    ExchangeMeasured,
    GeneralTextDone,
    GuardReported,
    HeldOutPairsDone,
    LayersPlaced,
    PhaseChanged,
    PhaseProgress,
    PlanMade,
    RewardsGiven,
    RolledBack,
    RunEnded,
    RunStarted,
    SampleDone,
    StepDone,
    TaskScored,
    Warned,
)
from burnish_engine.contract.run.forgetting import Forgetting

_NEWEST = {
    "data_ready": "data",
    "layers": "layers",
    "exchange": "exchange",
    "progress": "progress",
    "guard": "guard",
    "best_kept": "best",
}
"""Fields that hold the newest event of a type."""
_MEASURES = {"general_text": "general_text", "held_out_pairs": "pair_measures", "task_score": "task_scores"}
"""Fields that hold all events of a type by step."""
_Measured = TypeVar("_Measured", GeneralTextDone, HeldOutPairsDone, TaskScored)
_MAX_BAD = 500  # steps that are remembered as bad


@dataclass(frozen=True)
class _History:
    """Columns of equal length with one row per event of a kind; step numbers rise.

    A column has the name of the event's attribute that it holds; a figure that an event does not have is not a number.
    """

    step: GrowingColumn[int] = field(default_factory=whole_numbers)
    margin: GrowingColumn[float] = field(default_factory=numbers)
    accuracy: GrowingColumn[float] = field(default_factory=numbers)
    chosen_log_prob: GrowingColumn[float] = field(default_factory=numbers)
    rejected_log_prob: GrowingColumn[float] = field(default_factory=numbers)
    preference_loss: GrowingColumn[float] = field(default_factory=numbers)
    sft_loss: GrowingColumn[float] = field(default_factory=numbers)
    kl: GrowingColumn[float] = field(default_factory=numbers)

    def __len__(self) -> int:
        return len(self.step)

    def add(self, event: StepDone | EvaluationDone) -> Self:
        """Return the history with one more row; it replaces the former row of its step, and those of later steps."""
        kept = vars(self.up_to(event.step - 1))
        row = {name: getattr(event, name) for name in kept}
        return type(self)(
            **{name: column.append(math.nan if row[name] is None else row[name]) for name, column in kept.items()}
        )

    def up_to(self, step: int) -> Self:
        """Return the rows whose step number is at most `step`."""
        length = self.step.count_up_to(step)
        if length == len(self):
            return self
        return type(self)(**{name: column.cut(length) for name, column in vars(self).items()})


@dataclass(frozen=True)
class StepHistory(_History):
    """The history of the optimizer steps. `StepDone` describes the columns."""

    t: GrowingColumn[float] = field(default_factory=numbers)
    loss: GrowingColumn[float] = field(default_factory=numbers)
    learning_rate: GrowingColumn[float] = field(default_factory=numbers)
    grad_norm: GrowingColumn[float] = field(default_factory=numbers)
    tokens: GrowingColumn[int] = field(default_factory=whole_numbers)
    supervised_tokens: GrowingColumn[int] = field(default_factory=whole_numbers)
    tokens_per_s: GrowingColumn[float] = field(default_factory=numbers)
    step_s: GrowingColumn[float] = field(default_factory=numbers)
    held_bytes: GrowingColumn[int] = field(default_factory=whole_numbers)


@dataclass(frozen=True)
class EvaluationHistory(_History):
    """The history of the evaluations on held-out rows. `EvaluationDone` describes the columns."""

    loss: GrowingColumn[float] = field(default_factory=numbers)
    tokens: GrowingColumn[int] = field(default_factory=whole_numbers)
    kl_to_base: GrowingColumn[float] = field(default_factory=numbers)


@dataclass(frozen=True)
class RunState:
    """The state of a run after the events seen so far.

    What was made after the checkpoint from which the run resumed, or to which it rolled back, does not count any more:
    it is in none of the steps, evaluations, checkpoints and samples.

    Attributes:
        seq: sequence number of the last folded event; -1 before the first.
        starts: `run_started` events, in order: one for each time that an engine began.
        begins: step after which each engine began, of those engines whose steps count; rising, from 0.
        phase: current phase of the engine, as in `PhaseChanged`; empty before the first.
        phase_detail: text of that phase event.
        progress: how far the phase is; None where it does not say.
        beginnings: phase events of the present process up to its first step, in order.
        since_step: phase events since the newest step, in order.
        data: the prepared data's figures; None before they are known.
        plan: predicted memory and time; None before the prediction and if nothing could be predicted.
        layers: where layers keep weights and activations; None before it is known, and on the plain engine.
        exchange: time of one exchange of gradients; None before it is known, and where one process trains.
        peak_bytes: peak of what the process holds of the device, bytes, since the prediction; 0 before a step.
        last_step: newest step event; None before the first step.
        steps: figures of each optimizer step.
        evaluations: held-out loss of each evaluation.
        general_text: measurements of the loss on general text; their steps rise.
        pair_measures: measurements of the held-out pairs; their steps rise.
        task_scores: scores of replies to held-out rows; their steps rise.
        bad_steps: steps whose loss was not finite or that were skipped, in order, repeated steps included.
        guard: newest verdict of the training guard.
        rollbacks: rollback events, in order.
        best: evaluation whose weights were kept, at the end of a run with early stopping.
        samples: replies to the fixed prompts, in order.
        rewards: rewards of the replies that the model wrote to learn from, in order.
        warnings: warning events, in order.
        refused: last command if the engine refused it, else None.
        saved_step: step of the newest checkpoint; None before the first.
        checkpoints: step of each checkpoint that was saved, rising; a later one may have replaced it on disk.
        ended: end event of the run's current process; None while it runs.
    """

    seq: int = -1
    starts: tuple[RunStarted, ...] = ()
    begins: tuple[int, ...] = (0,)
    phase: str = ""
    phase_detail: str = ""
    progress: PhaseProgress | None = None
    beginnings: tuple[PhaseChanged, ...] = ()
    since_step: tuple[PhaseChanged, ...] = ()
    data: DataReady | None = None
    plan: PlanMade | None = None
    layers: LayersPlaced | None = None
    exchange: ExchangeMeasured | None = None
    peak_bytes: int = 0
    last_step: StepDone | None = None
    steps: StepHistory = field(default_factory=StepHistory)
    evaluations: EvaluationHistory = field(default_factory=EvaluationHistory)
    general_text: tuple[GeneralTextDone, ...] = ()
    pair_measures: tuple[HeldOutPairsDone, ...] = ()
    task_scores: tuple[TaskScored, ...] = ()
    bad_steps: tuple[int, ...] = ()
    guard: GuardReported | None = None
    rollbacks: tuple[RolledBack, ...] = ()
    best: BestKept | None = None
    samples: GrowingList[SampleDone] = field(default_factory=GrowingList)
    rewards: GrowingList[RewardsGiven] = field(default_factory=GrowingList)
    warnings: GrowingList[Warned] = field(default_factory=GrowingList)
    refused: CommandDone | None = None
    saved_step: int | None = None
    checkpoints: GrowingColumn[int] = field(default_factory=whole_numbers)
    ended: RunEnded | None = None

    @property
    def started(self) -> RunStarted | None:
        """The latest `run_started` event; None before the first."""
        return self.starts[-1] if self.starts else None

    @property
    def processes(self) -> int:
        """The number of processes that the run had; an engine also begins anew in the same process."""
        return len({_process(start) for start in self.starts})

    @property
    def step(self) -> int:
        """The number of the last optimizer step done; 0 before the first."""
        return self.steps.step.last or 0

    @property
    def result(self) -> tuple[int, float] | None:
        """The step of the run's result so far and its held-out loss, nats; None before the first evaluation.

        The result is the last evaluated step, or the best one where early stopping kept that.
        """
        if self.best is not None:
            return self.best.step, self.best.loss
        step, loss = self.evaluations.step.last, self.evaluations.loss.last
        return None if step is None or loss is None else (step, loss)

    def of_result(self, column: GrowingColumn[float]) -> float | None:
        """Return a figure of the evaluation that measured the run's result; None where it has none.

        Args:
            column: column of `evaluations`.
        """
        steps, step = self.evaluations.step, self.result[0] if self.result else -1
        place = steps.count_up_to(step) - 1
        if place < 0 or steps.values()[place] != step:
            return None
        value = column.values()[place]
        return value if math.isfinite(value) else None

    @property
    def held_out_pairs(self) -> HeldOutPairsDone | None:
        """The measurement of the held-out pairs with the run's result; None where there is none."""
        return next((one for one in self.pair_measures if one.step == self._at), None)

    @property
    def forgetting(self) -> Forgetting | None:
        """The loss on general text before training and of the result; None where one of them was not measured."""
        at = self._at
        found = {one.step: one for one in self.general_text}
        if not at or 0 not in found or at not in found:
            return None
        return Forgetting(before=found[0].loss, after=found[at].loss, tokens=found[at].tokens)

    @property
    def _at(self) -> int:
        """The step whose weights are the run's result so far: the one kept by early stopping, or the last one."""
        return self.best.step if self.best is not None else self.step

    @property
    def task(self) -> TaskChange | None:
        """The score of the task before training and of the result; None where one of them was not measured."""
        found, at = {one.step: one.score for one in self.task_scores}, self._at
        return TaskChange(before=found[0], after=found[at]) if at and 0 in found and at in found else None

    @property
    def highest_bytes(self) -> int:
        """Peak of what the process holds of the device over the whole run, bytes; 0 before a step."""
        return max([self.peak_bytes, *self.steps.held_bytes.values()])

    @property
    def total_steps(self) -> int:
        """The number of optimizer steps that the run will make; 0 while unknown."""
        return self.started.total_steps if self.started else 0


def fold(state: RunState, event: Event) -> RunState:
    """Return the state after one more event.

    An event that was already folded (a file read twice) changes nothing. When a run resumes from a checkpoint or rolls
    back to one, the steps after that checkpoint are removed.
    """
    if event.seq <= state.seq:
        return state
    return replace(state, seq=event.seq, **_changes(state, event))


def fold_all(state: RunState, events: Iterable[Event]) -> RunState:
    """Return the state after several more events."""
    return reduce(fold, events, state)


def _changes(state: RunState, event: Event) -> dict[str, Any]:
    """Return the new values of the fields that an event changes."""
    match event:
        case StepDone():
            return _step(state, event)
        case RunStarted():
            return _start(state, event)
        case PhaseChanged():  # the first sign of a new process: it loads before it says `run_started`
            return {
                "phase": event.phase,
                "since_step": (*state.since_step, event),
                "phase_detail": event.detail,
                "progress": None,
                "ended": None,
                "beginnings": _beginnings(state, event),
                **({"exchange": None} if event.phase == "loading" else {}),  # on other GPUs, or on one
            }
        case EvaluationDone():
            return {"evaluations": state.evaluations.add(event)}
        case SampleDone() | RewardsGiven():
            name = "samples" if isinstance(event, SampleDone) else "rewards"
            return {name: getattr(state, name).append(event)}
        case RolledBack():
            return {**_cut(state, event.to_step), "rollbacks": (*state.rollbacks, event)}
        case RunEnded():
            peak = max(state.peak_bytes, event.measured.process_bytes if event.measured else 0)
            return {"ended": event, "phase": "", "phase_detail": "", "progress": None, "peak_bytes": peak}
        case _:
            return _note(state, event)


def _beginnings(state: RunState, event: PhaseChanged) -> tuple[PhaseChanged, ...]:
    """Return the phases up to the first step. Loading begins anew; after a step nothing is added."""
    if event.phase == "loading":
        return (event,)
    if state.last_step is not None and state.beginnings and state.last_step.t >= state.beginnings[0].t:
        return state.beginnings
    return (*state.beginnings, event)


def _note(state: RunState, event: Event) -> dict[str, Any]:
    match event:
        case DataReady() | LayersPlaced() | ExchangeMeasured() | PhaseProgress() | GuardReported() | BestKept():
            return {_NEWEST[event.type]: event}
        case GeneralTextDone() | HeldOutPairsDone() | TaskScored():
            name = _MEASURES[event.type]
            return {name: (*_up_to(getattr(state, name), event.step - 1), event)}
        case PlanMade():
            return {"plan": event, "peak_bytes": 0}
        case CheckpointSaved():
            earlier = state.checkpoints.cut(state.checkpoints.count_up_to(event.step - 1))
            return {"saved_step": event.step, "checkpoints": earlier.append(event.step)}
        case CommandDone():
            return {"refused": None if event.accepted else event}
        case Warned():
            return {"warnings": state.warnings.append(event)}
        case _:
            return {}


def _step(state: RunState, event: StepDone) -> dict[str, Any]:
    bad = state.bad_steps
    if _is_bad(state, event):
        bad = (*(step for step in bad if step != event.step), event.step)[-_MAX_BAD:]
    peak = max(state.peak_bytes, event.held_bytes)
    return {"steps": state.steps.add(event), "last_step": event, "since_step": (), "peak_bytes": peak, "bad_steps": bad}


def _is_bad(state: RunState, event: StepDone) -> bool:
    """Whether a step was unusable. In fp16 a skipped step is normal: the loss scale has to be found."""
    scaled = state.started is not None and state.started.precision == "fp16"
    return not math.isfinite(event.loss) or not (math.isfinite(event.grad_norm) or scaled)


def _start(state: RunState, event: RunStarted) -> dict[str, Any]:
    safe = event.resumed_from_step
    if safe is None:  # a new process evaluates the untrained model again, a rollback to the beginning does not
        safe = 0 if state.started and _process(event) == _process(state.started) else -1
    return {
        **_cut(state, safe),
        "starts": (*state.starts, event),
        "ended": None,
        "best": None,
        "refused": None,
        "bad_steps": tuple(step for step in state.bad_steps if step <= safe),
        "rollbacks": tuple(back for back in state.rollbacks if back.to_step <= safe),
        "saved_step": event.resumed_from_step,
    }


def _process(start: RunStarted) -> tuple[int, float]:
    return start.pid, start.process_created


def _cut(state: RunState, safe: int) -> dict[str, Any]:
    """Return the fields without the steps, evaluations and so on after step `safe`, where the run continues."""
    return {
        "begins": (*(begin for begin in state.begins if begin < safe), max(safe, 0)),
        "steps": state.steps.up_to(safe),
        "evaluations": state.evaluations.up_to(safe),
        **{name: _up_to(getattr(state, name), safe) for name in _MEASURES.values()},
        "checkpoints": state.checkpoints.cut(state.checkpoints.count_up_to(safe)),
        "samples": state.samples.keep([sample for sample in state.samples.items() if sample.step <= safe]),
        "rewards": state.rewards.keep([given for given in state.rewards.items() if given.step <= safe]),
        "last_step": state.last_step if state.last_step and state.last_step.step <= safe else None,
    }


def _up_to(measured: tuple[_Measured, ...], step: int) -> tuple[_Measured, ...]:
    return tuple(one for one in measured if one.step <= step)
