"""Rewards by a function of the person's own, called in a process with limits (`reward_worker`)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.contract.recipe.recipe_reinforce import RewardSection
from burnish_engine.contract.units import memory_size
from burnish_engine.data.sandbox.confine import ended_for_time
from burnish_engine.data.sandbox.frames import frame, read_body, read_length
from burnish_engine.scoring.rewards import TriedReply
from burnish_engine.train.reinforce.reward_worker import FREE_S, LIMIT_BYTES, S_PER_REPLY

_MODULE = "burnish_engine.train.reinforce.reward_worker"
_SHOWN = 200  # characters of a reply in a message
_PATIENCE = 5.0  # times the processor time that a call may take by the clock: it may wait, such as for a lock


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
        waited = threading.Timer(_PATIENCE * limit_s, child.kill)
        waited.start()
        try:
            requests.write(frame(request))
            requests.flush()
            length = read_length(answers)
            if length is None:
                raise EOFError
            return cast("dict[str, Any]", read_body(answers, length))
        except (OSError, EOFError, ValueError):
            slow = not waited.is_alive()
            status = child.wait()
            slow = slow or ended_for_time(status)
            why = f"took more than {limit_s:g} s" if slow else f"ended its process (status {status})"
            raise UsageError(
                f"The reward function {self._function} of {self._file.name} {why}.",
                f"Correct it: it may take {S_PER_REPLY:g} s of processor time for a reply, and "
                f"{memory_size(LIMIT_BYTES)} of memory.",
            ) from None
        finally:
            waited.cancel()

    def _check(self, answer: dict[str, Any], replies: Sequence[TriedReply]) -> dict[str, Any]:
        if "fault" not in answer:
            return answer
        self.close()
        where = f' for the reply "{replies[answer["at"]].text[:_SHOWN]}"' if "at" in answer else ""
        raise UsageError(
            f"The reward function {self._function} of {self._file.name} failed{where}: {answer['fault']}.",
            "Correct it, and try it: burnish rewards try RECIPE.",
        )


def _launch() -> subprocess.Popen[bytes]:
    # A session (group) of its own keeps Ctrl-C in a terminal from the child, which this process ends itself.
    windows = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) | getattr(subprocess, "CREATE_NO_WINDOW", 0)
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE],
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
