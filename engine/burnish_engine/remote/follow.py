"""Follows a job elsewhere to its end: over broken connections, with commands to the run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from burnish_engine.contract.errors import BurnishError, ExitCode
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.run.commands import Command
from burnish_engine.contract.run.state import Status
from burnish_engine.remote.backends.backend import Backend, DroppedError
from burnish_engine.remote.bring_back import bring_back
from burnish_engine.remote.mirror import GapError, Mirror
from burnish_engine.remote.there.relay_line import RelayLine
from burnish_engine.runs.control import ControlReader

_WAITS_S = (0.5, 1.0, 2.0, 5.0, 10.0)  # before another try; the last one from then on
_COMMAND_S, _COMMAND_AGAIN_S = 0.3, 2.0
_ENDINGS: dict[str, Status] = {
    "finished": "finished", "stopped": "stopped", "suspended": "suspended", "failed": "failed",
}  # fmt: skip
_CODES: dict[Status, ExitCode] = {
    "finished": ExitCode.DONE, "stopped": ExitCode.STOPPED, "suspended": ExitCode.STOPPED,
}  # fmt: skip


@dataclass(frozen=True)
class RemoteOutcome:
    """End of a run elsewhere: status, exit code and reason."""

    status: Status
    exit_code: ExitCode
    message: str = ""


def ended_status(reported: str) -> Status:
    """Return the status of a run whose job said how it ended; one that could not say so failed."""
    return _ENDINGS.get(reported, "failed")


class Follower:
    """Follows one job.

    Args:
        backend: way to the machine.
        mirror: writer of the run folder here.
        paths: paths of the run folder.
        note: callback given what a person should know meanwhile.
        commands: reader of commands that was opened before the run was handed over; None: those from here on count.
        waits_s: times to wait before another try, seconds.
    """

    def __init__(
        self,
        backend: Backend,
        mirror: Mirror,
        paths: RunPaths,
        note: Callable[[str], object],
        *,
        commands: ControlReader | None = None,
        waits_s: tuple[float, ...] = _WAITS_S,
    ) -> None:
        self._backend, self._mirror, self._paths, self._note = backend, mirror, paths, note
        self._commands = commands or ControlReader(paths.control)
        self._waits_s = waits_s
        self._failures, self._gone = 0, 0  # tries, and answers that the job is gone, since it last spoke
        self._said = ""
        self._ended = threading.Event()

    def follow(self) -> RemoteOutcome:
        """Follow to the end and bring the result back.

        Raises:
            SetupError: The place refuses, or the result is damaged; the job may continue.
            KeyboardInterrupt: The person stopped following; the job continues.
        """
        self._mirror.own()
        commands = threading.Thread(target=self._forward, name="remote-commands", daemon=True)
        commands.start()
        try:
            end = self._until_end()
            return self._conclude(end)
        finally:
            self._ended.set()
            commands.join(5.0)

    def _until_end(self) -> RelayLine:
        gaps, gap_at = 0, -1
        while True:
            try:
                for line in self._backend.lines(self._mirror.job, self._mirror.position):
                    if line.kind != "state" or line.text:  # else its folder speaks, not the job
                        self._failures = self._gone = 0
                    if line.kind == "end":
                        if line.attempt >= self._mirror.job.attempt:
                            return line
                        continue
                    try:  # after some tries the place no longer has the lines between; those that come are kept
                        here = self._mirror.position.events
                        self._mirror.take(line, over_gaps=here == gap_at and gaps > len(self._waits_s))
                    except GapError:
                        gaps, gap_at = (gaps + 1 if here == gap_at else 1), here
                        raise DroppedError("some lines were lost on the way") from None
                    self._heard(line)
                reason = "nothing came any more"
            except DroppedError as dropped:
                reason = str(dropped)
            if (gone := self._ask(reason)) is not None:
                return gone

    def _heard(self, line: RelayLine) -> None:
        """Note that the job speaks; one that has no run yet says so in its state."""
        if self._said and line.kind in ("event", "attempt"):
            self._said = ""
        if line.kind == "state" and not line.text:
            self._report("The machine prepares the job.")
            status = self._backend.status(self._mirror.job)
            if not status.alive:
                raise DroppedError(status.text or "the job is gone")
            if status.text:
                self._report(status.text)

    def _ask(self, reason: str) -> RelayLine | None:
        """Wait, then ask what became of the job; return its end where the place says that it is gone."""
        wait = self._waits_s[min(self._failures, len(self._waits_s) - 1)]
        self._failures += 1
        try:
            status = self._backend.status(self._mirror.job)
        except DroppedError as dropped:
            self._report(f"The connection is lost ({str(dropped)[:200]}); trying again.")
        else:
            self._gone = 0 if status.alive else self._gone + 1
            if self._gone > 1:  # between the two it was asked for its end once more
                return RelayLine(kind="end", text=status.text or reason, attempt=self._mirror.job.attempt)
            if status.alive:
                self._report(status.text or "Connecting again.")
        time.sleep(wait)
        return None

    def _report(self, text: str) -> None:
        self._mirror.say(text)
        if text != self._said:
            self._said = text
            self._note(text)

    def _conclude(self, end: RelayLine) -> RemoteOutcome:
        status = ended_status(end.status)
        message = end.text
        if end.files:
            self._report("Bringing the result back.")
            self._fetch(end.files)
            self._mirror.job = self._mirror.job.model_copy(update={"brought_back": True})
        code = _CODES.get(status, ExitCode.BUG)
        if status == "failed":
            with suppress(ValueError):
                code = ExitCode(end.exit_code) if end.exit_code else ExitCode.BUG
        return RemoteOutcome(status, code, message)

    def _fetch(self, files: dict[str, str]) -> None:
        for attempt in range(len(self._waits_s) + 1):
            try:
                bring_back(self._backend, self._mirror.job, self._paths, files)
                return
            except DroppedError as dropped:
                if attempt == len(self._waits_s):
                    raise
                self._report(f"The connection is lost ({str(dropped)[:200]}); trying again.")
                time.sleep(self._waits_s[attempt])

    def _forward(self) -> None:
        """Hand commands on to the run, each until it is there."""
        waiting = list[Command]()
        while not self._ended.wait(_COMMAND_S):
            waiting += self._commands.poll()
            while waiting:
                try:
                    self._backend.send(self._mirror.job, waiting[0])
                except (DroppedError, BurnishError):
                    self._ended.wait(_COMMAND_AGAIN_S)
                    break
                waiting.pop(0)
