import json

import pytest

from burnish_engine.contract.errors import DataError, ExitCode
from burnish_engine.data.files.problems import RowError
from burnish_engine.data.rows.content_parts import PARTLY_SUPERVISED
from burnish_engine.data.rows.media import NEEDS_MEDIA
from burnish_engine.data.rows.recognize import recognize
from burnish_engine.data.rows.row_readers import row_reader
from burnish_engine.data.rows.shapes import SHAPES, TEXT_SHAPES

CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
SHAREGPT = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]


def turns(values, forced="auto", system_prompt=""):
    layout = recognize([values], "file", forced)
    conversation = row_reader(layout, system_prompt).read(values, 7, "file")
    assert (conversation.row, conversation.file) == (7, "file")
    return layout.shape, [(message.role, message.content) for message in conversation.messages]


def problem(values, sample=None):
    with pytest.raises(RowError) as caught:
        row_reader(recognize([sample or values], "file")).read(values, 1, "file")
    return caught.value.reason


@pytest.mark.parametrize(
    ("values", "shape"),
    [
        ({"messages": CHAT}, "messages"),
        ({"id": 1, "conversations": CHAT}, "messages"),
        ({"chat": CHAT}, "messages"),
        ({"Messages": json.dumps(CHAT)}, "messages"),
        ({"conversations": SHAREGPT}, "sharegpt"),
        ({"conversation": SHAREGPT, "text": "Hi Hello"}, "sharegpt"),
        ({"instruction": "Hi", "output": "Hello"}, "alpaca"),
        ({"instruction": "Hi", "input": "", "output": "Hello", "text": "rendered"}, "alpaca"),
        ({"Instruction": "Hi", "Response": "Hello"}, "alpaca"),
        ({"prompt": "Hi", "completion": "Hello"}, "prompt_completion"),
        ({"prompt": "Hi", "response": "Hello"}, "prompt_completion"),
        ({"Question": "Hi", "Answer": "Hello"}, "prompt_completion"),
        ({"prompt": CHAT[:1], "completion": CHAT[1:]}, "prompt_completion"),
    ],
)
def test_each_shape_becomes_user_and_assistant_turns(values, shape):
    assert turns(values) == (shape, [("user", "Hi"), ("assistant", "Hello")])


def test_text_stays_text():
    layout = recognize([{"text": "Some words."}], "file")
    conversation = row_reader(layout, "a system prompt").read({"text": "Some words."}, 1, "file")
    assert (layout.shape, conversation.text, conversation.messages) == ("text", "Some words.", ())


def test_alpaca_puts_the_input_under_the_instruction():
    assert turns({"instruction": "Sum up.", "input": "A text.", "output": "x"})[1][0] == ("user", "Sum up.\n\nA text.")


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("human", "user"),
        ("User", "user"),
        ("gpt", "assistant"),
        ("chatgpt", "assistant"),
        ("bot", "assistant"),
        ("model", "assistant"),
        ("system", "system"),
        ("developer", "system"),
        ("tool", "tool"),
    ],
)
def test_role_names(name, role):
    chat = [{"from": name, "value": "x"}, *SHAREGPT]
    assert turns({"conversations": chat})[1][0] == (role, "x")


def test_content_may_be_a_list_of_text_parts():
    parts = [{"type": "text", "text": "He"}, {"type": "text", "text": "llo"}]
    chat = [CHAT[0], {"role": "assistant", "content": parts}]
    assert turns({"messages": chat})[1][1] == ("assistant", "Hello")


def test_rows_may_leave_columns_out():
    layout = recognize([{"instruction": "a", "input": "b", "output": "c"}], "file")
    short = row_reader(layout).read({"instruction": "a", "output": "c"}, 1, "file")
    assert short.messages[0].content == "a"


def test_a_column_without_a_name_stands_for_no_missing_column():
    assert turns({"": "0", "instruction": "Hi", "output": "Hello"})[1] == [("user", "Hi"), ("assistant", "Hello")]


@pytest.mark.parametrize("forced", [shape for shape in SHAPES if shape not in TEXT_SHAPES])
def test_system_prompt_is_added_where_there_is_none(forced):
    rows = {
        "messages": {"messages": CHAT},
        "sharegpt": {"conversations": SHAREGPT},
        "alpaca": {"instruction": "Hi", "output": "Hello"},
        "prompt_completion": {"prompt": "Hi", "completion": "Hello"},
        "preference": {"prompt": "Hi", "chosen": "Hello", "rejected": "Go away"},
        "kto": {"prompt": "Hi", "completion": "Hello", "label": True},
    }
    assert turns(rows[forced], forced, "Be kind.")[1][0] == ("system", "Be kind.")


def test_system_prompt_does_not_replace_an_own_one():
    own = [{"role": "system", "content": "Mine."}, *CHAT]
    assert turns({"messages": own}, "auto", "Yours.")[1][0] == ("system", "Mine.")
    assert turns({"instruction": "a", "output": "b", "system": "Mine."}, "auto", "Yours.")[1][0] == ("system", "Mine.")


def test_unknown_columns_name_what_is_there_and_what_is_known():
    with pytest.raises(DataError) as caught:
        recognize([{"foo": 1}, {"bar": 2}], "my.csv")
    message = str(caught.value)
    assert caught.value.exit_code is ExitCode.DATA
    assert "my.csv (foo, bar)" in message
    assert all(shape in message for shape in SHAPES)


def test_forced_shape_that_does_not_fit_names_its_columns():
    with pytest.raises(DataError, match="alpaca, which needs columns instruction and output"):
        recognize([{"messages": CHAT}], "file", "alpaca")


def test_forced_shape_wins_over_the_recognized_one():
    values = {"instruction": "Hi", "output": "Hello", "text": "Plain."}
    assert recognize([values], "file", "text").shape == "text"


@pytest.mark.parametrize(
    ("chat", "reason"),
    [
        (None, "no conversation"),
        ("just words", "no conversation"),
        ([], "empty conversation"),
        (["word"], "a message is not an object"),
        ([{"content": "x"}], "a message has no role"),
        ([{"role": "wizard", "content": "x"}], 'unknown role "wizard"'),
        ([{"role": "user"}], "message without content"),
        ([{"role": "user", "content": None}], "message without content"),
        ([{"role": "user", "content": {"a": 5}}], "message content is not text"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}], NEEDS_MEDIA),
        ([{"role": "user", "content": [{"type": "hologram"}]}], "message content is not text"),
        (CHAT[:1], "no assistant turn"),
        ([CHAT[0], {"role": "assistant", "content": " \n"}], "empty reply"),
        ([CHAT[0], {"role": "assistant", "content": "\ud83d"}], "broken Unicode (half a surrogate pair)"),
    ],
)
def test_bad_chats_are_refused_by_reason(chat, reason):
    assert problem({"messages": chat}, sample={"messages": CHAT}) == reason


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"instruction": None, "output": "x"}, "instruction without content"),
        ({"instruction": " ", "input": "", "output": "x"}, "empty instruction"),
        ({"instruction": "a"}, "output without content"),
        ({"instruction": "a", "output": {"a": 5}}, "output content is not text"),
        ({"instruction": "a", "output": ""}, "empty reply"),
    ],
)
def test_bad_alpaca_rows_are_refused_by_reason(values, reason):
    assert problem(values, sample={"instruction": "a", "input": "b", "output": "c"}) == reason


LABELS = [
    (False, True), (0, 1), (-1, 1), (0.0, 1.0), ("false", "True"), ("0", "1"), ("0.0", "1.0"), ("no", "Yes"),
    ("bad", "good"), ("rejected", "chosen"), ("undesirable", "desirable"), ("negative", "positive"),
]  # fmt: skip


@pytest.mark.parametrize(("no", "yes"), LABELS)
def test_replies_labeled_bad_are_never_learned_unasked(no, yes):
    """Where it is not sure that a label is meant, the recipe must say so."""
    rows = [{"messages": CHAT, "label": yes}, {"messages": CHAT, "label": no}]
    try:
        layout = recognize(rows, "file")
    except DataError as error:
        assert "2 ways" in error.what
        layout = recognize(rows, "file", "kto")
    assert layout.shape == "kto"
    assert row_reader(layout).read(rows[0], 1, "file").messages
    with pytest.raises(RowError, match="labeled as a bad reply"):
        row_reader(layout).read(rows[1], 2, "file")


def test_an_odd_label_among_sure_ones_leaves_only_its_row_out():
    rows = [{"messages": CHAT, "label": label} for label in (True, False, "unsure")]
    with pytest.raises(RowError, match="neither true nor false"):
        row_reader(recognize(rows, "file")).read(rows[2], 3, "file")


def test_labels_that_are_topics_do_not_matter():
    rows = [{"messages": CHAT, "label": topic} for topic in ("bolts", "nuts")]
    assert recognize(rows, "file").shape == "messages"


@pytest.mark.parametrize(("no", "yes"), LABELS)
def test_a_segment_is_learned_where_its_label_says_true_however_that_is_written(no, yes):
    values = {"segments": [{"text": "asked", "label": no}, {"text": "replied", "label": yes}]}
    assert row_reader(recognize([values], "file")).read(values, 1, "file").spans == ((5, 12),)


@pytest.mark.parametrize(("reply", "call"), [(0, None), (1, 0)])
def test_a_reply_and_its_call_are_learned_together_or_the_row_is_left_out(reply, call):
    said = {"role": "assistant", "content": "I look.", "loss": reply}
    called = {"role": "tool_call", "content": '{"name": "look", "arguments": {}}', "loss": call}
    assert problem({"messages": [CHAT[0], said, called, CHAT[1]]}) == PARTLY_SUPERVISED


def test_a_tool_call_nested_without_end_leaves_its_row_out():
    deep = "end"
    for _ in range(600):
        deep = {"more": deep}
    called = {"role": "assistant", "tool_calls": [{"function": {"name": "look", "arguments": deep}}]}
    assert "nested too deeply" in problem({"messages": [{"role": "user", "content": "hm"}, called]})


def test_bad_text_rows_are_refused_by_reason():
    sample = {"text": "a"}
    assert problem({"text": "  "}, sample) == "empty text"
    assert problem({"text": None}, sample) == "text without content"
    assert problem({}, sample) == "text without content"


@pytest.mark.parametrize(
    ("value", "text"), [(42, "42"), (-0.5, "-0.5"), (3.0, "3.0"), (True, "true"), (False, "false")]
)
@pytest.mark.parametrize(
    "row",
    [
        lambda value: {"messages": [CHAT[0], {"role": "assistant", "content": value}]},
        lambda value: {"messages": [CHAT[0], {"role": "assistant", "content": [{"type": "text", "text": value}]}]},
        lambda value: {"conversations": [SHAREGPT[0], {"from": "gpt", "value": value}]},
        lambda value: {"conversations": [["Hi", value]]},
        lambda value: {"conversations": [{"human": "Hi", "assistant": value}]},
        lambda value: {"question": "Hi", "answer": value},
        lambda value: {"instruction": "Hi", "output": value},
        lambda value: {"prompt": "Hi", "chosen": value, "rejected": "no"},
    ],
)
def test_a_number_or_boolean_is_a_reply_as_its_json_text(row, value, text):
    assert turns(row(value), forced="preference" if "chosen" in row(value) else "auto")[1] == [
        ("user", "Hi"),
        ("assistant", text),
    ]
