"""Count what a run has done, and record its finished steps: events, the state file, measurements, the memory plan."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field

import torch
from pydantic import ValidationError

from burnish_engine.contract.recipe.memory_plan import MemoryPlan
from burnish_engine.contract.run.events import LayersPlaced, StepDone
from burnish_engine.contract.smoothing import default_window, newest_mean
from burnish_engine.models.device.device import memory_bytes
from burnish_engine.runs.recorder import Recorder
from burnish_engine.train.base.engine import EngineFacts, StepResult
from burnish_engine.train.lifecycle.checkpoint import Position
from burnish_engine.train.lifecycle.inputs import RunInputs
from burnish_engine.train.lifecycle.measure import Measure, ProcessorShare
from burnish_engine.train.lifecycle.spill_watch import SpillWatch
from burnish_engine.train.lifecycle.time_left import TimeLeft

_STATE_EVERY_S = 0.5


@dataclass
class Tally:
    """Counts and measurements of a run.

    They exist before the session, so that the event of a run's end has them even where the session could not be opened.

    Attributes:
        step: optimizer steps made.
        micro_batches: micro-batches of the steps whose results have arrived.
        tokens: real tokens of these.
        saved_step: steps in the newest checkpoint of the loaded engine; -1 where it has none.
        saved_at: when that was written or loaded, on the monotonic clock; where it has none, when the run began here.
        held: function that reads how many bytes of the GPU the process holds; it was made before the process used it.
            None: the CPU trains.
        measure: measurements of memory and speed; None before the run is set up.
    """

    step: int = 0
    micro_batches: int = 0
    tokens: int = 0
    saved_step: int = -1
    saved_at: float = field(default_factory=time.monotonic)
    held: Callable[[], int | None] | None = None
    measure: Measure | None = None

    def go_to(self, position: Position | None) -> None:
        """Continue from the counts of a checkpoint; None: from the beginning."""
        self.step = position.step if position else 0
        self.micro_batches = position.micro_batches if position else 0
        self.tokens = position.tokens if position else 0
        self.saved(position.step if position else -1)

    def saved(self, step: int) -> None:
        """Note that the newest checkpoint is the one of this step; -1: there is none."""
        self.saved_step, self.saved_at = step, time.monotonic()


class StepRecorder:
    """Records finished steps.

    Args:
        recorder: recorder of events and state.
        inputs: inputs of the run.
        measure: measurements of the run.
        device: device to train on.
        left: prediction of the time to the end.
    """

    def __init__(
        self, recorder: Recorder, inputs: RunInputs, measure: Measure, device: torch.device, left: TimeLeft
    ) -> None:
        self._recorder, self._inputs, self._measure, self._device = recorder, inputs, measure, device
        self._state_written = 0.0
        self._window = default_window(inputs.budget.steps)
        self._losses: deque[float] = deque(maxlen=2 * self._window)
        self._left = left
        self._told = ""
        recorder.observe(left.observe)
        measure.took = lambda: left.took
        self._processor = ProcessorShare() if device.type == "cpu" else None

    def follow(self, facts: Callable[[], EngineFacts]) -> None:
        """Switch to the steps of another engine, whose present facts a function returns."""

        def locked() -> int:
            return facts().locked_bytes

        self._facts = facts
        self._measure.engine, self._measure.locked = facts().name, locked
        self._spill = SpillWatch(self._device, locked=locked)

    def tell_plan(self) -> None:
        """Record where layers keep what they need, unless nothing changed or the engine has no such plan."""
        text = self._facts().memory_plan
        if text == self._told:
            return
        self._told = text
        with suppress(ValidationError):  # the plain engine's is a word
            plan = MemoryPlan.model_validate_json(text)
            self._recorder.emit(LayersPlaced(activations=plan.text, weights=plan.weights_text))

    def step(self, result: StepResult, micro_batches: int) -> None:
        """Record a step.

        Args:
            result: result of the step.
            micro_batches: micro-batches of the run up to the end of the step.
        """
        self.tell_plan()
        seconds, total = result.seconds, self._inputs.budget.steps
        self._measure.step(result.tokens, seconds)
        if spilled := self._spill.step(seconds, result.tokens):
            self._recorder.warn("spill", spilled)
        self._losses.append(result.loss)
        left_s = self._left.after(result.step, seconds)
        self._recorder.emit(
            StepDone(
                step=result.step,
                epoch=self._inputs.stream.epoch_of(micro_batches),
                loss=result.loss,
                learning_rate=result.learning_rate,
                grad_norm=result.grad_norm,
                tokens=result.tokens,
                supervised_tokens=result.supervised,
                tokens_per_s=result.tokens / seconds,
                supervised_tokens_per_s=result.supervised / seconds,
                step_s=seconds,
                memory_bytes=memory_bytes(self._device),
                process_bytes=self._measure.process_bytes,
                cpu_share=self._processor.since_last() if self._processor else None,
                eta_s=left_s,
                **(asdict(result.preference) if result.preference else {}),
            )
        )
        if time.monotonic() - self._state_written > _STATE_EVERY_S or result.step == total:
            # The figure that the page Train shows, so that a run has one loss.
            loss = newest_mean(list(self._losses), self._window) if math.isfinite(result.loss) else result.loss
            is_told = self._inputs.rollouts is None  # what is learned from rewards has a loss that says nothing
            self._recorder.predict(left_s, seconds, step=result.step, loss=loss if is_told else None)
            self._state_written = time.monotonic()
