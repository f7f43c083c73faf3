"""The forms in which templates take texts and thoughts: the same row is written and learned alike in all of them."""

import pytest

from burnish_engine.data.rows.conversation import Conversation, messages_of
from burnish_engine.data.templates.spans import ChatRenderer
from burnish_engine.data.templates.template import ChatTemplate

PLAIN = "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
PROMPT = (
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>\\n\\n</think>\\n\\n' }}{% endif %}"
)
FIELD = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ '<|im_start|>assistant\\n<think>\\n' }}"
    "{{ m.NAME or '' }}{{ '\\n</think>\\n\\n' + m.content + '<|im_end|>\\n' }}"
    "{% else %}" + PLAIN + "{% endif %}" + PROMPT
)
PARTS = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' }}{% for part in m['content'] %}"
    "{% if part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
THOUGHTS_AS_PARTS = (
    "{% for m in messages %}{% if m.role == 'assistant' and m.content is not string %}"
    "{{ '<|im_start|>assistant\\n<think>\\n' }}{% for part in m.content %}{% if part.type == 'thinking' %}"
    "{{ part.thinking + '\\n</think>\\n\\n' }}{% else %}{{ part.text }}{% endif %}{% endfor %}{{ '<|im_end|>\\n' }}"
    "{% else %}" + PLAIN + "{% endif %}" + PROMPT
)
PRINTED = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}"
CHANNELS = (  # as gpt-oss: thoughts in a channel of their own, and cut once a later reply is not a call
    "{% for m in messages %}{% if m.role == 'assistant' and m.tool_calls %}"
    "{% if m.thinking and loop.last %}{{ '<start>assistant<analysis>' + m.thinking + '<end>' }}{% endif %}"
    "{{ '<start>assistant to=' + m.tool_calls[0].function.name + '<json>' + (m.tool_calls[0].function.arguments | "
    "tojson) + '<call>' }}{% elif m.role == 'assistant' %}"
    "{% if m.thinking and loop.last %}{{ '<start>assistant<analysis>' + m.thinking + '<end>' }}{% endif %}"
    "{{ '<start>assistant<final>' + m.content + ('<return>' if loop.last else '<end>') }}"
    "{% else %}{{ '<start>' + m.role + '<text>' + m.content + '<end>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start>assistant' }}{% endif %}"
)
TOKENS = ("<|im_start|>", "<|im_end|>", "<start>", "<end>", "<call>", "<return>")

QUESTION = {"role": "user", "content": "2 crates?"}
THOUGHT = {
    "field": {"role": "assistant", "content": "24.", "reasoning_content": "Twice twelve."},
    "inline": {"role": "assistant", "content": "<think>\nTwice twelve.\n</think>\n\n24."},
    "parts": {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "Twice twelve."}, {"type": "text", "text": "24."}],
    },
}


def render(source, *messages):
    renderer = ChatRenderer(ChatTemplate(source, {}), None, TOKENS)
    return renderer.render(Conversation(tuple(messages_of(list(messages))), None, 1, "file"))


def learned(row):
    return [row.text[start:end] for start, end in row.spans]


@pytest.mark.parametrize("form", list(THOUGHT))
@pytest.mark.parametrize(
    "source",
    [FIELD.replace("NAME", name) for name in ("reasoning_content", "reasoning", "thinking")] + [THOUGHTS_AS_PARTS],
    ids=["reasoning_content", "reasoning", "thinking", "parts"],
)
def test_thoughts_are_learned_alike_wherever_row_and_template_have_them(source, form):
    """The prompt of these templates holds empty thoughts: learning begins where the rendering leaves it."""
    row = render(source, QUESTION, THOUGHT[form])
    assert learned(row) == ["Twice twelve.\n</think>\n\n24.<|im_end|>"]
    assert not row.lost


def test_thoughts_that_begin_like_the_rest_of_the_prompt_are_learned_whole():
    row = render(FIELD.replace("NAME", "reasoning"), QUESTION, {**THOUGHT["field"], "reasoning_content": "\n</think"})
    assert learned(row) == ["\n</think\n</think>\n\n24.<|im_end|>"]


@pytest.mark.parametrize("form", list(THOUGHT))
def test_a_channel_that_moves_after_a_result_is_learned_from_its_begin(form):
    call = {"type": "function", "function": {"name": "look", "arguments": {"pier": "Norr"}}}
    asked = {"role": "assistant", "content": "", "tool_calls": [call], "reasoning_content": "A gauge."}
    row = render(CHANNELS, QUESTION, asked, {"role": "tool", "content": "40"}, THOUGHT[form])
    assert learned(row) == [
        ' to=look<json>{"pier": "Norr"}<call>',
        "<analysis>Twice twelve.<end><start>assistant<final>24.<return>",
    ]
    assert not row.prompt_differs


def test_contents_are_handed_over_as_parts_where_the_template_takes_nothing_else():
    row = render(PARTS, {"role": "system", "content": "Count."}, QUESTION, {"role": "assistant", "content": "24."})
    assert row.text.startswith("<|im_start|>system\nCount.<|im_end|>\n<|im_start|>user\n2 crates?<|im_end|>\n")
    assert learned(row) == ["24.<|im_end|>"]


def test_chats_hand_contents_over_as_parts_too():
    from burnish_engine.chat.prompt import render as render_chat

    assert render_chat(ChatTemplate(PARTS, {}), [QUESTION]).startswith("<|im_start|>user\n2 crates?<|im_end|>")


def test_a_template_that_prints_a_list_of_parts_is_given_texts():
    row = render(PRINTED, QUESTION, THOUGHT["parts"])
    assert row.text.endswith("assistant: <think>\nTwice twelve.\n</think>\n\n24.<|im_end|>")
