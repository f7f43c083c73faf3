"""Store the held-out rows of a run in its folder, so that it can be exported and verified after its data has moved."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.files import read_plain, write_atomic
from burnish_engine.contract.paths import RunPaths
from burnish_engine.runs.events_file import read_run

MOST_ROWS = 200
Chat = list[dict[str, str]]


def save_held_out(paths: RunPaths, ids: Sequence[Sequence[int]], chats: Sequence[Chat]) -> None:
    """Save token ids and conversations of the first held-out rows.

    Raises:
        NoSpaceError: The file cannot be written.
    """
    rows = {"ids": [list(row) for row in ids[:MOST_ROWS]], "chats": list(chats[:MOST_ROWS])}
    write_atomic(paths.held_out, json.dumps(rows, ensure_ascii=False) + "\n")


def reported_loss(paths: RunPaths) -> tuple[float, int] | None:
    """Find the held-out loss that training reported for the run's result, and its number of supervised tokens.

    Returns:
        Loss in nats per token, and the tokens; None where the result was not evaluated or the events cannot be read.
    """
    with suppress(OSError, UsageError):
        run = read_run(paths.events)
        if run.result is not None and (tokens := run.evaluations.tokens.last):
            return run.result[1], tokens
    return None


def load_conversations(paths: RunPaths) -> list[Chat]:
    """Load the conversations of the held-out rows, with their replies.

    Raises:
        UsageError: The run has no held-out rows yet, or the file is damaged.
    """
    return _load(paths)[1]


def load_held_out(paths: RunPaths) -> tuple[list[list[int]], list[Chat]]:
    """Load token ids of the held-out rows, and their conversations up to the last user turn.

    Raises:
        UsageError: The run has no held-out rows yet, or the file is damaged.
    """
    ids, chats = _load(paths)
    return ids, [chat[:-1] for chat in chats if len(chat) > 1 and chat[-1]["role"] == "assistant"]


def _load(paths: RunPaths) -> tuple[list[list[int]], list[Chat]]:
    try:
        rows = json.loads(read_plain(paths.held_out))
        ids, chats = rows["ids"], rows["chats"]
        if not isinstance(ids, list) or not all(isinstance(turn, dict) for chat in chats for turn in chat):
            raise TypeError
        return ids, chats
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise UsageError(
            f"The run {paths.root.name} has no readable held_out.json, which a file is checked against.",
            "Start the run, or copy the file back.",
        ) from None
