"""Questions of rows that have no reply."""

import pytest

from burnish_engine.contract.errors import DataError
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.data.rows.open_questions import open_questions

from support.models.tiny import write_jsonl

USER = {"role": "user", "content": "Why?"}
KIND = {"role": "system", "content": "Be kind."}


def section(tmp_path, rows, **settings):
    return DataSection(files=[str(write_jsonl(tmp_path / "rows.jsonl", rows))], **settings)


@pytest.mark.parametrize(
    ("row", "chat"),
    [
        ({"prompt": "Why?"}, [USER]),
        ({"Question": "Why?", "answer": "So."}, [USER]),
        ({"prompt": [USER]}, [USER]),
        ({"system": "Be kind.", "question": "Why?"}, [KIND, USER]),
        ({"messages": [USER, {"role": "assistant", "content": "So."}]}, [USER]),
        ({"conversations": [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "So."}]}, [USER]),
        ({"instruction": "Why?", "input": "It rains."}, [{"role": "user", "content": "Why?\n\nIt rains."}]),
    ],
)
def test_the_question_is_found_and_a_reply_behind_it_left_away(tmp_path, row, chat):
    assert open_questions(section(tmp_path, [row, row])).chats == [chat, chat]


def test_columns_and_system_prompt_of_the_recipe_count(tmp_path):
    rows = [{"question": "Not this.", "Frage": "Why?"}, {"Frage": "Why?", "system": "Be kind."}]
    found = open_questions(section(tmp_path, rows, columns=["prompt=Frage"], system_prompt="Be brief."))
    assert found.chats == [[{"role": "system", "content": "Be brief."}, USER], [KIND, USER]]


def test_rows_that_cannot_be_read_stop_the_reading_or_are_counted(tmp_path):
    data = section(tmp_path, [{"prompt": "Why?"}, {"label": 1}])
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{broken\n{"prompt": "\\ud800"}\n')
    with pytest.raises(DataError, match="valid JSON"):
        open_questions(data)
    found = open_questions(data.model_copy(update={"broken_rows": "drop"}))
    assert (found.chats, found.left_out) == ([[USER]], 3)


def test_no_more_are_read_than_wanted(tmp_path):
    assert len(open_questions(section(tmp_path, [{"prompt": str(n)} for n in range(9)]), most=4).chats) == 4


def test_rows_that_ask_nothing_are_refused(tmp_path):
    with pytest.raises(DataError, match="asks anything"):
        open_questions(section(tmp_path, [{"label": 1}]))
