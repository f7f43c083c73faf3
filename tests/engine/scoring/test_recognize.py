"""What replies look like, and what is made of it."""

import json

import pytest

from burnish_engine.scoring.recognize import recognize_task, replies_of


def metric_of(replies):
    hint = recognize_task(replies)
    return hint.metric if hint else None


@pytest.mark.parametrize(
    ("replies", "metric"),
    [
        (["positive", "Negative ", "neutral"] * 8, "choice"),
        (["1", "2", "3", "4", "5"] * 4, "choice"),  # ratings
        ([f"{n * 7 % 101}.5 kg" for n in range(40)], "number"),
        ([json.dumps({"name": str(n), "age": n}) for n in range(20)], "json"),
        ([f"```json\n[{n}]\n```" for n in range(20)], "json"),
        ([f"A sentence about the number {n}." for n in range(40)], "number"),
        ([f"The year {n} was longer than 12 months, said 3 people who counted." for n in range(40)], None),
        ([f"Word {chr(97 + n)}" for n in range(20)], None),  # as many labels as rows
        (["same"] * 40, None),
        (["yes", "no"] * 3, None),  # too few rows
        ([], None),
    ],
)
def test_replies_are_recognized_by_what_nearly_all_of_them_are(replies, metric):
    assert metric_of(replies) == metric


def test_a_few_odd_replies_change_nothing_and_many_do():
    objects = [json.dumps({"a": n}) for n in range(39)]
    assert metric_of([*objects, "sorry"]) == "json"
    assert metric_of([*objects, *["sorry, I cannot do that for you"] * 9]) is None


def test_the_keys_that_all_objects_share_are_named_with_their_types():
    rows = [{"id": n, "tags": [], "ok": n % 2 == 0, "note": "x" if n else None, **({"rare": 1} if n else {})}
            for n in range(12)]  # fmt: skip
    hint = recognize_task([json.dumps(row) for row in rows])
    assert hint.schema_keys == {"id": "number", "tags": "array", "ok": "boolean", "note": ""}


def test_the_last_reply_in_text_is_looked_at():
    chats = [
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
        [{"role": "user", "content": "a"}],
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": None}],
        [],
    ]
    assert replies_of(chats) == ["b"]
