"""Chooses and checks a tokenizer's chat template, and renders it in a sandbox with limits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from functools import cached_property
from hashlib import blake2b
from typing import Any

from burnish_engine.contract.errors import DataError
from burnish_engine.data.files.problems import RowError, shorten
from burnish_engine.data.sandbox.limits import LONGEST_SOURCE
from burnish_engine.data.sandbox.render_process import shared
from burnish_engine.data.sandbox.template_protocol import Messages
from burnish_engine.data.templates.library import ENDING_WITH_EOS, TEMPLATES, template_source
from burnish_engine.data.templates.template_forms import FormedTemplate

TRAINING_DATE = date(2024, 7, 26)
"""Date in training for templates that write today's date, so that a run can be resumed and repeated; the default of
Llama 3.2's template, https://huggingface.co/meta-llama/Llama-3.2-1B-Instruct."""

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
"""Template for base models, which have none. It uses no control token but those that every tokenizer has."""

_CHECK = "Check chat_template in the model's folder."
_REPLACE = "Do not use this model's template: replace chat_template in its folder by one you trust."


class ChatTemplate:
    """A chat template, compiled and rendered in a process of its own with limits. For use by several threads.

    Args:
        source: Jinja source.
        special_tokens: special tokens: names such as bos_token and eos_token to their text.
        today: date given to a template that asks for one.
        is_default: whether Burnish's own template stands in for a missing one.
        file: path of the file that the recipe names; empty where the template is the model's own.

    Raises:
        DataError: The source is too long, not valid Jinja, or exceeds a limit.
        SetupError: The process cannot be started.
    """

    def __init__(
        self,
        source: str,
        special_tokens: dict[str, Any],
        *,
        today: date = TRAINING_DATE,
        is_default: bool = False,
        file: str = "",
    ) -> None:
        self.source = source
        self.special_tokens = special_tokens
        self.today = today
        self.is_default = is_default
        self.file = file
        if len(source) > LONGEST_SOURCE:
            raise self._refused(
                f"is {len(source):,} characters long; at most {LONGEST_SOURCE:,} are accepted", hostile=False
            )
        parts = {"source": source, "special_tokens": special_tokens, "today": today.isoformat()}
        key = blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        self._request = {"key": key, "template": parts}
        self.ask("compile")

    @cached_property
    def formed(self) -> FormedTemplate:
        """The template as one that takes every content as a text, for conversations from anywhere."""
        return FormedTemplate(self)

    @property
    def writes_date(self) -> bool:
        """Whether the template asks for today's date."""
        return "strftime_now" in self.source

    def render(self, messages: Messages, *, add_generation_prompt: bool = False, tools: Sequence[Any] = ()) -> str:
        """Render a conversation to text.

        Args:
            messages: turns with role, content and further fields that the template knows.
            add_generation_prompt: whether to add the text that stands before a reply, which the model continues.
            tools: JSON schemas of the tools that may be called.

        Raises:
            RowError: The template does not take this conversation.
            DataError: The template tries to leave its sandbox or exceeds a limit.
        """
        turns = [dict(message) for message in messages]
        answer = self.ask("render", messages=turns, add_generation_prompt=add_generation_prompt, tools=list(tools))
        return str(answer["text"])

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send the render process a request about this template; see `render_process`.

        Args:
            do: name of the work: compile, render or rows.
            arguments: arguments of that work.

        Raises:
            RowError: The template does not take the conversation.
            DataError: The template is invalid, tries to leave its sandbox or exceeds a limit.
            SetupError: The process cannot be started.
        """
        answer = shared.ask({**self._request, "do": do, **arguments})
        if "row_error" in answer:
            raise RowError(answer["row_error"])
        if "fault" in answer:
            raise self._refused(answer["fault"], hostile=answer["hostile"])
        return answer

    def _refused(self, what: str, *, hostile: bool) -> DataError:
        whose = f"The chat template {shorten(self.file, 200)}" if self.file else "The model's chat template"
        if hostile:
            remedy = "Do not use it: name another in data.template." if self.file else _REPLACE
            return DataError(f"{whose} was stopped in its sandbox: {shorten(what, 160)}.", remedy)
        return DataError(f"{whose} {what}.", "Correct the file." if self.file else _CHECK)


def chat_template(tokenizer: Any, *, today: date = TRAINING_DATE, chosen: str = "auto") -> ChatTemplate:
    """Return the tokenizer's own template, a plain one where it has none, or the one that a recipe chooses.

    Args:
        tokenizer: transformers tokenizer.
        today: date given to a template that asks for one.
        chosen: the recipe's data.template: "auto", a name of `library.TEMPLATES`, or a file with Jinja source.

    Raises:
        DataError: The template is invalid, the tokenizer has several and none is the default, or the chosen one does
            not exist or needs an end-of-sequence token that the tokenizer lacks.
        SetupError: The render process cannot be started.
    """
    source = tokenizer.chat_template if chosen == "auto" else template_source(chosen)
    file = "" if chosen == "auto" or chosen in TEMPLATES else chosen
    if chosen in ENDING_WITH_EOS and tokenizer.eos_token is None:
        others = [name for name in TEMPLATES if name not in ENDING_WITH_EOS]
        raise DataError(
            f"The chat template {chosen} ends replies with the tokenizer's end-of-sequence token, which this model's "
            "tokenizer does not have.",
            f"Choose one that ends them with a token of its own: {', '.join(others)}.",
        )
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
    if source and str(source).strip():
        return ChatTemplate(str(source), special_tokens, today=today, file=file)
    if "eos_token" not in special_tokens:
        special_tokens["eos_token"] = ""
    plain = PLAIN_TEMPLATE.format(bos="bos_token" if adds_bos(tokenizer) else "''")
    return ChatTemplate(plain, special_tokens, today=today, is_default=True)


def check_template(chosen: str) -> None:
    """Check that the template that a recipe names exists and is valid Jinja.

    Args:
        chosen: the recipe's data.template.

    Raises:
        DataError: The file cannot be read, is empty, is not valid Jinja or exceeds a limit.
        SetupError: The render process cannot be started.
    """
    if chosen != "auto" and chosen not in TEMPLATES:
        ChatTemplate(template_source(chosen), {}, file=chosen)


def adds_bos(tokenizer: Any) -> bool:
    """Whether the tokenizer puts its beginning-of-sequence token before every text."""
    bos = tokenizer.bos_token_id
    if bos is None:
        return False
    ids: list[int] = tokenizer("a")["input_ids"]
    return bool(ids) and ids[0] == bos and tokenizer("a", add_special_tokens=False)["input_ids"][0] != bos
