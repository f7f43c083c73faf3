"""The tokenizer's chat template: chosen, checked, and rendered in a sandbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from jinja2 import Template
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError

from burnish_engine.contract.errors import DataError
from burnish_engine.data.problems import RowError, shorten
from burnish_engine.data.sandbox import RefusedByTemplateError, TemplateEnvironment
from burnish_engine.data.template_library import template_source

LONGEST_SOURCE = 262_144
"""Longest template accepted, characters; real ones have up to about 20,000."""

TRAINING_DATE = date(2024, 7, 26)
"""What a template that writes today's date gets in training, so that a run can be resumed and repeated. It is the
default of Llama 3.2's template, https://huggingface.co/meta-llama/Llama-3.2-1B-Instruct."""

PLAIN_TEMPLATE = (
    "{{% for message in messages %}}"
    "{{% if loop.first %}}{{{{ {bos} }}}}{{% endif %}}"
    "{{% if message['role'] == 'system' %}}{{{{ message['content'] + '\\n\\n' }}}}"
    "{{% elif message['role'] == 'assistant' %}}"
    "{{{{ '### Assistant:\\n' + message['content'] + eos_token + '\\n\\n' }}}}"
    "{{% else %}}{{{{ '### ' + message['role'] | capitalize + ':\\n' + message['content'] + '\\n\\n' }}}}{{% endif %}}"
    "{{% endfor %}}"
    "{{% if add_generation_prompt %}}{{{{ '### Assistant:\\n' }}}}{{% endif %}}"
)
"""For base models, which have no template. It uses no control token but those that every tokenizer has."""

Messages = Sequence[Mapping[str, Any]]


class ChatTemplate:
    """A compiled chat template. Not for use by several threads at once.

    Args:
        source: Jinja source.
        special_tokens: Names such as bos_token and eos_token to their text.
        today: What a template that asks for the date gets.
        is_default: Whether Burnish's own template stands in for a missing one.

    Raises:
        DataError: The source is too long, or not valid Jinja.
    """

    def __init__(
        self,
        source: str,
        special_tokens: dict[str, Any],
        *,
        today: date = TRAINING_DATE,
        is_default: bool = False,
    ) -> None:
        if len(source) > LONGEST_SOURCE:
            raise DataError(
                f"The model's chat template is {len(source)} characters long; at most {LONGEST_SOURCE} are accepted.",
                "Check chat_template in the model's folder.",
            )
        self.source = source
        self.special_tokens = special_tokens
        self.today = today
        self.is_default = is_default
        self._environment = TemplateEnvironment(today)
        try:
            self._template: Template = self._environment.from_string(source)
        except TemplateSyntaxError as error:
            raise DataError(
                f"The model's chat template is not valid Jinja: line {error.lineno}: {shorten(error.message, 100)}.",
                "Check chat_template in the model's folder.",
            ) from None
        except SecurityError as error:
            raise _hostile(error) from None
        except (RecursionError, MemoryError, SyntaxError) as error:
            raise DataError(
                f"The model's chat template cannot be compiled: {type(error).__name__}.",
                "Check chat_template in the model's folder.",
            ) from None

    @property
    def writes_date(self) -> bool:
        """Whether the template asks for today's date."""
        return "strftime_now" in self.source

    def render(self, messages: Messages, *, add_generation_prompt: bool = False, tools: Sequence[Any] = ()) -> str:
        """The conversation as text.

        Args:
            messages: Turns with role and content, and what else the template knows of turns.
            add_generation_prompt: Add what stands before a reply, for the model to go on from.
            tools: JSON schemas of the tools that may be called.

        Raises:
            RowError: The template does not take this conversation.
            DataError: The template tries to leave its sandbox or does not end.
        """
        environment = self._environment
        environment.start(len(messages), _size(messages, tools))
        try:
            return environment.collect(
                self._template.generate(
                    messages=[dict(message) for message in messages],
                    tools=list(tools) or None,
                    documents=None,
                    add_generation_prompt=add_generation_prompt,
                    **self.special_tokens,
                )
            )
        except SecurityError as error:
            raise _hostile(error) from None
        except (RecursionError, MemoryError, OverflowError) as error:  # the sandbox's range raises the last
            raise _hostile(f"it exhausts the interpreter ({type(error).__name__})") from None
        except RefusedByTemplateError as error:
            raise RowError(f"refused by the chat template: {shorten(error, 80)}") from None
        except (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            raise RowError(f"the chat template failed: {shorten(error, 80)}") from None


def chat_template(tokenizer: Any, *, today: date = TRAINING_DATE, chosen: str = "auto") -> ChatTemplate:
    """The tokenizer's own template, a plain one where it has none, or the one that a recipe chooses.

    Args:
        tokenizer: A transformers tokenizer.
        today: What a template that asks for the date gets.
        chosen: The recipe's data.template: "auto", a name of `template_library.TEMPLATES`, or a file with Jinja source.

    Raises:
        DataError: The template is invalid, there are several and none is the default, or the chosen one is not there.
    """
    source = tokenizer.chat_template if chosen == "auto" else template_source(chosen)
    if isinstance(source, dict):
        if "default" not in source:
            raise DataError(
                f"The model has the chat templates {', '.join(map(repr, source))}, none of them the default.",
                'Rename one to "default" in the tokenizer\'s folder.',
            )
        source = source["default"]
    special_tokens = {
        name: [str(token) for token in value] if isinstance(value, (list, tuple)) else str(value)
        for name, value in tokenizer.special_tokens_map.items()
    }
    if source:
        return ChatTemplate(str(source), special_tokens, today=today)
    if "eos_token" not in special_tokens:
        special_tokens["eos_token"] = ""
    plain = PLAIN_TEMPLATE.format(bos="bos_token" if adds_bos(tokenizer) else "''")
    return ChatTemplate(plain, special_tokens, today=today, is_default=True)


def adds_bos(tokenizer: Any) -> bool:
    """Whether the tokenizer puts its beginning-of-sequence token before every text."""
    bos = tokenizer.bos_token_id
    if bos is None:
        return False
    ids: list[int] = tokenizer("a")["input_ids"]
    return bool(ids) and ids[0] == bos and tokenizer("a", add_special_tokens=False)["input_ids"][0] != bos


def _size(messages: Messages, tools: Sequence[Any]) -> int:
    """Characters of a conversation, roughly."""
    total = len(repr(tools)) if tools else 0
    for message in messages:
        content = message.get("content")
        total += len(content) if isinstance(content, str) else 0
        total += len(repr(message)) if len(message) > 2 else 0
    return total


def _hostile(why: object) -> DataError:
    return DataError(
        f"The model's chat template was stopped in its sandbox: {shorten(why, 120)}.",
        "Do not use this model's template: replace chat_template in its folder by one you trust.",
    )
