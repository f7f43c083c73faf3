"""What is said of a file's columns: the ways to read them, and why a person is asked."""

import pytest

from burnish_engine.data.report.columns import file_columns

CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]


@pytest.mark.parametrize(
    ("row", "shape", "meanings"),
    [
        ({"messages": CHAT, "label": True}, "kto", {"conversation", "label"}),
        ({"prompt": "Hi", "completion": "Hello", "label": True}, "kto", {"prompt", "completion", "label"}),
        ({"messages": CHAT, "rejected_response": "Go."}, "preference", {"conversation", "rejected"}),
        ({"prompt": "Hi", "chosen": "Hello", "rejected": "Go."}, "preference", {"prompt", "chosen", "rejected"}),
    ],
)
def test_what_is_sure_is_read_and_not_asked(row, shape, meanings):
    found = file_columns("rows.jsonl", [row])
    assert (found.readings[0].shape, set(found.readings[0].columns)) == (shape, meanings)
    assert found.question == ""


def test_a_file_for_another_training_says_why_it_is_asked_about():
    assert "token ids" in file_columns("rows.jsonl", [{"input_ids": [1, 2], "note": "Some words."}]).question


def test_a_conversation_is_shown_as_its_turns():
    found = file_columns("rows.jsonl", [{"messages": None}, {"messages": CHAT, "n": 7}])
    assert found.columns == {"messages": "user: Hi | assistant: Hello", "n": "7"}
