"""Score models on held-out rows: a base, a tuned model, an exported file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from burnish_engine.chat.gguf_chat import GgufChat
from burnish_engine.chat.torch_chat import TorchChat
from burnish_engine.contract.errors import UsageError
from burnish_engine.models.generation.sampling import Sampling
from burnish_engine.models.gguf.gguf_trial import try_file
from burnish_engine.scoring.score import TaskRows

Replies = list[tuple[str, bool]]
"""Reply to each row and whether the model ended it by itself."""
Answered = Callable[[int], None]
"""Callback given the number of rows that are answered; an exception that it raises ends the work."""
_TOKENS_TOGETHER = 8192  # prompts and replies that a model holds at once
_ROOM = 64  # tokens that a file's own template may add
_USUAL_CONTEXT = 4096


def _nobody(_done: int) -> None: ...


def model_replies(chat: TorchChat, task: TaskRows, answered: Answered = _nobody) -> Replies:
    """Answer the rows of a task greedily with an open model.

    Args:
        chat: open model, whose adapter is switched as wanted.
        task: rows to answer.
        answered: callback for progress.
    """
    chats = [row.messages for row in task.rows]
    made = chat.replies(chats, task.section.max_tokens, together=_TOKENS_TOGETHER, answered=answered)
    return [(reply.text, reply.stopped) for reply in made]


def both_replies(chat: TorchChat, task: TaskRows, answered: Answered = _nobody) -> tuple[Replies, Replies]:
    """Answer the rows greedily without an open model's adapter and with it; arguments as for `model_replies`."""
    chats = [row.messages for row in task.rows]
    made = chat.replies_of_both(chats, task.section.max_tokens, together=_TOKENS_TOGETHER, answered=answered)
    base, tuned = ([(reply.text, reply.stopped) for reply in replies] for replies in made)
    return base, tuned


def check_file(gguf: Path) -> None:
    """Open a file as `file_replies` does, so that what is wrong with it is told before other models have answered.

    Raises:
        UsageError: There is no such file, it is no GGUF, or it carries no chat template.
        SetupError: The file cannot be loaded, or loading it ends the process that tries.
    """
    try_file(gguf)
    GgufChat(gguf, context=_ROOM).close()


def file_replies(gguf: Path, task: TaskRows, answered: Answered = _nobody, *, threads: int = 0) -> Replies:
    """Answer the rows of a task greedily with a GGUF file in llama.cpp.

    A row that does not fit the file's context has an empty reply.

    Args:
        gguf: file to ask.
        task: rows to answer.
        answered: callback for progress, also polled while a reply grows.
        threads: number of CPU threads; 0 means one per physical core.

    Raises:
        UsageError: There is no such file, it is no GGUF, or it carries no chat template.
        SetupError: The file cannot be loaded.
    """
    sampling = Sampling(max_tokens=task.section.max_tokens)
    prompt = task.prompt_tokens + _ROOM if task.prompt_tokens else _USUAL_CONTEXT
    found = Replies()
    with closing(GgufChat(gguf, context=prompt + task.section.max_tokens, threads=threads)) as chat:
        for row in task.rows:
            text = ""
            try:
                stream = chat.stream(row.messages, sampling)
            except UsageError:
                found.append(("", False))
                continue
            for piece in stream:
                answered(len(found))
                text += piece
            found.append((text, stream.stopped))
            answered(len(found))
    return found
