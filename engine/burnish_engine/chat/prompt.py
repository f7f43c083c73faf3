"""Render messages to a prompt with the model's own chat template in the sandbox of `data.sandbox`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from burnish_engine.contract.errors import UsageError
from burnish_engine.data.files.problems import RowError
from burnish_engine.data.rows.conversation import valid_unicode
from burnish_engine.data.templates.template import ChatTemplate, chat_template
from burnish_engine.models.gguf.gguf_runtime import GgufModel

Messages = Sequence[Mapping[str, str]]
"""Turns with role (system, user or assistant) and content."""


def tokenizer_template(tokenizer: Any) -> ChatTemplate:
    """Return the template of a transformers tokenizer; Burnish's plain one where it has none, as in training.

    Raises:
        DataError: The template is invalid.
    """
    return chat_template(tokenizer, today=date.today())


def gguf_template(model: GgufModel) -> ChatTemplate:
    """Return the template that a GGUF carries.

    Raises:
        UsageError: The file carries none.
        DataError: The template is invalid.
    """
    if not model.chat_template:
        raise UsageError(
            f"{model.path.name} carries no chat template, so it cannot be chatted with.",
            "Export it again from a model with a template.",
        )
    special = {"bos_token": model.token_text(model.bos), "eos_token": model.token_text(model.eos)}
    return ChatTemplate(model.chat_template, special, today=date.today())


def render(template: ChatTemplate, messages: Messages, *, generation_prompt: bool = True) -> str:
    """Render the conversation as text, by default ready for the assistant's reply.

    Raises:
        UsageError: The template refuses this conversation.
        DataError: The template tries to leave its sandbox.
    """
    turns = [dict(message) for message in messages]
    if not turns:
        raise UsageError("The conversation is empty.", "Say something.")
    try:
        return valid_unicode(template.formed.render(turns, add_generation_prompt=generation_prompt))
    except RowError as error:
        remedy = "Check its text, and the roles and their order."
        raise UsageError(f"The conversation cannot be used: {error.reason}.", remedy) from error


def chat_ids(tokenizer: Any, messages: Messages, template: ChatTemplate | None = None) -> list[int]:
    """Tokenize a conversation, ready for the assistant's reply; special tokens only where the template has them.

    Raises:
        UsageError: The template refuses this conversation.
    """
    text = render(template or tokenizer_template(tokenizer), messages)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def gguf_chat_ids(model: GgufModel, text: str) -> list[int]:
    """Tokenize a rendered conversation as other programs do: with one BOS, from the template or the tokenizer."""
    bos = model.token_text(model.bos)
    if model.adds_bos and bos and text.startswith(bos):
        text = text.removeprefix(bos)
    return model.tokenize(text, special=True, add_bos=True)
