"""Write events, state and heartbeat for the engine process that owns a run."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from burnish_engine.contract.errors import NoSpaceError
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.events import (
    EvaluationDone,
    Event,
    Phase,
    PhaseChanged,
    PhaseProgress,
    PlanMade,
    ProgressUnit,
    RewardsGiven,
    RunEnded,
    Warned,
)
from burnish_engine.runs.events_file import EventWriter
from burnish_engine.runs.process import own_identity
from burnish_engine.runs.store import read_state, write_state

HEARTBEAT_S = 2.0
PROGRESS_S = 1.0
Listener = Callable[[Event], None]


class Recorder:
    """Write a run's events and state, with a heartbeat from a thread that tells a hang from a crash.

    Args:
        paths: paths of the run folder, which this process must own.
        listener: callback given every event after it was written, on the caller's thread.

    Attributes:
        plan: predicted cost of the run; None until that is known.
    """

    def __init__(self, paths: RunPaths, listener: Listener | None = None) -> None:
        self._paths = paths
        self._listener = listener
        self._observers: list[Listener] = []
        self.plan: PlanMade | None = None
        self._told = time.monotonic()
        self._due = math.inf, 0.0
        self._lock = threading.Lock()
        self._events = EventWriter(paths.events)
        pid, created = own_identity()
        self._state = read_state(paths).model_copy(
            update={
                "pid": pid,
                "process_created": created,
                "status": "running",
                "exit_code": None,
                "message": "",
                "heartbeat": time.time(),
            }
        )
        write_state(paths, self._state)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._thread.start()

    def emit(self, event: Event) -> None:
        """Append an event, then call the listener."""
        if isinstance(event, PlanMade):
            self.plan = event
            self.predict(event.run_s, 0.0)
        if isinstance(event, EvaluationDone) and event.accuracy is not None:
            self.update(accuracy=event.accuracy, margin=event.margin)
        if isinstance(event, RewardsGiven):
            self.update(reward=event.reward if math.isfinite(event.reward) else None)
        written = self._events.write(event)
        for observe in self._observers:
            observe(written)
        self._notify(written)

    def observe(self, observer: Listener) -> None:
        """Call a function of the run itself with every event from here on, before the listener."""
        self._observers.append(observer)

    @property
    def current_phase(self) -> Phase:
        """The phase that was recorded last; "training" where there is none yet."""
        return cast("Phase", self._state.phase or "training")

    def phase(self, phase: Phase, detail: str = "") -> None:
        """Record the current phase of the run."""
        self._told = time.monotonic()
        self.emit(PhaseChanged(phase=phase, detail=detail))
        self.update(phase=phase)

    def progress(self, done: int, total: int, unit: ProgressUnit = "rows") -> None:
        """Record how far the phase is, once a second at most: a short phase says nothing."""
        if time.monotonic() - self._told >= PROGRESS_S:
            self._told = time.monotonic()
            self.emit(PhaseProgress(done=done, total=total, unit=unit))

    def check(self, done: int, total: int, name: str) -> None:
        """Record that a check of the guard begins, each at once: any of them may be the long one."""
        self.emit(PhaseProgress(done=done, total=total, unit="checks", what=name))

    def warn(self, code: str, message: str) -> None:
        """Record a warning for the person."""
        self.emit(Warned(code=code, message=message))

    def update(self, **changes: Any) -> None:
        """Change fields of the state and write it.

        A failed write is left to the next heartbeat: a reader that holds the file for a moment (Windows) must not end a
        run, and the next event or checkpoint meets a disk that is really full.
        """
        with self._lock:
            self._state = self._state.model_copy(update={**changes, "heartbeat": time.time()})
            with suppress(NoSpaceError):
                write_state(self._paths, self._state)

    def predict(self, left_s: float, unit_s: float, **changes: Any) -> None:
        """Record when the run is predicted to end. Each heartbeat moves that on while the next piece of work is late.

        Args:
            left_s: predicted time to the end of the run, seconds.
            unit_s: how much of it the next piece of work is, such as a step.
            **changes: further changes of the state.
        """
        self._due = time.monotonic() + unit_s, max(left_s - unit_s, 0.0)
        self.update(ends=predicted_end(left_s), **changes)

    def _notify(self, event: Event) -> None:
        """Pass the event to the listener; a terminal that went away (closed pipe, lost session) must not end a run."""
        if self._listener:
            try:
                self._listener(event)
            except (Exception, SystemExit):  # noqa: BLE001  rich raises SystemExit on a closed pipe
                self._listener = None

    def sync(self) -> None:
        """Wait until all events are on disk."""
        self._events.sync()

    def end(self, event: RunEnded) -> None:
        """Write the last event and the final state. Nothing may be written afterwards.

        A full disk must not hide the run's ending from the process's own exit code, so failed writes are ignored here:
        the reader then sees that the process is gone and calls the run interrupted.
        """
        self._ended.set()
        self._thread.join()
        try:
            self.emit(event)
            self._events.sync()
            self._state = self._state.model_copy(
                update={
                    "status": event.outcome,
                    "step": event.step,
                    "phase": "",
                    "exit_code": event.exit_code,
                    "message": event.message,
                    "ends": 0.0,
                    "heartbeat": time.time(),
                    "pid": None,
                    "process_created": None,
                }
            )
            write_state(self._paths, self._state)
        except NoSpaceError:
            self._notify(event)
        finally:
            self._events.close()

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_S):
            due, left_s = self._due
            is_late = left_s > 0 and time.monotonic() > due
            self.update(**({"ends": predicted_end(left_s)} if is_late else {}))


_LONGEST_S = 1e9  # a prediction of more than thirty years is none


def predicted_end(left_s: float) -> float:
    """Return when a run is predicted to end, seconds since the epoch; 0: not known.

    Args:
        left_s: predicted time to the end of the run, seconds.
    """
    return time.time() + left_s if 0.0 < left_s < _LONGEST_S else 0.0
