"""What a chat template does and does not do, found out by rendering small conversations."""

from __future__ import annotations

from collections.abc import Sequence

from burnish_engine.contract.data_report import TemplateFacts
from burnish_engine.data.conversation import Conversation, Message
from burnish_engine.data.problems import RowError
from burnish_engine.data.spans import Rendered, Renderer
from burnish_engine.data.template import ChatTemplate
from burnish_engine.data.template_library import CONTROL_TOKENS

_SYSTEM, _ASKED, _SAID = "xsystemx", "xaskedx", "xsaidx"


def template_facts(
    template: ChatTemplate, eos_token: str | None, added: Sequence[str], *, chosen: str = "auto"
) -> TemplateFacts:
    """What a template does.

    Args:
        template: The template.
        eos_token: The tokenizer's end-of-sequence token, if it has one.
        added: Texts of the tokenizer's added tokens.
        chosen: The recipe's data.template.
    """
    renderer = Renderer(template, eos_token, added)
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
        writes_calls=renderer.adapter.call_style is not None,
        writes_tools=renderer.adapter.takes_tools,
        writes_thoughts=bool(renderer.adapter.reasoning_name),
    )


def missing_tokens(chosen: str, added: Sequence[str]) -> list[str]:
    """Control tokens of a known template that the vocabulary does not have as one token."""
    return [token for token in CONTROL_TOKENS.get(chosen, ()) if token not in added]


def _rendered(renderer: Renderer, *messages: Message) -> Rendered | None:
    try:
        return renderer.render(Conversation(messages, None, 0, ""))
    except RowError:
        return None


def _text(template: ChatTemplate, *messages: Message, prompt: bool = False) -> str | None:
    try:
        return template.render([message.as_dict() for message in messages], add_generation_prompt=prompt)
    except RowError:
        return None
