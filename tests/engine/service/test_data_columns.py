"""What the columns editor is told of a file: readings, and the meanings that each shape needs there."""

import json

import pytest

from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.service.data_columns import file_columns

CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]


@pytest.mark.parametrize(
    ("row", "shape", "needs"),
    [
        ({"messages": CHAT, "label": True}, "kto", ["conversation", "label"]),
        ({"prompt": "Hi", "completion": "Hello", "label": True}, "kto", ["prompt", "completion", "label"]),
        ({"messages": CHAT, "rejected_response": "Go."}, "preference", ["conversation", "rejected"]),
        ({"prompt": "Hi", "chosen": "Hello", "rejected": "Go."}, "preference", ["chosen", "rejected"]),
    ],
)
def test_a_shape_needs_what_the_file_has(tmp_path, row, shape, needs):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n", encoding="utf-8")
    found = file_columns(DataSection(files=[str(path)]))
    assert found.readings[0].shape == shape
    assert found.needs[shape] == needs
    assert found.question == ""


def test_a_file_for_another_training_says_why_it_is_asked_about(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"input_ids": [1, 2], "note": "Some words."}) + "\n", encoding="utf-8")
    assert "token ids" in file_columns(DataSection(files=[str(path)])).question


def test_the_first_rows_come_along_with_conversations_as_turns(tmp_path):
    turns = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because.\n" * 200}]
    path = tmp_path / "chats.jsonl"
    path.write_text((json.dumps({"messages": turns, "n": 7}) + "\n") * 30, encoding="utf-8")
    found = file_columns(DataSection(files=[str(path)]))
    assert len(found.rows) == 20
    assert found.rows[0]["messages"].startswith("user: Why? | assistant: Because.")
    assert len(found.rows[0]["messages"]) <= 240
    assert found.rows[0]["n"] == "7"
