"""Lets a model write replies to questions, several tries each: a folder, a run, the embedded model or a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

from burnish_engine.chat.backend import ChatBackend
from burnish_engine.chat.model_cache import ModelCache
from burnish_engine.chat.prompt import Messages
from burnish_engine.chat.target import find_target
from burnish_engine.chat.torch_chat import TorchChat
from burnish_engine.models.generation.sampling import GeneratedReply, Sampling

_QUESTIONS_AT_ONCE = 16  # after which progress is told


def write_replies(
    target: str,
    chats: Sequence[Messages],
    samplings: Sequence[Sequence[Sampling]],
    *,
    together: int,
    progress: Callable[[int, int], object] = lambda *_: None,
) -> list[list[GeneratedReply]]:
    """Write replies to questions.

    Args:
        target: name of a run or model, a model folder, "embedded", or a .gguf file.
        chats: conversations that end with a question.
        samplings: how each try at each question is drawn.
        together: most tokens of conversations and replies that are held at once.
        progress: function that receives the number of questions that are answered, and of all.

    Returns:
        For each question its tries, in their order.

    Raises:
        UsageError: The target names nothing to chat with, or its template refuses a question.
        SetupError: The model cannot be loaded.
    """
    models, found = ModelCache(), list[list[GeneratedReply]]()
    try:
        backend, _ = models.get(find_target(target, "tuned"))
        for start in range(0, len(chats), _QUESTIONS_AT_ONCE):
            asked, tries = chats[start : start + _QUESTIONS_AT_ONCE], samplings[start : start + _QUESTIONS_AT_ONCE]
            found += _written(backend, asked, tries, together)
            progress(len(found), len(chats))
    finally:
        models.clear()
    return found


def _written(
    backend: ChatBackend, chats: Sequence[Messages], samplings: Sequence[Sequence[Sampling]], together: int
) -> list[list[GeneratedReply]]:
    places = [(chat, one) for chat, tries in zip(chats, samplings, strict=True) for one in tries]
    if isinstance(backend, TorchChat):
        made = backend.draws([chat for chat, _ in places], [one for _, one in places], together=together)
    else:
        made = [_streamed(backend, chat, one) for chat, one in places]
    replies = iter(made)
    return [[next(replies) for _ in tries] for tries in samplings]


def _streamed(backend: ChatBackend, chat: Messages, sampling: Sampling) -> GeneratedReply:
    with closing(backend.stream(chat, sampling)) as stream:
        text = "".join(stream)
        return GeneratedReply(text, stream.stopped, stream.tokens)
