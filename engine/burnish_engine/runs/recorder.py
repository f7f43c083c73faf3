"""What the engine process writes while it owns a run: events, state, heartbeat. One object, one owner."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from burnish_engine.contract.errors import NoSpaceError
from burnish_engine.contract.events import Event, Phase, PhaseChanged, PlanMade, RunEnded, Warned
from burnish_engine.contract.paths import RunPaths
from burnish_engine.runs.events_file import EventWriter
from burnish_engine.runs.process import own_identity
from burnish_engine.runs.store import read_state, write_state

HEARTBEAT_S = 2.0
Listener = Callable[[Event], None]


class Recorder:
    """Writes a run's events and state, and beats from a thread so that a hang of the loop is told from a crash.

    Args:
        paths: The run folder, which this process must own.
        listener: Called with every event after it was written, on the caller's thread.

    Attributes:
        plan: What the run was predicted to take; None until that is known.
    """

    def __init__(self, paths: RunPaths, listener: Listener | None = None) -> None:
        self._paths = paths
        self._listener = listener
        self.plan: PlanMade | None = None
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
        """Append an event, then tell the listener."""
        if isinstance(event, PlanMade):
            self.plan = event
        self._tell(self._events.write(event))

    def phase(self, phase: Phase, detail: str = "") -> None:
        """Say what the run does now."""
        self.emit(PhaseChanged(phase=phase, detail=detail))
        self.update(phase=phase)

    def warn(self, code: str, message: str) -> None:
        """Say what the person should know."""
        self.emit(Warned(code=code, message=message))

    def update(self, **changes: Any) -> None:
        """Change fields of the state and write it.

        A write that fails is left to the next heartbeat: a reader that holds the file for a moment (Windows) must not
        end a run, and a disk that is really full is met by the next event or checkpoint.
        """
        with self._lock:
            self._state = self._state.model_copy(update={**changes, "heartbeat": time.time()})
            with suppress(NoSpaceError):
                write_state(self._paths, self._state)

    def _tell(self, event: Event) -> None:
        """Show the event. A terminal that went away (closed pipe, lost session) must not take the run with it."""
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

        A full disk must not hide how the run ended from the process's own exit code, so failed writes are swallowed
        here: the reader then sees the process gone and calls the run interrupted.
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
                    "heartbeat": time.time(),
                    "pid": None,
                    "process_created": None,
                }
            )
            write_state(self._paths, self._state)
        except NoSpaceError:
            self._tell(event)
        finally:
            self._events.close()

    def _beat(self) -> None:
        while not self._ended.wait(HEARTBEAT_S):
            self.update()
