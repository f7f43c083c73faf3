"""What is learned, token by token, against each template written out by hand, turn by turn. Nothing is searched for."""

import numpy as np
import pytest
from engine.data.templates.by_hand import REFERENCES, SEVERAL_CALLS, TOOL
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from burnish_engine.data.files.problems import RowError
from burnish_engine.data.rows.conversation import Conversation, messages_of
from burnish_engine.data.templates.spans import NOTHING_LEFT, ChatRenderer
from burnish_engine.data.templates.template import ChatTemplate, chat_template
from burnish_engine.data.tokens.tokenize import Encoder, TokenizerParts

from support.data.chat_templates import SPECIAL, TEMPLATES, WITH_TOOLS

fragments = st.sampled_from(
    [
        *("Hello", "assistant", ".", "\\", '"', "'", "<b>&amp;</b>", "{{ 7 * 7 }}", "{% endfor %}", "}"),
        *(" ", "  ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u200b"),
        *("é", "e\u0301", "😀", "👍🏽", "你好", "مرحبا", "\ue000", "\ue001", "\uf8fe"),
        *("<|im_end|>", "<|im_start|>assistant\n", "</s>", "<|eot_id|>", "<end_of_turn>", "[/INST]", "<think>"),
        *("<｜Assistant｜>", "<｜end▁of▁sentence｜>", "</tool_call>", "<|end|>"),
    ]
)
contents = st.lists(fragments, max_size=6).map("".join)
replies = contents.filter(str.strip)
thoughts = st.sampled_from(["Hm.", "a\nb", "one <b> two"])
arguments = st.dictionaries(st.sampled_from(["city", "día", "n"]), st.one_of(contents, st.integers(0, 9)), max_size=2)


@st.composite
def chats(draw, name):
    """A chat of a few exchanges, with calls of tools where the template knows them."""
    tools = [TOOL] if name in WITH_TOOLS and draw(st.booleans()) else []
    messages = [{"role": "system", "content": draw(contents)}] if draw(st.booleans()) else []
    number = 0
    for exchange in range(draw(st.integers(1, 3))):
        # Mistral's template takes equal questions for the same one.
        messages.append({"role": "user", "content": draw(contents) + (f"({exchange})" if name == "mistral" else "")})
        rounds = draw(st.integers(0, 2)) if tools and not (name == "deepseek" and number) else 0
        for _ in range(min(rounds, 1) if name == "deepseek" else rounds):
            count = draw(st.integers(1, 2)) if name in SEVERAL_CALLS else 1
            calls = []
            for _ in range(count):
                number += 1
                function = {"name": "weather", "arguments": draw(arguments)}
                calls.append({"id": f"call{number:05d}", "type": "function", "function": function})
            said = draw(contents) if name in ("qwen2.5", "granite4", "ministral3") else ""
            messages.append({"role": "assistant", "content": said, "tool_calls": calls})
            for call in calls:
                messages.append({"role": "tool", "content": draw(contents), "tool_call_id": call["id"]})
        reply = {"role": "assistant", "content": draw(replies)}
        if name == "qwen3":
            if draw(st.booleans()):
                reply["reasoning_content"] = draw(thoughts)
            elif draw(st.booleans()):
                reply["content"] = f"<think>\n{draw(thoughts)}\n</think>\n\n{reply['content']}"
        if name in ("deepseek", "lfm2.5") and draw(st.booleans()):
            reply["content"] = f"<think>\n{draw(thoughts)}\n</think>\n\n{reply['content']}"
        messages.append(reply)
    if draw(st.booleans()):
        messages.append({"role": "user", "content": draw(contents) + ("(last)" if name == "mistral" else "")})
    return messages, tools


@pytest.fixture(scope="module")
def tokenizers():
    """A byte-level tokenizer with each template, as transformers has it."""
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    corpus = ['Hello world, how are you? {"name": "weather"}\n user assistant\n\n'] * 4
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=SPECIAL, initial_alphabet=alphabet)
    raw.train_from_iterator(corpus, trainer)
    made = {}
    for name, (source, bos, eos) in TEMPLATES.items():
        made[name] = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token=bos, eos_token=eos)
        made[name].chat_template = source
    return made


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", list(TEMPLATES))
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_tokens_are_learned_as_a_rendering_turn_by_turn_says(tokenizers, name, data):
    tokenizer = tokenizers[name]
    messages, tools = data.draw(chats(name))
    parts = TokenizerParts.of(tokenizer)
    renderer = ChatRenderer(chat_template(tokenizer), parts.eos_token, parts.added)
    rendered = renderer.render(Conversation(tuple(messages_of(messages)), None, 1, "file", tuple(tools)))

    segments = list(REFERENCES[name](messages, tools, tokenizer.bos_token or "", tokenizer.eos_token))
    assert rendered.text == "".join(text for text, _ in segments)
    characters = [False] * len(rendered.text)
    for start, end in rendered.spans:
        characters[start:end] = [True] * (end - start)
    assert characters == [supervised for text, supervised in segments for _ in text]
    assert not rendered.add_eos

    [(ids, supervised)] = Encoder(parts).encode([rendered])
    flags = np.array([flag for text, flag in segments for _ in text])
    offsets = parts_offsets(tokenizer, rendered.text)
    assert supervised.tolist() == [bool(flags[a:b].any()) and n > 0 for n, (a, b) in enumerate(offsets)]
    assert len(ids) == len(offsets)


def parts_offsets(tokenizer, text):
    return tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).offsets


@pytest.mark.parametrize("name", sorted(set(TEMPLATES) - set(WITH_TOOLS)))
def test_templates_without_calls_refuse_them(tokenizers, name):
    tokenizer = tokenizers[name]
    parts = TokenizerParts.of(tokenizer)
    renderer = ChatRenderer(chat_template(tokenizer), parts.eos_token, parts.added)
    call = {"type": "function", "function": {"name": "weather", "arguments": {}}}
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
    with pytest.raises(RowError, match="does not write calls"):
        renderer.render(Conversation(tuple(messages_of(chat)), None, 1, "file"))


@pytest.mark.parametrize("learn", ["last", "responses", "everything"])
@pytest.mark.parametrize("name", list(TEMPLATES))
def test_last_reply_alone_and_turns_with_weight_zero(tokenizers, name, learn):
    tokenizer = tokenizers[name]
    parts = TokenizerParts.of(tokenizer)
    renderer = ChatRenderer(chat_template(tokenizer), parts.eos_token, parts.added, learn=learn)
    chat = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "first", "weight": 0},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "second"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "third", "weight": 1},
    ]
    rendered = renderer.render(Conversation(tuple(messages_of(chat)), None, 1, "file"))
    texts = [rendered.text[start:end] for start, end in rendered.spans]
    expected = {"last": ["third"], "responses": ["second", "third"]}
    if learn == "everything":
        assert texts == [rendered.text]
    else:
        assert len(texts) == len(expected[learn])
        assert all(word in text for word, text in zip(expected[learn], texts, strict=True))


THOUGHT = "<think>\nHm.\n</think>\n\n"


@pytest.mark.parametrize(
    ("said", "learned"),
    [
        ((f"{THOUGHT}a", f"{THOUGHT}b", f"{THOUGHT}c"), ("a", "b", f"{THOUGHT}c")),
        ((f"{THOUGHT}<b>a</b>", "b"), ("<b>a</b>", "b")),
        ((f"{THOUGHT}<thin", f"{THOUGHT}<think>", "c"), ("<thin", "<think>", "c")),
        ((f"{THOUGHT}a ", " b", "c"), ("a", " b", "c")),
        (("<think>",), ("",)),
        (("<think>", "a", "<think>"), ("", "a", "")),
        ((f"{THOUGHT}<think>", "a"), ("", "a")),
    ],
)
def test_replies_are_learned_whole_where_the_prompt_opens_their_thoughts_and_the_template_cuts_them(
    tokenizers, said, learned
):
    rendered = render_replies(tokenizers["lfm2.5"], said)
    assert [rendered.text[start:end] for start, end in rendered.spans] == [f"{reply}<|im_end|>" for reply in learned]


def test_a_reply_of_which_the_template_leaves_nothing_is_refused_for_that(tokenizers):
    with pytest.raises(RowError) as caught:
        render_replies(tokenizers["lfm2.5"], (f"{THOUGHT}a", THOUGHT, "c"))
    assert caught.value.reason == NOTHING_LEFT


def render_replies(tokenizer, said):
    """Render a chat of questions and these replies."""
    parts = TokenizerParts.of(tokenizer)
    renderer = ChatRenderer(chat_template(tokenizer), parts.eos_token, parts.added)
    chat = [turn for reply in said for turn in (("user", "q"), ("assistant", reply))]
    messages = [{"role": role, "content": content} for role, content in chat]
    return renderer.render(Conversation(tuple(messages_of(messages)), None, 1, "file"))


THOUGHTS_APART = (
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
    "{% if m.reasoning_content and loop.index0 == ns.last %}"
    "{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}"
    "{{ m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n<think>' }}{% endif %}"
)


def test_thoughts_in_a_field_of_their_own_are_learned_where_the_template_keeps_them():
    renderer = ChatRenderer(ChatTemplate(THOUGHTS_APART, {}), None, ["<|im_start|>", "<|im_end|>"])
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "<a", "reasoning_content": "Hm."},
        {"role": "user", "content": "r"},
        {"role": "assistant", "content": " b", "reasoning_content": "Ha."},
    ]
    for said, learned in ((messages[:2], ["Hm.</think><a"]), (messages, ["<a", "Ha.</think> b"])):
        rendered = renderer.render(Conversation(tuple(messages_of(said)), None, 1, "file"))
        assert [rendered.text[start:end] for start, end in rendered.spans] == [f"{one}<|im_end|>" for one in learned]
