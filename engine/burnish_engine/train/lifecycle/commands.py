"""The inbox for commands and signals, which a run handles between optimizer steps, and between replies it scores."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from burnish_engine.contract.run.commands import Command
from burnish_engine.contract.run.events import CommandDone, Phase, PhaseChanged
from burnish_engine.runs.control import ControlReader
from burnish_engine.runs.recorder import Recorder

Ending = Literal["stop", "stop_now", "suspend"]
_PAUSE_POLL_S = 0.2


@dataclass
class CommandInbox:
    """Carries out the commands of the user between steps, and between groups of replies.

    Attributes:
        reader: reader of the run's control file.
        recorder: recorder that receives acknowledgements.
        checkpoint: function that saves a checkpoint now.
        sample: function that answers the fixed prompts now.
        smaller_plan: function that takes a smaller memory plan, and says what changed in half a sentence; empty
            where no plan is smaller.
        stopping: function called at once, on a thread of its own, when a signal asks to stop.
        ending: how the run shall end; None: nothing has asked for that.
    """

    reader: ControlReader
    recorder: Recorder
    checkpoint: Callable[[], None]
    sample: Callable[[], None]
    smaller_plan: Callable[[], str]
    stopping: Callable[[], None] | None = None
    ending: Ending | None = None
    _signalled: threading.Event = field(default_factory=threading.Event)

    def poll(self) -> Ending | None:
        """Carry out waiting commands; return how the run shall end, or None to continue. Block while paused."""
        phase, paused = self.recorder.current_phase, False
        while self.ending is None:
            for command in self.reader.poll():
                self.ending, paused = self._handle(command, paused, phase)
                if self.ending:
                    return self.ending
            if self._signalled.is_set():
                self.ending = "stop"
            elif paused:
                time.sleep(_PAUSE_POLL_S)
            else:
                break
        return self.ending

    def _handle(self, command: Command, paused: bool, phase: Phase) -> tuple[Ending | None, bool]:
        """Carry out a command in this phase; return how the run shall end, if at all, and whether it is paused."""
        accepted, detail = True, ""
        if command.name == "pause":
            accepted, detail = not paused, "already paused" if paused else ""
            if not paused:
                self.checkpoint()  # a pause may last, and a process that holds its memory may be killed meanwhile
                self.recorder.update(status="paused", phase="paused")
                self.recorder.emit(PhaseChanged(phase="paused"))
            paused = True
        elif command.name == "resume":
            accepted, detail = paused, "" if paused else "not paused"
            if paused:
                self.recorder.update(status="running", phase=phase)
                self.recorder.emit(PhaseChanged(phase=phase))
            paused = False
        elif command.name == "checkpoint":
            self.checkpoint()
        elif command.name == "sample":
            self.sample()
            if not paused and self.recorder.current_phase != phase:
                self.recorder.phase(phase)
        elif command.name == "smaller_plan":
            changed = self.smaller_plan()
            accepted, detail = bool(changed), changed or "there is no smaller plan"
        self.recorder.emit(CommandDone(id=command.id, name=command.name, accepted=accepted, detail=detail))
        if command.name in ("stop", "stop_now", "suspend"):
            return command.name, paused
        return None, paused

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Handle signals inside: a first interrupt or termination stops and saves, a second interrupt ends at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def request(number: int, _frame: object) -> None:
            if self._signalled.is_set() and number == signal.SIGINT:
                raise KeyboardInterrupt
            self._signalled.set()

        numbers = [signal.SIGINT, signal.SIGTERM]
        numbers += [getattr(signal, name) for name in ("SIGBREAK", "SIGHUP") if hasattr(signal, name)]
        numbers = [
            number for number in numbers if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGINT
        ]
        before = {number: signal.signal(number, request) for number in numbers}
        try:
            with _notify_at_once(self.stopping, numbers):
                yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _notify_at_once(notify: Callable[[], None] | None, numbers: Collection[int]) -> Iterator[None]:
    """Call `notify` at once when the first of these signals arrives inside.

    Python runs a signal's handler only between two of its own instructions, and one backward pass is a single
    instruction of many seconds. The number of the signal is written to the wake-up socket at once, and a thread reads
    it there.
    """
    if notify is None:
        yield
        return
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def watch() -> None:
        while number := reader.recv(1):
            if number[0] in numbers:
                notify()
                return

    watcher = threading.Thread(target=watch, name="signals", daemon=True)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        writer.close()
        watcher.join()
        reader.close()
