"""Declares the interface of a chat template, for a template in this process as well as one in another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Messages = Sequence[Mapping[str, Any]]


class Template(Protocol):
    """A chat template: rendered here (`CompiledTemplate`) or in a process of its own (`ChatTemplate`)."""

    @property
    def source(self) -> str:
        """Jinja source."""
        ...

    @property
    def special_tokens(self) -> dict[str, Any]:
        """Special tokens: names such as bos_token and eos_token to their text."""
        ...

    def render(self, messages: Messages, *, add_generation_prompt: bool = False, tools: Sequence[Any] = ()) -> str:
        """Render a conversation to text; arguments and errors are those of `ChatTemplate.render`."""
        ...
