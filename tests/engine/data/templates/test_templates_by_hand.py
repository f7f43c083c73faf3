"""What is learned, token by token, against each template written out by hand, turn by turn. Nothing is searched for."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from burnish_engine.data.files.problems import RowError
from burnish_engine.data.rows.conversation import Conversation, messages_of
from burnish_engine.data.templates.spans import NOTHING_LEFT, ChatRenderer
from burnish_engine.data.templates.template import ChatTemplate, chat_template
from burnish_engine.data.tokens.tokenize import Encoder, TokenizerParts

from support.data.chat_templates import MINISTRAL3_SYSTEM, QWEN25_SYSTEM, SPECIAL, TEMPLATES, WITH_TOOLS

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Says the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def dumps(value, **options):
    return json.dumps(value, ensure_ascii=False, **options)


def qwen_system(messages, tools, default):
    system = messages[0]["content"] if messages[0]["role"] == "system" else default
    if tools:
        text = f"{system}\n\n" if system or messages[0]["role"] == "system" else ""
        text += (
            "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with "
            "function signatures within <tools></tools> XML tags:\n<tools>"
        )
        text += "".join(f"\n{dumps(tool)}" for tool in tools)
        text += (
            "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
            '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": '
            "<args-json-object>}\n</tool_call>"
        )
        return f"<|im_start|>system\n{text}<|im_end|>\n"
    return f"<|im_start|>system\n{system}<|im_end|>\n" if system or messages[0]["role"] == "system" else ""


def call_block(call):
    function = call["function"]
    head = f'<tool_call>\n{{"name": "{function["name"]}", "arguments": '
    return f"{head}{dumps(function['arguments'])}}}\n</tool_call>"


def tool_turn(messages, index):
    if messages[index - 1]["role"] != "tool":
        yield "<|im_start|>user", False
    yield f"\n<tool_response>\n{messages[index]['content']}\n</tool_response>", False
    if index + 1 == len(messages) or messages[index + 1]["role"] != "tool":
        yield "<|im_end|>\n", False


def chatml(messages, _tools, _bos, _eos):
    for message in messages:
        yield f"<|im_start|>{message['role']}\n", False
        yield f"{message['content']}<|im_end|>", message["role"] == "assistant"
        yield "\n", False


def smollm(messages, tools, bos, eos):
    if messages[0]["role"] != "system":
        said = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
        yield f"<|im_start|>system\n{said}<|im_end|>\n", False
    yield from chatml(messages, tools, bos, eos)


def qwen25(messages, tools, _bos, _eos):
    yield qwen_system(messages, tools, QWEN25_SYSTEM), False
    for index, message in enumerate(messages):
        if message["role"] == "system":
            continue
        if message["role"] == "tool":
            yield from tool_turn(messages, index)
            continue
        yield f"<|im_start|>{message['role']}\n", False
        parts = [message["content"]] if message["content"] or "tool_calls" not in message else []
        parts += [call_block(call) for call in message.get("tool_calls", [])]
        yield "\n".join(parts) + "<|im_end|>", message["role"] == "assistant"
        yield "\n", False


def qwen3(messages, tools, _bos, _eos):
    yield qwen_system(messages, tools, ""), False
    last = max(index for index, message in enumerate(messages) if message["role"] == "user")
    for index, message in enumerate(messages):
        role, content = message["role"], message["content"]
        if role == "system":
            continue
        if role == "tool":
            yield from tool_turn(messages, index)
            continue
        yield f"<|im_start|>{role}\n", False
        thoughts = message.get("reasoning_content", "")
        if role == "assistant" and not thoughts and "</think>" in content:
            thoughts = content.split("</think>")[0].rstrip("\n").split("<think>")[-1].lstrip("\n")
            content = content.split("</think>")[-1].lstrip("\n")
        written = content
        if role == "assistant" and index > last and (thoughts or index + 1 == len(messages)):
            thoughts = thoughts.strip("\n")
            written = content.lstrip("\n")
            yield f"<think>\n{thoughts}\n</think>\n\n", True
        for number, call in enumerate(message.get("tool_calls", [])):
            written += ("\n" if content or number else "") + call_block(call)
        yield f"{written}<|im_end|>", role == "assistant"
        yield "\n", False


def llama3(messages, tools, bos, _eos):
    system = messages[0]["content"].strip() if messages[0]["role"] == "system" else ""
    turns = messages[1:] if messages[0]["role"] == "system" else messages
    environment = "Environment: ipython\n" if tools else ""
    dates = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
    yield f"{bos}<|start_header_id|>system<|end_header_id|>\n\n{environment}{dates}{system}<|eot_id|>", False
    for index, message in enumerate(turns):
        role = {"tool": "ipython"}.get(message["role"], message["role"])
        yield f"<|start_header_id|>{role}<|end_header_id|>\n\n", False
        said = message["content"].strip() if message["content"] else ""
        if message["role"] == "tool":
            said = dumps(message["content"])
        elif "tool_calls" in message:
            function = message["tool_calls"][0]["function"]
            said = f'{{"name": "{function["name"]}", "parameters": {dumps(function["arguments"])}}}'
        elif tools and index == 0:
            yield (
                (
                    "Given the following functions, please respond with a JSON for a function call with its proper "
                    'arguments that best answers the given prompt.\n\nRespond in the format {"name": function name, '
                    '"parameters": '
                    "dictionary of argument name and its value}.Do not use variables.\n\n"
                ),
                False,
            )
            for tool in tools:
                yield f"{dumps(tool, indent=4)}\n\n", False
        yield f"{said}<|eot_id|>", role == "assistant"


def gemma(messages, _tools, bos, _eos):
    yield bos, False
    first = f"{messages[0]['content']}\n\n" if messages[0]["role"] == "system" else ""
    for message in messages[1:] if first or messages[0]["role"] == "system" else messages:
        role = "model" if message["role"] == "assistant" else message["role"]
        yield f"<start_of_turn>{role}\n{first}", False
        first = ""
        yield f"{message['content'].strip()}<end_of_turn>", role == "model"
        yield "\n", False


def phi(messages, _tools, _bos, eos):
    for message in messages:
        if message["role"] == "system" and not message["content"]:
            continue
        yield f"<|{message['role']}|>\n", False
        yield f"{message['content']}<|end|>", message["role"] == "assistant"
        yield "\n", False
    yield eos, False


def mistral(messages, tools, bos, eos):
    yield bos, False
    asked = [message for message in messages if message["role"] == "user"]
    for index, message in enumerate(messages):
        if message["role"] == "user":
            offered = f"[AVAILABLE_TOOLS]{dumps(tools)}[/AVAILABLE_TOOLS]" if tools and message is asked[-1] else ""
            last = index + 1 == len(messages) and messages[0]["role"] == "system"
            system = f"{messages[0]['content']}\n\n" if last else ""
            yield f"{offered}[INST]{system}{message['content']}[/INST]", False
        elif "tool_calls" in message:
            calls = [f'{dumps(call["function"])[:-1]}, "id": "{call["id"]}"}}' for call in message["tool_calls"]]
            yield f"[TOOL_CALLS][{', '.join(calls)}]{eos}", True
        elif message["role"] == "assistant":
            yield f"{message['content']}{eos}", True
        elif message["role"] == "tool":
            told = f'{{"content": {message["content"]}, "call_id": "{message["tool_call_id"]}"}}'
            yield f"[TOOL_RESULTS]{told}[/TOOL_RESULTS]", False


def zephyr(messages, _tools, _bos, eos):
    for message in messages:
        yield f"<|{message['role']}|>\n", False
        yield f"{message['content']}{eos}", message["role"] == "assistant"
        yield "\n", False


def deepseek(messages, _tools, bos, eos):
    yield bos + next((m["content"] for m in messages if m["role"] == "system"), ""), False
    told = False
    for index, message in enumerate(messages):
        if message["role"] == "user":
            yield f"<｜User｜>{message['content']}", False
        elif "tool_calls" in message:
            [call] = message["tool_calls"]
            function = call["function"]
            yield "<｜Assistant｜>", False
            said = f"function<｜tool▁sep｜>{function['name']}\n```json\n{dumps(function['arguments'])}\n```"
            yield f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{said}<｜tool▁call▁end｜>", True
        elif message["role"] == "tool":
            told = True
            yield f"<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>{message['content']}<｜tool▁output▁end｜>", False
            if index + 1 == len(messages):
                yield "<｜tool▁outputs▁end｜>", False
        elif message["role"] == "assistant":
            yield ("<｜tool▁outputs▁end｜>" if told else "<｜Assistant｜>"), False
            yield f"{message['content'] if told else message['content'].split('</think>')[-1]}{eos}", True
            told = False


def granite4(messages, tools, _bos, _eos):
    system = messages[0]["content"] if messages[0]["role"] == "system" else ""
    turns = messages[1:] if messages[0]["role"] == "system" else messages
    if tools:
        system += "\n\n" if system else ""
        system += (
            "You are a helpful assistant with access to the following tools. You may call one or more tools to assist "
            "with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:"
            "\n<tools>"
        )
        system += "".join(f"\n{dumps(tool)}" for tool in tools)
        system += (
            "\n</tools>\n\nFor each tool call, return a json object with function name and arguments within "
            '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": '
            "<args-json-object>}\n</tool_call>. If a tool does not exist in the provided list of tools, notify the "
            "user that you do not have the ability to fulfill the request."
        )
    if system:
        yield f"<|start_of_role|>system<|end_of_role|>{system}<|end_of_text|>\n", False
    for index, message in enumerate(turns):
        if message["role"] == "tool":
            ends = {"<|im_start|>user": "<|start_of_role|>user<|end_of_role|>", "<|im_end|>\n": "<|end_of_text|>\n"}
            yield from ((ends.get(text, text), flag) for text, flag in tool_turn(turns, index))
            continue
        yield f"<|start_of_role|>{message['role']}<|end_of_role|>", False
        parts = [message["content"]] if message["content"] or "tool_calls" not in message else []
        parts += [call_block(call) for call in message.get("tool_calls", [])]
        yield "\n".join(parts) + "<|end_of_text|>", message["role"] == "assistant"
        yield "\n", False


def olmo2(messages, _tools, bos, eos):
    yield bos, False
    for index, message in enumerate(messages):
        replies = message["role"] == "assistant"
        yield f"<|{message['role']}|>\n", False
        yield message["content"] + (eos if replies else ""), replies
        yield "" if replies and index + 1 == len(messages) else "\n", False


def ministral3(messages, tools, bos, eos):
    system = messages[0]["content"] if messages[0]["role"] == "system" else MINISTRAL3_SYSTEM
    yield f"{bos}[SYSTEM_PROMPT]{system}[/SYSTEM_PROMPT]", False
    yield f"[AVAILABLE_TOOLS]{dumps(tools)}[/AVAILABLE_TOOLS]" if tools else "", False
    for message in messages[1:] if messages[0]["role"] == "system" else messages:
        if message["role"] == "user":
            yield f"[INST]{message['content']}[/INST]", False
        elif message["role"] == "tool":
            yield f"[TOOL_RESULTS]{message['content']}[/TOOL_RESULTS]", False
        else:
            functions = [call["function"] for call in message.get("tool_calls", [])]
            calls = "".join(f"[TOOL_CALLS]{one['name']}[ARGS]{dumps(one['arguments'])}" for one in functions)
            yield message["content"] + calls + eos, True


def lfm25(messages, _tools, bos, _eos):
    yield bos, False
    last = max(index for index, message in enumerate(messages) if message["role"] == "assistant")
    was_cut = False
    for index, message in enumerate(messages):
        content, replies = message["content"], message["role"] == "assistant"
        thinks = replies and "</think>" in content
        if thinks and index != last:
            content = content.split("</think>")[-1].strip()
        # The prompt of a reply ends with the token, unless the reply before it is written otherwise there.
        opened = "<think>" if replies and content.startswith("<think>") and not was_cut else ""
        yield f"<|im_start|>{message['role']}\n{opened}", False
        yield f"{content.removeprefix(opened)}<|im_end|>", replies
        yield "\n", False
        was_cut = thinks if replies else was_cut


REFERENCES = {
    "llama3": llama3, "qwen2.5": qwen25, "qwen3": qwen3, "gemma": gemma, "phi": phi, "mistral": mistral,
    "smollm": smollm, "chatml": chatml, "zephyr": zephyr, "deepseek": deepseek, "granite4": granite4, "olmo2": olmo2,
    "ministral3": ministral3, "lfm2.5": lfm25,
}  # fmt: skip

SEVERAL_CALLS = ("qwen2.5", "qwen3", "mistral", "granite4", "ministral3")
"""Templates that write several calls in one turn."""

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
    for said, learned in ((messages[:2], ["Hm.</think><a"]), (messages, ["<a", "<think>Ha.</think> b"])):
        rendered = renderer.render(Conversation(tuple(messages_of(said)), None, 1, "file"))
        assert [rendered.text[start:end] for start, end in rendered.spans] == [f"{one}<|im_end|>" for one in learned]
