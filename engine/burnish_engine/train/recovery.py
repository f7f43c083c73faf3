"""An engine that goes on with less memory where another one would end: release, the next smaller plan, the same again.

Every call of an engine is whole or leaves no trace, so what ran out of memory is simply done again. Steps that the
device still works on are taken in first, and the step that failed begins anew with its first micro-batch: nothing is
trained twice and nothing is left out.
"""

from __future__ import annotations

import gc
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import torch

from burnish_engine.contract.coverage import Coverage
from burnish_engine.data.pack import MicroBatch
from burnish_engine.data.tokenize import Document
from burnish_engine.models.device import MEMORY_ERRORS, is_out_of_memory
from burnish_engine.models.sampling import Reply
from burnish_engine.train.engine import SMALLEST, Engine, HalfUpdatedError, StepResult, Trained
from burnish_engine.train.random_state import hold_random

_Result = TypeVar("_Result")
_LOADED = "the model was loaded again, with its embeddings and head in host memory"
Tell = Callable[[str], None]
Load = Callable[[str, Path | None], Engine]


class RecoveringEngine:
    """See `Engine`. Whatever runs out of memory is done again with the next smaller plan, until there is none.

    Args:
        engine: What trains.
        device: Where.
        tell: Gets a sentence about every change of plan.
        load: Loads the model anew, for a plan that only loading can take up.

    Attributes:
        notes: See `Engine`.
    """

    def __init__(self, engine: Engine, device: torch.device, tell: Tell, load: Load | None = None) -> None:
        self.notes = engine.notes
        self._load, self._next_plan = load, ""
        self._engine, self._device, self._tell = engine, device, tell
        self._start: Callable[[int], None] | None = None  # begins anew after that many steps
        self._step = 0
        self._arrived: list[StepResult] = []
        self._put_back: Callable[[], None] | None = None

    @property
    def name(self) -> str:
        """See `Engine`."""
        return self._engine.name

    @property
    def trains(self) -> Trained:
        """See `Engine`."""
        return self._engine.trains

    @property
    def layout(self) -> str:
        """See `Engine`."""
        return self._engine.layout

    @property
    def memory_plan(self) -> str:
        """See `Engine`."""
        return self._next_plan or self._engine.memory_plan

    @property
    def loading_plan(self) -> str:
        """See `Engine`."""
        return self._engine.loading_plan

    @property
    def state_bytes(self) -> int:
        """See `Engine`."""
        return self._engine.state_bytes

    @property
    def coverage(self) -> Coverage:
        """See `Engine`."""
        return self._engine.coverage

    @property
    def locked_bytes(self) -> int:
        """See `Engine`."""
        return self._engine.locked_bytes

    def start(
        self, step: int, total_steps: int, total_micro_batches: int, source: Sequence[MicroBatch] | None = None
    ) -> None:
        """See `Engine`."""

        def start(after: int) -> None:
            self._engine.start(after, total_steps, total_micro_batches, source)

        self._start, self._step = None, step  # what was begun before is not to be gone on with
        self._arrived.clear()
        self._do("getting ready to train", lambda: start(step))
        self._start = start

    def apply(self, what: str, action: Callable[[Engine], _Result]) -> _Result:
        """Do something with the engine itself that leaves it as it was.

        Args:
            what: It, for a sentence about memory.
            action: Does it.
        """
        return self._do(what, lambda: action(self._engine))

    def queue_step(self) -> None:
        """See `Engine`.

        Raises:
            HalfUpdatedError: Memory ran out in the middle of an update and no snapshot is held. The smaller plan is
                found and told; the engine is of no more use.
        """
        self._do(f"step {self._step + 1}", lambda: self._engine.queue_step())  # noqa: PLW0108  it may be another engine
        self._step += 1

    def results(self, *, wait: bool = False) -> Iterator[StepResult]:
        """See `Engine`."""
        arrived, self._arrived = self._arrived, []
        yield from arrived
        yield from self._engine.results(wait=wait)

    def held_out_loss(self, documents: Sequence[Document], budget: int) -> tuple[float, int]:
        """See `Engine`."""
        return self._do("the evaluation", lambda: self._engine.held_out_loss(documents, budget))

    def replies(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> list[Reply]:
        """See `Engine`."""
        return self._do("the replies to the fixed prompts", lambda: self._engine.replies(prompts, max_new_tokens))

    def save_adapter(self, folder: Path) -> None:
        """See `Engine`."""

        def save() -> None:
            shutil.rmtree(folder, ignore_errors=True)  # what was written when memory ran out
            self._engine.save_adapter(folder)

        self._do("saving", save)

    def optimizer_tensors(self) -> dict[str, torch.Tensor]:
        """See `Engine`."""
        return self._do("saving", lambda: self._engine.optimizer_tensors())  # noqa: PLW0108

    def restore_optimizer(self, tensors: dict[str, torch.Tensor]) -> None:
        """See `Engine`."""
        self._do("loading the checkpoint", lambda: self._engine.restore_optimizer(tensors))

    def shrink(self) -> str:
        """See `Engine`."""
        return self._engine.shrink()

    def snapshot(self) -> Callable[[], None]:
        """See `Engine`. Until it is put back, it is also what a half-done update goes back to."""
        self._put_back = self._do("the copy of the adapter", lambda: self._engine.snapshot())  # noqa: PLW0108

        def put_back() -> None:
            self._do("putting the adapter back", self._put_held_back)
            self._put_back = None

        return put_back

    def _put_held_back(self) -> None:
        assert self._put_back is not None
        self._put_back()

    def close(self) -> None:
        """See `Engine`."""
        if hasattr(self, "_engine"):  # where loading it again failed there is none
            self._engine.close()

    def _do(self, what: str, action: Callable[[], _Result]) -> _Result:
        """Do it, with smaller and smaller plans. Once there is none, the error is raised as it came."""
        again = half = False
        while True:
            try:
                if again:
                    self._begin_again(half=half)
                return action()
            except HalfUpdatedError as error:
                half, found = True, _let_go(error)
            except MEMORY_ERRORS as error:
                if not is_out_of_memory(error):
                    raise
                found = _let_go(error)
            self._arrived += self._engine.results(wait=True)
            self._shrink(what, found, half=half)
            if half and self._put_back is None:
                raise HalfUpdatedError(str(found))
            again = True

    def _begin_again(self, *, half: bool) -> None:
        if half:
            self._put_held_back()
        if self._start is not None:
            self._start(self._step)

    def _shrink(self, what: str, error: BaseException, *, half: bool) -> None:
        """Go on to the next smaller plan that can be taken up at all."""
        while True:
            release(self._device)
            try:
                changed = self._engine.shrink()
                break
            except MEMORY_ERRORS as again:
                if not is_out_of_memory(again):
                    raise
                _let_go(again)
        if not changed:
            changed = self._load_smaller(error, half=half and self._put_back is None)
        release(self._device)
        self._tell(f"Memory ran out in {what} ({in_short(error)}). It is done again with less memory: {changed}.")

    def _load_smaller(self, error: BaseException, *, half: bool) -> str:
        """Take up what only loading can; says what is done otherwise then. With half an update, others load."""
        plan = self._engine.loading_plan
        if not plan or self._load is None:
            raise error
        if half:
            self._next_plan = plan
            return _LOADED
        snapshot = self._put_back is not None
        if self._put_back is not None:
            self._put_back()
            self._put_back = None  # it holds the engine, which has to go before another is loaded
        put_random_back = hold_random(self._device)
        with tempfile.TemporaryDirectory(prefix="burnish-") as folder:
            trained = Path(folder) / "trained"
            self._engine.save_adapter(trained)
            state = self._engine.optimizer_tensors()
            self._engine.close()
            del self._engine
            release(self._device)
            self._engine = self._load(plan, trained)
            self._engine.notes = self.notes  # those of loading were told before
        self._engine.restore_optimizer(state)
        put_random_back()
        if snapshot:
            self._put_back = self._engine.snapshot()
        return _LOADED


def load_recovering(
    load: Load, plan: str, device: torch.device, tell: Tell, trained: Path | None = None
) -> RecoveringEngine:
    """Load a model; where memory does not suffice for it, once more with the smallest plan.

    Args:
        load: Loads it with a plan and what was trained so far, if anything was.
        plan: To begin with; empty for as the engine chooses.
        device: Where to.
        tell: Gets a sentence about every change of plan, here and later.
        trained: Folder of what was trained so far.
    """
    try:
        return RecoveringEngine(load(plan, trained), device, tell, load)
    except MEMORY_ERRORS as error:
        if not is_out_of_memory(error) or plan == SMALLEST:
            raise
        found = _let_go(error)
    release(device)
    tell(f"Memory ran out in loading the model ({in_short(found)}). It is loaded again with the smallest plan.")
    return RecoveringEngine(load(SMALLEST, trained), device, tell, load)


def release(device: torch.device) -> None:
    """Give back what nothing uses any more."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def in_short(error: BaseException) -> str:
    """What was found, without the allocator's advice."""
    return str(error).split(". ", maxsplit=1)[0].strip() or type(error).__name__


def _let_go(error: BaseException) -> BaseException:
    """The error that ran out of memory, without the frames on its way: their variables hold tensors.

    What they were stays as a note, for the log.
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
