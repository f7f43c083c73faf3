"""How far a recipe is from a run."""

import itertools

import pytest
from app.facts import page_facts as facts

from burnish_app.page_states.recipe import RecipeFacts, page_state
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


def shown(**changes):
    return page_state(RecipeFacts(**(READY | changes)))


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
    state = shown(**changes)
    assert (state.status, state.primary.is_enabled) == (status, can_press)


def test_the_button_names_what_it_does():
    texts = [
        shown(**changes).primary.text
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
    assert "Epochs" in shown(is_valid=False, problems=("train.epochs",)).note
    assert shown(is_valid=False).note
    assert shown(place="office", change="+1 GiB", is_beside=False).note.startswith("office: ")
    assert shown(change="+1 GiB", is_beside=False).note.endswith("+1 GiB")
    assert shown(plan=None, place="office").note == ""


def test_the_verdict_stands_once():
    """The panel beside the settings says it; above them, where it scrolls out of view, the foot does too."""
    assert shown().note == ""
    assert shown().pill == ("", "plain")
    assert shown(is_beside=False).note.startswith("It fits.")


def test_recipe_files_are_read_and_written_where_the_recipe_is_text():
    assert set(shown().buttons) == set()
    assert set(shown(is_toml=True).buttons) == {"import", "export"}


def test_the_former_note_stays_until_there_is_another_plan():
    assert shown(plan=None, is_planning=True).note is None
    assert shown(is_planning=True, is_beside=False).note
    assert shown(is_valid=False, plan=None, is_planning=True).note


def test_a_press_starts_nothing_but_what_is_shown_and_settled():
    """Over all that can be missing at once, as while answers are slow."""
    names = ("is_valid", "has_data", "is_shown", "is_suggesting", "is_starting")
    for values in itertools.product((True, False), repeat=len(names)):
        given = dict(zip(names, values, strict=True))
        state = shown(**given)
        settled = all(given[name] for name in names[:3]) and not (given["is_suggesting"] or given["is_starting"])
        starts = state.primary.is_enabled and state.primary.does == "start"
        assert starts == settled
        assert ("busy" in state.parts) == given["is_suggesting"]
