"""Text about findings in a dataset; and that the app knows the engine's shapes, meanings and templates."""

from app.facts import data_facts as facts

from burnish_app.state.column_roles import ROLES, roles_of
from burnish_app.wording.data_text import (
    ACTIONS,
    SHAPES,
    TEMPLATES,
    cut_text,
    data_changes,
    further_warnings,
    long_row_fate,
    named_settings,
    preview_text,
    role_hint,
    role_text,
    rows_text,
    template_checks,
    template_extras,
    template_name,
)
from burnish_engine.contract.facts.data_report import TemplateFacts
from burnish_engine.contract.recipe.recipe_data import COLUMN_MEANINGS, DataSection


def test_the_app_knows_what_the_engine_knows():
    from burnish_engine.data.rows.shapes import MEANINGS as NEEDS
    from burnish_engine.data.rows.shapes import OPTIONAL_MEANINGS
    from burnish_engine.data.templates.library import TEMPLATES as LIBRARY

    assert set(SHAPES) == set(NEEDS)
    every = {*OPTIONAL_MEANINGS, *(one for ways in NEEDS.values() for way in ways for one in way)}
    assert every == set(COLUMN_MEANINGS)
    assert set(roles_of({meaning: meaning for meaning in every}).values()) == set(ROLES)
    assert all(role_text(role) and role_hint(role) for role in (*ROLES, ""))
    assert {*TEMPLATES} == {"auto", *LIBRARY}


def test_every_action_is_a_value_that_the_recipe_takes():
    for field, value in ACTIONS:
        assert getattr(DataSection.model_validate({field: value}), field) == value


def test_rows_are_named_by_line_and_file():
    one = facts.dataset()
    assert rows_text(facts.places(7), 1, one) == "Line 7 of support.jsonl"
    assert rows_text(facts.places(*range(1, 20)), 19, one) == "Lines 1, 2, 3, 4, 5, 6, 7, 8 ... of support.jsonl"
    assert rows_text([], 3, one) == ""
    two = facts.places(7, 1200, file="/x/a.jsonl") + facts.places(3, file="/x/held.jsonl")
    every = rows_text(two, 3, one)
    assert "7, 1,200 of a.jsonl" in every
    assert "3 of held.jsonl" in every
    assert rows_text(two, 9, one) == f"{every} ..."
    columnar = facts.dataset(format="jsonl, parquet")
    assert rows_text(facts.places(7, 9, file="b.parquet"), 2, columnar) == "Rows 7, 9 of b.parquet"


def test_a_message_s_settings_become_buttons_once_each():
    found = named_settings('Set data.broken_rows = "drop", or data.broken_rows = "drop"; data.shape = "text" is none.')
    assert [(one.key, one.value) for one in found] == [("data.broken_rows", "drop")]


def test_what_findings_say_is_not_said_twice():
    dataset = facts.dataset(
        warnings=[
            '38 rows are the same as an earlier row (rows 44, 45). data.duplicates = "drop" keeps the first.',
            'One row (0.1%) are cut to 1024 tokens. data.overlong = "drop" leaves them out.',
            "No rows are held out.",
        ]
    )
    assert further_warnings(dataset) == ["No rows are held out."]
    assert len(further_warnings(dataset.model_copy(update={"report": None}))) == 3


def test_changes_lead_back_to_what_is_usual():
    assert data_changes(DataSection()) == []
    found = data_changes(DataSection(duplicates="drop_near", encoding="cp1252"))
    assert [(one.field, one.default) for one in found] == [("duplicates", "keep"), ("encoding", "utf-8")]
    assert "cp1252" in found[1].text


def test_a_template_s_checks_are_told_good_and_bad():
    bad = TemplateFacts(
        name="auto", takes_system=False, takes_two_users=False, has_prompt=False, prompt_fits=False, turn_end="",
        ends_with_eos=False, writes_calls=False, writes_tools=False, writes_thoughts=False,
    )  # fmt: skip
    assert not any(check.good for check in template_checks(bad))
    assert "plain turns" in template_extras(bad)
    good = facts.dataset_report().template.model_copy(update={"takes_two_users": True})
    assert all(check.good for check in template_checks(good))
    extras = template_extras(good)
    assert "calls of tools" in extras
    assert "lists of tools" in extras
    assert "plain turns" not in extras
    assert [template_name(name) for name in ("auto", "zephyr", "/a/mine.jinja")] == [
        "the model's own",
        "zephyr",
        "mine.jinja",
    ]


def test_what_a_cut_costs():
    steps = [(0, 10, 1000), (64, 3, 12), (128, 1, 2), (140, 0, 0)]
    assert "3 rows, 1.2 %" in cut_text(steps, 64)
    assert "3 rows, 1.2 %" in cut_text(steps, 100), "of the step before"
    assert "2 rows, 0.7 %" in cut_text([steps[0], (100, 2, 7), *steps[1:]], 100), "of itself, wherever it stands"
    assert "every row is whole" in cut_text(steps, 2048)
    assert "3 rows, 20.4 %" in cut_text(steps, 64, "dropped"), "the whole rows"
    assert "rows" not in cut_text(steps, 64, "continued")
    assert "less than 0.1 %" in cut_text([(0, 5000, 9_000_000), (800, 1, 3), (803, 0, 0)], 800)


def test_what_becomes_of_long_rows():
    fates = {shape: [long_row_fate(shape, how) for how in ("auto", "truncate", "drop", "split")] for shape in SHAPES}
    assert fates["messages"] == ["cut", "cut", "dropped", "continued"]
    assert fates["text"] == ["continued", "cut", "dropped", "continued"]


def test_a_rendered_row_is_told_in_figures():
    said = preview_text(facts.preview(tokens=200, supervised_tokens=50, cut_tokens=8, parts=2))
    assert all(part in said for part in ("200 tokens", "25 %", "8 tokens", "2 rows"))
    assert preview_text(facts.preview(tokens=0)) == ""
