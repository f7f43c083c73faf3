"""An engine wrapper that survives running out of memory: it frees memory, adopts a smaller plan, and tries again.

Every call of an engine is whole or leaves no trace, so a call that ran out of memory is simply repeated. The results of
queued steps are collected first, and the failed step starts again with its first micro-batch: nothing is trained twice
and nothing is left out.
"""

from __future__ import annotations

import gc
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import override

from burnish_engine.data.tokens.pack import MicroBatch
from burnish_engine.models.device.device import MEMORY_ERRORS, is_out_of_memory
from burnish_engine.models.generation.sampling import GeneratedReply, Sampling
from burnish_engine.train.base.engine import (
    SMALLEST,
    Engine,
    EngineFacts,
    EvaluationRequest,
    HalfUpdatedError,
    StepResult,
)
from burnish_engine.train.base.random_state import snapshot_random_state

_Result = TypeVar("_Result")
_LOADED = "the model was loaded again, with more of its weights in host memory"
Notify = Callable[[str], None]
Load = Callable[[str, Path | None], Engine]


class RecoveringEngine(Engine):
    """Engine that repeats a call that ran out of memory with the next smaller plan, until there is none.

    Args:
        engine: wrapped engine.
        device: device of the engine.
        notify: function that receives a sentence about every change of plan.
        load: function that loads the model again, for a plan that takes effect only on loading.
    """

    def __init__(self, engine: Engine, device: torch.device, notify: Notify, load: Load | None = None) -> None:
        self.notes = engine.notes
        self._load, self._next_plan = load, ""
        self._engines = [engine]  # none between two: the first is freed before the second is loaded
        self._device, self._notify = device, notify
        self._start: Callable[[int], None] | None = None  # begins anew after that many steps
        self._step = 0
        self._arrived: list[StepResult] = []
        self._restore_held: Callable[[], None] | None = None

    @property
    def _engine(self) -> Engine:
        return self._engines[0]

    @property
    @override
    def facts(self) -> EngineFacts:
        facts = self._engine.facts
        return replace(facts, memory_plan=self._next_plan) if self._next_plan else facts

    @property
    @override
    def loading_plan(self) -> str:
        return self._engine.loading_plan

    @override
    def start(
        self, step: int, total_steps: int, total_micro_batches: int, source: Sequence[MicroBatch] | None = None
    ) -> None:
        def start(after: int) -> None:
            self._engine.start(after, total_steps, total_micro_batches, source)

        self._start, self._step = None, step  # a retry of this call must not start what was trained before
        self._arrived.clear()
        self._retry("getting ready to train", lambda: start(step))
        self._start = start

    def apply(self, what: str, action: Callable[[Engine], _Result]) -> _Result:
        """Run an action on the wrapped engine that leaves it as it was.

        Args:
            what: name of the action, for a sentence about memory.
            action: function of the engine.
        """
        return self._retry(what, lambda: action(self._engine))

    def queue_step(self) -> None:
        """Run or queue the next optimizer step.

        Raises:
            HalfUpdatedError: Memory ran out in the middle of an update and no snapshot is held. The smaller plan is
                chosen and reported; the engine is of no more use.
        """
        self._retry(f"step {self._step + 1}", lambda: self._engine.queue_step())  # noqa: PLW0108  it may be another engine
        self._step += 1

    @override
    def results(self, *, wait: bool = False) -> Iterator[StepResult]:
        arrived, self._arrived = self._arrived, []
        yield from arrived
        yield from self._engine.results(wait=wait)

    @override
    def held_out_loss(self, request: EvaluationRequest) -> tuple[float, int]:
        return self._retry("the evaluation", lambda: self._engine.held_out_loss(request))

    @override
    def log_probs(self, request: EvaluationRequest, adapter: Path | bool = True) -> npt.NDArray[np.float32]:
        return self._retry("the log-probabilities of replies", lambda: self._engine.log_probs(request, adapter))

    @override
    def token_log_probs(self, request: EvaluationRequest, adapter: Path | bool = True) -> list[npt.NDArray[np.float32]]:
        what = "the log-probabilities of tokens"
        return self._retry(what, lambda: self._engine.token_log_probs(request, adapter))

    @override
    def kl_to_base(self, request: EvaluationRequest) -> float | None:
        return self._retry("the divergence from the base", lambda: self._engine.kl_to_base(request))

    @property
    @override
    def replies_are_paged(self) -> bool:
        return self._engine.replies_are_paged

    @override
    def replies(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, samplings: Sequence[Sampling] = ()
    ) -> list[GeneratedReply]:
        return self._retry("the replies", lambda: self._engine.replies(prompts, max_new_tokens, samplings))

    @override
    def save_adapter(self, folder: Path) -> None:
        def save() -> None:
            shutil.rmtree(folder, ignore_errors=True)  # what was written when memory ran out
            self._engine.save_adapter(folder)

        self._retry("saving", save)

    @override
    def optimizer_tensors(self) -> dict[str, torch.Tensor]:
        return self._retry("saving", lambda: self._engine.optimizer_tensors())  # noqa: PLW0108

    @override
    def restore_optimizer(self, tensors: dict[str, torch.Tensor]) -> None:
        self._retry("loading the checkpoint", lambda: self._engine.restore_optimizer(tensors))

    @override
    def shrink(self) -> str:
        """Adopt the next smaller plan between two steps and continue with it: the same numbers with less memory.

        Returns:
            Half a sentence on the change; empty where no plan is smaller.
        """
        self._arrived += self._engine.results(wait=True)
        changed = self._adopt_smaller()
        if not changed:
            if not self._engine.loading_plan or self._load is None:
                return ""
            changed = self._load_smaller(MemoryError("a smaller plan was asked for"), half=False)
        release(self._device)
        self._retry("getting ready with a smaller plan", lambda: self._begin_again(half=False))
        self._notify(f"As asked, the run continues with less memory: {changed}.")
        return changed

    def snapshot(self) -> Callable[[], None]:
        """Copy the state to host memory; until it is restored, an update that broke off half-way returns to it too."""
        self._restore_held = self._retry("the copy of the adapter", lambda: self._engine.snapshot())  # noqa: PLW0108

        def put_back() -> None:
            self._retry("putting the adapter back", self._restore_snapshot)
            self._restore_held = None

        return put_back

    def _restore_snapshot(self) -> None:
        assert self._restore_held is not None
        self._restore_held()

    @override
    def close(self) -> None:
        for engine in self._engines:
            engine.close()

    def unload(self) -> None:
        """Close the wrapped engine and free its memory. Nothing but `close` may be called afterwards."""
        self.close()
        self._engines.clear()
        release(self._device)

    def _retry(self, what: str, action: Callable[[], _Result]) -> _Result:
        """Run an action with smaller and smaller plans; raise the original error once there is none."""
        again = half = False
        while True:
            try:
                if again:
                    self._begin_again(half=half)
                return action()
            except HalfUpdatedError as error:
                half, found = True, _drop_frames(error)
            except MEMORY_ERRORS as error:
                if not is_out_of_memory(error):
                    raise
                found = _drop_frames(error)
            self._arrived += self._engine.results(wait=True)
            self._shrink(what, found, half=half)
            if half and self._restore_held is None:
                raise HalfUpdatedError(str(found))
            again = True

    def _begin_again(self, *, half: bool) -> None:
        if half:
            self._restore_snapshot()
        if self._start is not None:
            self._start(self._step)

    def _shrink(self, what: str, error: BaseException, *, half: bool) -> None:
        """Adopt the next smaller plan, or load the model again with one."""
        changed = self._adopt_smaller() or self._load_smaller(error, half=half and self._restore_held is None)
        release(self._device)
        self._notify(
            f"Memory ran out in {what} ({short_message(error)}). It is done again with less memory: {changed}."
        )

    def _adopt_smaller(self) -> str:
        """Adopt the next smaller plan that does not run out of memory itself; empty where there is none."""
        while True:
            release(self._device)
            try:
                return self._engine.shrink()
            except MEMORY_ERRORS as again:
                if not is_out_of_memory(again):
                    raise
                _drop_frames(again)

    def _load_smaller(self, error: BaseException, *, half: bool) -> str:
        """Adopt a plan that takes effect on loading, and describe it; after half an update the session loads it."""
        plan = self._engine.loading_plan
        if not plan or self._load is None:
            raise error
        if half:
            self._next_plan = plan
            return _LOADED
        snapshot = self._restore_held is not None
        if self._restore_held is not None:
            self._restore_held()
            self._restore_held = None  # it holds the engine, which has to go before another is loaded
        put_random_back = snapshot_random_state(self._device)
        with tempfile.TemporaryDirectory(prefix="burnish-") as folder:
            trained = Path(folder) / "trained"
            self._engine.save_adapter(trained)
            state = self._engine.optimizer_tensors()
            self.unload()
            self._engines.append(self._load(plan, trained))
            self._engine.notes = self.notes  # the notes of loading were shown before
        self._engine.restore_optimizer(state)
        put_random_back()
        if snapshot:
            self._restore_held = self._engine.snapshot()
        return _LOADED


def load_recovering(
    load: Load, plan: str, device: torch.device, notify: Notify, trained: Path | None = None
) -> RecoveringEngine:
    """Load a model; where memory does not suffice, load it again with the smallest plan.

    Args:
        load: function that loads the model with a plan and the folder of the weights trained so far, if any.
        plan: first plan to try; empty leaves the choice to the engine.
        device: device to load to.
        notify: function that receives a sentence about every change of plan, here and later.
        trained: folder of the weights trained so far; None where there is none.
    """
    try:
        return RecoveringEngine(load(plan, trained), device, notify, load)
    except MEMORY_ERRORS as error:
        if not is_out_of_memory(error) or plan == SMALLEST:
            raise
        found = _drop_frames(error)
    release(device)
    notify(f"Memory ran out in loading the model ({short_message(found)}). It is loaded again with the smallest plan.")
    return RecoveringEngine(load(SMALLEST, trained), device, notify, load)


def release(device: torch.device) -> None:
    """Collect garbage and return torch's unused device memory."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def short_message(error: BaseException) -> str:
    """Return an error's message without the allocator's advice."""
    return str(error).split(". ", maxsplit=1)[0].strip() or type(error).__name__


def _drop_frames(error: BaseException) -> BaseException:
    """Return the out-of-memory error without its frames, whose variables hold tensors.

    The traceback stays as a note, for the log.
    """
    text = "".join(traceback.format_exception(error))
    cause = error.__cause__ if isinstance(error, HalfUpdatedError) and error.__cause__ else error
    at: BaseException | None = error
    while at is not None:
        traceback.clear_frames(at.__traceback__)
        at.__traceback__ = None
        at = at.__cause__ or at.__context__
    cause.__context__ = None
    cause.add_note(text)
    return cause
