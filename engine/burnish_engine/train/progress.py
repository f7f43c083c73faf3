"""Writes down what finished steps found: an event each, the state file now and then, and what the run takes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import torch

from burnish_engine.contract.events import StepDone
from burnish_engine.models.device import memory_bytes
from burnish_engine.runs.recorder import Recorder
from burnish_engine.train.engine import StepResult
from burnish_engine.train.materials import Materials
from burnish_engine.train.measure import Measure
from burnish_engine.train.spill_watch import SpillWatch

_ETA_STEPS = 20  # the step time is averaged over this many steps to predict the end
_STATE_EVERY_S = 0.5


class Progress:
    """See the module's text.

    Args:
        recorder: Where to write.
        materials: What is trained on.
        measure: What the run takes.
        device: Where it trains.
    """

    def __init__(self, recorder: Recorder, materials: Materials, measure: Measure, device: torch.device) -> None:
        self._recorder, self._materials, self._measure, self._device = recorder, materials, measure, device
        self._state_written = 0.0
        self._step_seconds: deque[float] = deque(maxlen=_ETA_STEPS)

    def follow(self, name: str, locked: Callable[[], int]) -> None:
        """From now on, steps are another engine's. It is not held on to, for it may have to make room.

        Args:
            name: Of the engine.
            locked: Gives its bytes of page-locked host memory.
        """
        self._measure.engine = name
        self._spill = SpillWatch(self._device, locked=locked)

    def step(self, result: StepResult, micro_batches: int) -> None:
        """Write a step down.

        Args:
            result: What it found.
            micro_batches: Passes of the run up to its end.
        """
        seconds, total = result.seconds, self._materials.budget.steps
        self._measure.step(result.tokens, seconds)
        if spilled := self._spill.step(seconds, result.tokens):
            self._recorder.warn("spill", spilled)
        self._step_seconds.append(seconds)
        mean_seconds = sum(self._step_seconds) / len(self._step_seconds)
        self._recorder.emit(
            StepDone(
                step=result.step,
                epoch=self._materials.stream.epoch_of(micro_batches),
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
                eta_s=mean_seconds * (total - result.step),
            )
        )
        if time.monotonic() - self._state_written > _STATE_EVERY_S or result.step == total:
            self._recorder.update(step=result.step, loss=result.loss)
            self._state_written = time.monotonic()
