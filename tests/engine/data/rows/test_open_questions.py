"""Questions of rows that have no reply."""

import pytest

from burnish_engine.contract.errors import DataError
from burnish_engine.data.rows.open_questions import open_questions

from support.models.tiny import write_jsonl

USER = {"role": "user", "content": "Why?"}


@pytest.mark.parametrize(
    ("row", "chat"),
    [
        ({"prompt": "Why?"}, [USER]),
        ({"Question": "Why?", "answer": "So."}, [USER]),
        ({"prompt": [USER]}, [USER]),
        ({"system": "Be kind.", "question": "Why?"}, [{"role": "system", "content": "Be kind."}, USER]),
        ({"messages": [USER, {"role": "assistant", "content": "So."}]}, [USER]),
    ],
)
def test_the_question_is_found_and_a_reply_behind_it_left_away(tmp_path, row, chat):
    assert open_questions([str(write_jsonl(tmp_path / "rows.jsonl", [row, row]))]) == [chat, chat]


def test_no_more_are_read_than_wanted(tmp_path):
    file = write_jsonl(tmp_path / "rows.jsonl", [{"prompt": str(n)} for n in range(9)])
    assert len(open_questions([str(file)], most=4)) == 4


def test_rows_that_ask_nothing_are_refused(tmp_path):
    with pytest.raises(DataError, match="asks anything"):
        open_questions([str(write_jsonl(tmp_path / "rows.jsonl", [{"label": 1}]))])
