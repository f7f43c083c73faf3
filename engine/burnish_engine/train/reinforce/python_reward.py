"""Rewards by a function of the person's own, called in a process with limits (`reward_worker`)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

import psutil
from typing_extensions import override

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.recipe.recipe_reinforce import RewardSection
from burnish_engine.contract.units import memory_size
from burnish_engine.data.sandbox.confine import ended_for_time
from burnish_engine.data.sandbox.frames import frame, read_body, read_length
from burnish_engine.scoring.rewards import TriedReply
from burnish_engine.train.reinforce.reward_worker import FREE_S, LIMIT_BYTES, S_PER_REPLY

_MODULE = "burnish_engine.train.reinforce.reward_worker"
_SHOWN = 200  # characters of a reply in a message
_PATIENCE = 5.0  # times the processor time that a call may take by the clock: the machine may be busy
_IDLE_S = 20.0  # seconds by the clock that it may wait without computing, such as for a lock or a server


class PythonReward:
    """A reward by a function in a file; its process starts with the first replies.

    Args:
        section: table of the recipe, of kind python.
    """

    def __init__(self, section: RewardSection) -> None:
        self._file, self._function = Path(section.file), section.function
        self._child: subprocess.Popen[bytes] | None = None
        if not self._file.is_file():
            raise UsageError(
                f"There is no file {self._file} for the reward {section.title}.", "Correct reward.file in the recipe."
            )

    def scores(self, replies: Sequence[TriedReply]) -> list[float]:
        """Return the rewards of replies.

        Raises:
            UsageError: The file or the function fails, returns no number, or takes too much time or memory.
            SetupError: The process cannot be started.
        """
        limit_s = FREE_S + S_PER_REPLY * len(replies)
        if self._child is None:
            self._child = _launch()
            self._check(self._ask({"file": str(self._file), "function": self._function}, FREE_S), replies)
        asked = {"replies": [[one.prompt, one.text, one.wanted] for one in replies]}
        answer = self._check(self._ask(asked, limit_s), replies)
        return [float(value) for value in answer["rewards"]]

    def close(self) -> None:
        """End the process."""
        child, self._child = self._child, None
        if child is not None:
            with suppress(OSError):
                child.kill()
            for stream in (child.stdin, child.stdout):
                with suppress(OSError):
                    cast(BinaryIO, stream).close()
            child.wait()

    def _ask(self, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
        child = self._child
        assert child is not None
        requests, answers = cast(BinaryIO, child.stdin), cast(BinaryIO, child.stdout)
        answered = threading.Event()
        watch = _TimeLimit(child, answered, limit_s)
        watch.start()
        try:
            requests.write(frame(request))
            requests.flush()
            length = read_length(answers)
            if length is None:
                raise EOFError
            return cast("dict[str, Any]", read_body(answers, length))
        except (OSError, EOFError, ValueError):
            status = child.wait()
            answered.set()
            watch.join()
            slow = f"took more than {limit_s:g} s" if ended_for_time(status) else ""
            why = watch.ended_for or slow or f"ended its process (status {status})"
            raise UsageError(
                f"The reward function {self._function} of {self._file.name} {why}.",
                f"Correct it: it may take {S_PER_REPLY:g} s of processor time for a reply and "
                f"{memory_size(LIMIT_BYTES)} of memory, and wait {_IDLE_S:g} s without computing.",
            ) from None
        finally:
            answered.set()

    def _check(self, answer: dict[str, Any], replies: Sequence[TriedReply]) -> dict[str, Any]:
        if "fault" not in answer:
            return answer
        self.close()
        where = f' for the reply "{replies[answer["at"]].text[:_SHOWN]}"' if "at" in answer else ""
        raise UsageError(
            f"The reward function {self._function} of {self._file.name} failed{where}: {answer['fault']}.",
            "Correct it, and try it: burnish rewards try RECIPE.",
        )


class _TimeLimit(threading.Thread):
    """Ends a process that does not answer: one that takes far too long, or waits without computing.

    Args:
        child: the process.
        answered: whether it has answered or ended.
        limit_s: processor time that it may take, seconds.

    Attributes:
        ended_for: why it was ended; empty where it was not.
    """

    def __init__(self, child: subprocess.Popen[bytes], answered: threading.Event, limit_s: float) -> None:
        super().__init__(daemon=True)
        self._child, self._answered, self._limit_s = child, answered, limit_s
        self.ended_for = ""

    @override
    def run(self) -> None:
        began = computed = time.monotonic()
        spent = -1.0
        while not self._answered.wait(min(1.0, _IDLE_S / 4)):
            now, before = time.monotonic(), spent
            spent, waits = _computing(self._child.pid)
            computed = computed if waits and spent == before else now
            if now - computed > _IDLE_S:
                self.ended_for = f"waited {_IDLE_S:g} s without computing"
            elif now - began > _PATIENCE * self._limit_s:
                self.ended_for = f"took more than {self._limit_s:g} s"
            if self.ended_for:
                self._child.kill()
                return


def _computing(pid: int) -> tuple[float, bool]:
    """Return the processor time of a process and those below it, seconds, and whether all of them wait."""
    try:
        first = psutil.Process(pid)
        processes = [first, *first.children(recursive=True)]
        spent = sum(sum(one.cpu_times()[:2]) for one in processes)
        return spent, all(one.status() != psutil.STATUS_RUNNING for one in processes)
    except psutil.Error:
        return 0.0, False  # it is ending


def _launch() -> subprocess.Popen[bytes]:
    # A session (group) of its own keeps Ctrl-C in a terminal from the child, which this process ends itself.
    windows = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) | getattr(subprocess, "CREATE_NO_WINDOW", 0)
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-X", "utf8", "-m", _MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=os.name != "nt",
            creationflags=windows,
        )
    except OSError as error:
        raise SetupError(
            f"The process of the reward function did not start: {error.strerror or error}.",
            "Close other programs and try again.",
        ) from error
