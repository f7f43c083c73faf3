"""How far a recipe is from a run."""

import pytest
from app.facts import page_facts as facts

from burnish_app.recipe.readiness import Readiness
from burnish_engine.contract.recipe.place import HERE

READY = {
    "is_valid": True,
    "has_data": True,
    "has_suggestion": True,
    "has_run": False,
    "is_suggesting": False,
    "is_shown": True,
    "is_starting": False,
    "plan": facts.plan(),
    "where": HERE,
}


@pytest.mark.parametrize(
    ("changes", "status", "can_press"),
    [
        ({}, "ready", True),
        ({"has_run": True}, "done", True),
        ({"is_valid": False}, "attention", False),
        ({"plan": facts.plan(fits=False)}, "attention", True),
        ({"is_suggesting": True, "is_valid": False}, "busy", False),
        ({"is_suggesting": True}, "busy", False),
        ({"is_suggesting": True, "has_suggestion": False, "plan": None}, "busy", False),
        ({"is_shown": False}, "ready", False),
        ({"is_starting": True}, "busy", False),
        ({"has_data": False, "has_suggestion": False, "is_valid": False}, "attention", True),
        ({"has_data": False, "has_suggestion": False}, "empty", True),
        ({"has_suggestion": False}, "ready", True),
    ],
)
def test_status_and_button_follow_from_what_is_missing(changes, status, can_press):
    now = Readiness(**(READY | changes))
    assert (now.status, now.can_press) == (status, can_press)


def test_the_button_names_what_it_does():
    texts = [
        Readiness(**(READY | changes)).button_text
        for changes in (
            {},
            {"where": "ssh:office"},
            {"is_valid": False},
            {"has_data": False},
            {"is_starting": True},
            {"is_suggesting": True},
        )
    ]
    assert len(set(texts)) == len(texts)
    assert "office" in texts[1]


def test_the_note_names_the_settings_to_mend_or_the_machine_of_the_plan():
    invalid = Readiness(**(READY | {"is_valid": False}))
    assert "Epochs" in invalid.note(["train.epochs"], "", "")
    assert invalid.note([], "", "")
    assert Readiness(**READY).note([], "office", "+1 GiB").startswith("office: ")
    assert Readiness(**READY).note([], "", "+1 GiB").endswith("+1 GiB")
    assert not Readiness(**(READY | {"plan": None})).note([], "office", "")
