"""What the columns editor is told of a file: readings, and the meanings that each shape needs there."""

import json

import pytest

from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.service.data_rows import RowReader


def file_columns(data):
    return RowReader().columns(data, "", lambda: None)


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
