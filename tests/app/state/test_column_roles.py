"""Roles of columns: which exclude each other, which are missing, and that the engine reads what they are written as."""

from itertools import permutations

import pytest

from burnish_app.state.column_roles import (
    ROLES,
    column_pairs,
    meanings_of,
    missing_roles,
    roles_of,
    with_role,
)
from burnish_engine.contract.recipe.recipe_data import DataSection


def test_a_role_moves_from_one_column_to_another():
    roles = roles_of({"prompt": "question", "completion": "answer", "system": "who"})
    assert roles == {"question": "prompt", "answer": "reply", "who": "system"}
    assert with_role(roles, "other", "prompt") == {"answer": "reply", "who": "system", "other": "prompt"}
    assert with_role(roles, "answer", "") == {"question": "prompt", "who": "system"}


@pytest.mark.parametrize(
    ("role", "left"),
    [
        ("text", set()),
        ("conversation", {"system"}),
        ("chosen", {"prompt", "system"}),
        ("label", {"prompt", "reply", "system"}),
        ("context", {"prompt", "reply", "system"}),
    ],
)
def test_what_no_rows_have_together_excludes_each_other(role, left):
    roles = {"question": "prompt", "answer": "reply", "who": "system"}
    assert set(with_role(roles, "new", role).values()) == {*left, role}


def test_what_is_missing_is_named():
    assert missing_roles({}) == ["prompt", "reply"]
    assert missing_roles({"a": "reply"}) == ["prompt"]
    assert missing_roles({"a": "chosen"}) == ["rejected"]
    assert missing_roles({"a": "text"}) == missing_roles({"a": "conversation", "b": "rejected"}) == []


def test_instructions_stay_instructions():
    before = {"instruction": "ask", "output": "say"}
    roles = with_role(roles_of(before), "more", "context")
    assert column_pairs(roles, before) == ["instruction=ask", "output=say", "input=more"]
    assert column_pairs(roles, {}) == ["prompt=ask", "completion=say", "context=more"]


def test_the_engine_reads_every_complete_choice_as_it_is_written():
    from burnish_engine.data.rows.recognize import recognize

    for first, second, third in permutations(ROLES, 3):
        roles = {}
        for column, role in zip("abc", (first, second, third), strict=True):
            roles = with_role(roles, column, role)
        if missing_roles(roles):
            continue
        pairs = DataSection(columns=column_pairs(roles, {})).columns
        layout = recognize([{"a": "x y", "b": "y z", "c": "z x"}], "rows.csv", "auto", pairs)
        assert roles_of(layout.columns) == roles
        assert meanings_of(pairs) == layout.columns
