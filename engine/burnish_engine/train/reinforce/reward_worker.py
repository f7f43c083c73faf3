"""The process that calls a person's reward function, with limits of memory and processor time. Loads no torch.

Started by `python_reward`. The first message names the file and the function; each that follows holds replies, and is
answered with their rewards, or with what was wrong.
"""

from __future__ import annotations

import math
import os
import runpy
import sys
import traceback
from collections.abc import Callable
from typing import Any, BinaryIO

from burnish_engine.data.sandbox.confine import limit_memory, limit_time
from burnish_engine.data.sandbox.frames import frame, read_body, read_length

LIMIT_BYTES = 4 * 2**30
"""Address space of the process."""
FREE_S, S_PER_REPLY = 20.0, 2.0
"""Processor time of the first call and what it imports, and that of each reply, seconds."""


def main() -> None:
    """Answer messages from standard input until it ends."""
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the function prints must not stand among the answers
    limit_memory(LIMIT_BYTES)
    limit_time(FREE_S)
    first = _read(requests)
    if first is None:
        return
    file, name = first["file"], first["function"]
    try:
        function = _load(file, name)
    except BaseException as error:  # noqa: BLE001  whatever the person's file raises
        _answer(answers, {"fault": _fault(error, file)})
        return
    _answer(answers, {})
    while (request := _read(requests)) is not None:
        limit_time(FREE_S + S_PER_REPLY * len(request["replies"]))
        _answer(answers, _rewards(function, request["replies"], file))
        limit_time(0)


def _load(file: str, name: str) -> Callable[..., Any]:
    found = runpy.run_path(file, run_name="burnish_reward").get(name)
    if not callable(found):
        raise LookupError(f"it has no function {name}")
    return found


def _rewards(function: Callable[..., Any], replies: list[list[str]], file: str) -> dict[str, Any]:
    found = []
    for number, (prompt, reply, wanted) in enumerate(replies):
        try:
            value = function(prompt, reply, wanted)
            reward = float(value)
        except BaseException as error:  # noqa: BLE001  whatever the person's function raises
            return {"fault": _fault(error, file), "at": number}
        if not math.isfinite(reward):
            return {"fault": f"it returned {value!r}, which is no finite number", "at": number}
        found.append(reward)
    return {"rewards": found}


def _fault(error: BaseException, file: str) -> str:
    """Say what a file or function raised, and in which of its lines."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    where = f" in line {lines[-1]}" if lines else ""
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}{where}{f': {said[0]}' if said else ''}"


def _read(stream: BinaryIO) -> Any:
    length = read_length(stream)
    return None if length is None else read_body(stream, length)


def _answer(stream: BinaryIO, value: dict[str, Any]) -> None:
    stream.write(frame(value))
    stream.flush()


if __name__ == "__main__":
    main()
