import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from burnish_engine.data.files.problems import RowError
from burnish_engine.data.rows.conversation import Conversation, Message
from burnish_engine.data.templates.row_renderer import RowRenderer
from burnish_engine.data.templates.spans import NOT_LOCATED, ChatRenderer
from burnish_engine.data.templates.template import ChatTemplate, chat_template
from burnish_engine.data.templates.written import BESIDE_CALL, REPLY

# The reference: each template written out by hand as (text, is it learned) segments. Nothing is searched for.


def chatml(messages, _bos):
    for role, content in messages:
        yield f"<|im_start|>{role}\n", False
        yield f"{content}<|im_end|>", role == "assistant"
        yield "\n", False


def llama3(messages, bos):
    yield bos, False
    for role, content in messages:
        yield f"<|start_header_id|>{role}<|end_header_id|>\n\n", False
        yield f"{content.strip()}<|eot_id|>", role == "assistant"


def gemma(messages, bos):
    yield bos, False
    for role, content in messages:
        yield f"<start_of_turn>{'model' if role == 'assistant' else role}\n", False
        yield f"{content.strip()}<end_of_turn>", role == "assistant"
        yield "\n", False


def zephyr(messages, _bos):
    for role, content in messages:
        yield f"<|{role}|>\n", False
        yield f"{content}</s>", role == "assistant"
        yield "\n", False


def mistral(messages, bos):
    yield bos, False
    system = ""
    for role, content in messages:
        if role == "system":
            system = f"{content}\n\n"
        elif role == "user":
            yield f"[INST] {system}{content} [/INST]", False
            system = ""
        else:
            yield f" {content.strip()}</s>", True


def qwen3(messages, _bos):
    last_user = max(index for index, (role, _) in enumerate(messages) if role == "user")
    for index, (role, content) in enumerate(messages):
        yield f"<|im_start|>{role}\n", False
        thoughts, said = "", content
        if role == "assistant":
            if "</think>" in content:
                thoughts = content.split("</think>")[0].rstrip("\n").split("<think>")[-1].strip("\n")
                said = content.split("</think>")[-1].lstrip("\n")
            if index > last_user:
                said = said.lstrip("\n")
                yield f"<think>\n{thoughts}\n</think>\n\n", True
        yield f"{said}<|im_end|>", role == "assistant"
        yield "\n", False


REFERENCES = {"chatml": chatml, "llama3": llama3, "gemma": gemma, "zephyr": zephyr, "mistral": mistral, "qwen3": qwen3}

fragments = st.sampled_from(
    [
        *("Hello", "assistant", ".", "\\", '"', "'", "<b>&amp;</b>", "{{ 7 * 7 }}", "{% endfor %}"),
        *(" ", "  ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u200b"),
        *("é", "e\u0301", "😀", "👍🏽", "你好", "مرحبا", "\ue000", "\ue001", "\uf8fe"),
        *("<|im_end|>", "<|im_start|>assistant\n", "</s>", "<|eot_id|>", "<end_of_turn>", "[/INST]", "<think>"),
    ]
)
contents = st.lists(fragments, max_size=8).map("".join)
replies = contents.filter(str.strip)
thoughtful = st.builds("<think>\n{}\n</think>\n\n{}".format, st.sampled_from(["", "Hm.", "a\nb"]), replies)


@st.composite
def chats(draw, *, system=True, thoughts=False):
    messages = [("system", draw(contents))] if system and draw(st.booleans()) else []
    reply = st.one_of(replies, thoughtful) if thoughts else replies
    for _ in range(draw(st.integers(1, 4))):
        messages += [("user", draw(contents)), ("assistant", draw(reply))]
    return messages + ([("user", draw(contents))] if draw(st.booleans()) else [])


def conversation(messages):
    return Conversation(tuple(Message(*message) for message in messages), None, 1, "file")


def renderer_for(tokenizer, **options):
    added = [token.content for token in tokenizer.added_tokens_decoder.values()]
    return ChatRenderer(chat_template(tokenizer), tokenizer.eos_token, added, **options)


def learned_characters(rendered):
    flags = [False] * len(rendered.text)
    for start, end in rendered.spans:
        assert 0 <= start < end <= len(flags)
        flags[start:end] = [True] * (end - start)
    return flags


@pytest.mark.full
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_spans_equal_a_hand_written_rendering(make_tokenizer, template_name, data):
    tokenizer = make_tokenizer(template_name)
    messages = data.draw(chats(system=template_name != "gemma", thoughts=template_name == "qwen3"))
    segments = list(REFERENCES[template_name](messages, tokenizer.bos_token))
    rendered = renderer_for(tokenizer).render(conversation(messages))
    assert rendered.text == "".join(text for text, _ in segments)
    assert learned_characters(rendered) == [supervised for text, supervised in segments for _ in text]
    assert not rendered.add_bos
    assert not rendered.add_eos
    assert not rendered.prompt_differs


def learned_texts(rendered):
    return [rendered.text[start:end] for start, end in rendered.spans]


CHAT = [("user", "Hi"), ("assistant", "Hello"), ("user", "Bye"), ("assistant", "Ciao")]


def render(source, messages=CHAT, added=("<s>", "</s>", "<|user|>", "<|end|>"), eos="</s>", **options):
    template = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"})
    return ChatRenderer(template, eos, added, **options).render(conversation(messages))


TURNS = "{% for m in messages %}"
PROMPT = "{% endfor %}{% if add_generation_prompt %}<|bot|>{% endif %}"


def test_template_that_looks_into_the_reply_falls_back_to_prefixes():
    source = (
        TURNS + "{% if m.role == 'user' %}<|user|>{{ m.content }}"
        "{% elif m.content.startswith('H') and m.content.endswith('o') %}<|bot|>*{{ m.content }}*<|end|>"
        "{% else %}<|bot|>{{ m.content }}<|end|>{% endif %}" + PROMPT
    )
    assert learned_texts(render(source)) == ["*Hello*<|end|>", "Ciao<|end|>"]


def test_thoughts_cut_from_earlier_replies_only():
    source = (
        TURNS + "<|{{ m.role }}|>{% if m.content.startswith('<think>') and not loop.last %}"
        "{{ m.content.split('</think>')[1] }}{% else %}{{ m.content }}{% endif %}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    messages = [("user", "a"), ("assistant", "<think>x</think>Hi"), ("user", "b"), ("assistant", "<think>y</think>Ho")]
    assert learned_texts(render(source, messages)) == ["Hi<|end|>", "<think>y</think>Ho<|end|>"]


def test_reply_that_cannot_be_located_is_refused():
    source = "{{ messages | length }}{{ range(messages | length) | join('+') }}"
    with pytest.raises(RowError) as caught:
        render(source)
    assert NOT_LOCATED in caught.value.reason
    assert REPLY in caught.value.reason


OPEN_CALLS = (  # like Gemma 4's: the prompt has empty thoughts, results stand in the turn of their call
    "{% for m in messages %}{% if m.role == 'tool' %}<|result>{{ m.content }}<result|>"
    "{% else %}{% if loop.first or loop.previtem.role != 'tool' %}<|turn>{{ m.role }}\n{% endif %}"
    "{% for c in m.tool_calls or [] %}<|call>{{ c.function.name }}{{ c.function.arguments | tojson }}<call|>"
    "{% endfor %}"
    "{% if not m.tool_calls %}{{ m.content }}<turn|>\n{% endif %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt and messages[-1].role != 'tool' %}<|turn>assistant\n<|thought><thought|>{% endif %}"
)
CALL = {"type": "function", "function": {"name": "look", "arguments": {"pier": "Norr"}}}
CALLING = (Message("user", "Norr?"), Message("assistant", "", {"tool_calls": [CALL]}), Message("tool", "40"))


def rendered_calls(source, messages):
    added = ["<|turn>", "<turn|>", "<|call>", "<call|>", "<|result>", "<result|>", "<|thought>", "<thought|>"]
    return ChatRenderer(ChatTemplate(source, {}), None, added).render(Conversation(tuple(messages), None, 1, "file"))


def test_a_call_whose_prompt_has_thoughts_that_the_rendering_lacks_is_learned_whole():
    call, said = learned_texts(rendered_calls(OPEN_CALLS, [*CALLING, Message("assistant", "It is 40.")]))
    assert call.startswith('<|call>look{"pier": "Norr"}<call|>')
    assert said == "It is 40.<turn|>"


def test_a_call_that_cannot_be_located_is_named_with_its_place_and_what_it_lacks():
    chat = [Message("user", "Hi"), Message("assistant", "Hello."), *CALLING]
    chat[3] = Message("assistant", "I look.", {"tool_calls": [CALL]})
    counting = "{{ messages | length }}" + OPEN_CALLS.replace("<|result>{{ m.content", "<|result>{{ m.content | length")
    with pytest.raises(RowError) as caught:
        rendered_calls(counting, chat)
    assert caught.value.reason.startswith("reply 2, a call of a tool")
    assert BESIDE_CALL in caught.value.reason


ALWAYS_PROMPTS = (  # like Command A's: the prompt is written unasked, and turns begin by what they are
    "{% for m in messages %}{% if m.role == 'assistant' %}<|turn><|bot>"
    "{% if m.tool_calls %}<|plan><plan|>{% for c in m.tool_calls %}<|call>{{ c.function.name }}"
    "{{ c.function.arguments | tojson }}<call|>{% endfor %}{% else %}<|say>{{ m.content }}<say|>{% endif %}<turn|>\n"
    "{% else %}<|turn><|{{ m.role }}>{{ m.content }}<turn|>{% endif %}{% endfor %}<|turn><|bot>"
)
JOINED_CALLS = (  # like DeepSeek V3's: what ends results is not written before a further call
    "{% set ns = namespace(called=false, results=false) %}{% for m in messages %}{% if m.role == 'user' %}"
    "<|user>{{ m.content }}{% elif m.role == 'tool' %}{% set ns.results = true %}<|result>{{ m.content }}<result|>"
    "{% elif m.tool_calls %}{% set ns.results = false %}{% if not ns.called %}<|bot>{% endif %}"
    "{% set ns.called = true %}{% set c = m.tool_calls[0].function %}<|call>{{ c.name }}"
    "{{ c.arguments | tojson }}<call|><turn|>{% else %}{% if ns.results %}<results|>"
    "{% else %}<|bot>{% endif %}{{ m.content }}<turn|>{% set ns.results = false %}{% endif %}{% endfor %}"
    "{% if ns.results %}<results|>{% elif add_generation_prompt %}<|bot>{% endif %}"
)
BOTH = [*CALLING, Message("assistant", "", {"tool_calls": [CALL]}), Message("tool", "50")]


def test_calls_are_located_where_the_template_writes_the_prompt_unasked():
    added = ["<|turn>", "<turn|>", "<|bot>", "<|say>", "<say|>", "<|plan>", "<plan|>", "<|call>", "<call|>", "<|user>"]
    template = ChatTemplate(ALWAYS_PROMPTS, {})
    chat = Conversation((*BOTH, Message("assistant", "Both.")), None, 1, "file")
    call = '<|plan><plan|><|call>look{"pier": "Norr"}<call|><turn|>'
    assert learned_texts(ChatRenderer(template, "<turn|>", added).render(chat)) == [
        call,
        call,
        "<|say>Both.<say|>",
    ]
    last = Conversation(tuple(BOTH[:2]), None, 1, "file")
    assert learned_texts(ChatRenderer(template, "<turn|>", added).render(last)) == [call]


def test_a_call_after_a_result_is_learned_from_where_it_parts_from_another_reply():
    added = ["<|bot>", "<turn|>", "<|call>", "<call|>", "<|result>", "<result|>", "<results|>", "<|user>"]
    chat = Conversation((*BOTH, Message("assistant", "Both.")), None, 1, "file")
    call = '<|call>look{"pier": "Norr"}<call|><turn|>'
    found = ChatRenderer(ChatTemplate(JOINED_CALLS, {}), "<turn|>", added).render(chat)
    assert learned_texts(found) == [call, call, "Both.<turn|>"]


def test_reply_written_twice_is_refused():
    with pytest.raises(RowError):
        render("{{ messages | length }}" + TURNS + "{{ m.content }}{{ m.content }}</s>{% endfor %}")


def test_what_the_template_writes_before_the_reply_is_learned_if_the_prompt_lacks_it():
    source = TURNS + "<|{{ m.role }}|>{% if m.role == 'assistant' %}<think></think>{% endif %}{{ m.content }}</s>"
    with_prompt = source + "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
    assert learned_texts(render(with_prompt)) == ["<think></think>Hello</s>", "<think></think>Ciao</s>"]
    longer_prompt = source + "{% endfor %}{% if add_generation_prompt %}<|assistant|><think></think>{% endif %}"
    assert learned_texts(render(longer_prompt)) == ["Hello</s>", "Ciao</s>"]


def test_prompt_that_the_rendering_does_not_follow_is_noted():
    source = TURNS + "<|{{ m.role }}|>{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<|assistant|><think>"
    rendered = render(source + "{% endif %}")
    assert learned_texts(rendered) == ["Hello</s>", "Ciao</s>"]
    assert rendered.prompt_differs


def test_missing_end_of_turn_is_appended_once_at_the_very_reply():
    source = TURNS + "{% if m.role == 'user' %}<|user|>{{ m.content }}\n{% else %}<|bot|>{{ m.content }}\n\n{% endif %}"
    rendered = render(source + PROMPT)
    assert rendered.add_eos
    assert rendered.turn_end is None
    assert rendered.text == "<|user|>Hi\n<|bot|>Hello\n\n<|user|>Bye\n<|bot|>Ciao"
    assert learned_texts(rendered) == ["Hello", "Ciao"]  # <|user|> begins the next turn: it ends no reply


def test_nothing_is_appended_after_a_question():
    source = TURNS + "<{{ m.role }}>{{ m.content }}\n" + PROMPT
    rendered = render(source, [*CHAT, ("user", "Still there?")])
    assert not rendered.add_eos
    assert rendered.text.endswith("Still there?\n")


def test_without_any_end_token_nothing_is_appended():
    rendered = render(TURNS + "<{{ m.role }}>{{ m.content }}\n" + PROMPT, added=(), eos=None)
    assert not rendered.add_eos
    assert learned_texts(rendered)[-1].endswith("Ciao")


def test_words_before_the_last_end_of_turn_are_learned():
    source = TURNS + "{{ m.content }}{% if m.role == 'assistant' %} ###</s>{% else %}\n{% endif %}{% endfor %}\n"
    rendered = render(source)
    assert learned_texts(rendered)[-1] == "Ciao ###</s>"
    assert not rendered.add_eos


def test_end_of_turn_may_be_another_token_than_eos():
    rendered = render(TURNS + "<|user|>{{ m.role }}:{{ m.content }} <|end|>\n{% endfor %}")
    assert [text[-len("lo <|end|>") :] for text in learned_texts(rendered)] == ["lo <|end|>", "ao <|end|>"]
    assert rendered.turn_end == "<|end|>"


def test_white_space_tokens_end_no_turn():
    source = TURNS + "{{ m.role }}: {{ m.content }}\n\n" + PROMPT
    rendered = render(source, added=("</s>", "\n", "\n\n"))
    assert rendered.add_eos
    assert rendered.text.endswith("Ciao")


def test_everything_can_be_learned():
    source = TURNS + "<|user|>{{ m.content }}<|end|>\n{% endfor %}"
    rendered = render(source, learn="everything")
    assert learned_texts(rendered) == [rendered.text]
    assert not rendered.add_eos


def test_plain_text_is_learned_whole_with_its_end():
    template = ChatTemplate("never used", {})
    text = Conversation((), " Some text. ", 1, "file")
    (rendered,) = RowRenderer(template, "</s>", [], text_bos=True).render([text])
    assert (rendered.text, rendered.spans) == (" Some text. ", ((0, 12),))
    assert rendered.add_bos
    assert rendered.add_eos


def test_base_models_plain_template_closes_replies(make_tokenizer):
    rendered = renderer_for(make_tokenizer(None)).render(conversation(CHAT))
    assert learned_texts(rendered) == ["Hello</s>", "Ciao</s>"]
    assert not rendered.add_eos


def test_trimming_templates_without_a_usable_prompt_are_located():
    source = (
        TURNS + "[{{ m.role }}]\n{{ m.content | trim }}</s>\n{% endfor %}{% if add_generation_prompt %}?{% endif %}"
    )
    messages = [("user", " a "), ("assistant", " Hello\n"), ("user", "b"), ("assistant", "Ciao")]
    rendered = render(source, messages)
    assert learned_texts(rendered) == ["Hello</s>", "Ciao</s>"]
    assert rendered.prompt_differs


THINKING = (
    TURNS + "{% set content = m.content | trim %}<|{{ m.role }}|>\n{% if m.role == 'assistant' %}"
    "{% set thoughts = content.split('</think>')[0].split('<think>')[-1] if '</think>' in content else '' %}"
    "{% set content = content.split('</think>')[-1] | trim %}"
    "{% if loop.last %}{{ '<think>\n' + thoughts | trim + '\n</think>\n\n' }}{% endif %}{% endif %}"
    "{{ content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n<think>\n\n</think>\n\n' }}{% endif %}"
)


def test_thoughts_are_learned_where_they_part_from_the_prompt():
    messages = [*CHAT[:3], ("assistant", "<think>\nHm.\n</think>\n\nCiao")]
    rendered = render(THINKING, messages)
    assert learned_texts(rendered) == ["Hello<|end|>", "Hm.\n</think>\n\nCiao<|end|>"]
    assert rendered.prompt_differs


def test_empty_thoughts_in_the_prompt_are_not_learned():
    rendered = render(THINKING, [("user", "Hi"), ("assistant", "Hello"), ("user", "Bye"), ("assistant", " Ciao ")])
    assert learned_texts(rendered) == ["Hello<|end|>", "Ciao<|end|>"]
    assert not rendered.prompt_differs
