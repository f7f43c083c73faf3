"""Finds out what a chat template supports by rendering small conversations."""

from __future__ import annotations

import re
from collections.abc import Sequence

from burnish_engine.contract.facts.data_report import TemplateFacts
from burnish_engine.data.files.problems import RowError
from burnish_engine.data.rows.conversation import Conversation, Message
from burnish_engine.data.templates.library import CONTROL_TOKENS
from burnish_engine.data.templates.spans import ChatRenderer, RenderedRow
from burnish_engine.data.templates.template import ChatTemplate

_SYSTEM, _ASKED, _SAID = "xsystemx", "xaskedx", "xsaidx"
_MARKS = re.compile(r"<[^<>\s]{1,40}>|\[/?[A-Z_]{2,20}\]")
"""Texts that look like control tokens, for templates whose tokens the vocabulary lacks."""
_ROLE_LINES = re.compile(
    r"^[#\s]*(system|developer|user|human|assistant|model|instruction)\W*$", re.IGNORECASE | re.MULTILINE
)
_FEWEST_WORDS = 3  # fewer are the names of roles, not a message


def template_facts(
    template: ChatTemplate, eos_token: str | None, added: Sequence[str], *, chosen: str = "auto"
) -> TemplateFacts:
    """Find out what a template supports.

    Args:
        template: chat template.
        eos_token: the tokenizer's end-of-sequence token, if it has one.
        added: texts of the tokenizer's added tokens.
        chosen: the recipe's data.template.
    """
    renderer = ChatRenderer(template, eos_token, added)
    user, reply = Message("user", _ASKED), Message("assistant", _SAID)
    usual = _rendered(renderer, user, reply)
    with_system = _text(template, Message("system", _SYSTEM), user)
    plain, prompted = _text(template, user), _text(template, user, prompt=True)
    return TemplateFacts(
        name="plain" if template.is_default else chosen,
        takes_system=with_system is not None and _SYSTEM in with_system and _ASKED in with_system,
        takes_two_users=_text(template, user, user) is not None,
        has_prompt=plain is not None and prompted is not None and prompted != plain,
        prompt_fits=usual is not None and not usual.prompt_differs,
        turn_end=(usual.turn_end or "") if usual else "",
        ends_with_eos=bool(usual and usual.turn_end and usual.turn_end == eos_token),
        writes_calls=template.formed.call_style is not None,
        writes_tools=template.formed.takes_tools,
        writes_thoughts=template.formed.thought_form() is not None,
        adds=added_text(plain or "", added),
    )


def added_text(rendered: str, added: Sequence[str]) -> str:
    """Return what a template wrote before the only question of a conversation, but for control tokens and roles.

    Args:
        rendered: a conversation with a question and no system message, as the template writes it.
        added: texts of the tokenizer's added tokens.

    Returns:
        The text; empty where it is less than three words.
    """
    before = rendered.partition(_ASKED)[0]
    for token in sorted(added, key=len, reverse=True):
        before = before.replace(token, "\n")
    text = _ROLE_LINES.sub("", _MARKS.sub("\n", before)).strip()
    return text if len(text.split()) >= _FEWEST_WORDS else ""


def missing_tokens(chosen: str, added: Sequence[str]) -> list[str]:
    """List the control tokens of a library template that the vocabulary lacks as single tokens."""
    return [token for token in CONTROL_TOKENS.get(chosen, ()) if token not in added]


def _rendered(renderer: ChatRenderer, *messages: Message) -> RenderedRow | None:
    try:
        return renderer.render(Conversation(messages, None, 0, ""))
    except RowError:
        return None


def _text(template: ChatTemplate, *messages: Message, prompt: bool = False) -> str | None:
    try:
        return template.formed.render([message.as_dict() for message in messages], add_generation_prompt=prompt)
    except RowError:
        return None
