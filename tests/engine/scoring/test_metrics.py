"""What each metric takes for right, and which rows it cannot score."""

import json

import pytest

from burnish_engine.contract.recipe.checks import patterns
from burnish_engine.contract.recipe.recipe_task import TaskSection
from burnish_engine.scoring.metrics import make_metric


def right(reply, wanted="", /, rows=(), **section):
    return make_metric(TaskSection(**section), rows or [wanted]).why_wrong(reply, wanted) == ""


def scorable(wanted, rows=(), **section):
    return make_metric(TaskSection(**section), rows or [wanted]).why_not_scorable(wanted) == ""


@pytest.mark.parametrize(
    ("reply", "wanted", "is_right"),
    [
        ("Berlin", "Berlin", True),
        ("Berlin\n  is it", "Berlin is it", True),
        ("berlin", "Berlin", False),
        ("Berlin.", "Berlin", False),
        ("", "Berlin", False),
        ("Cafe\u0301", "Caf\u00e9", True),  # letter and accent apart, or as one
        ('{"b": 2, "a": 1.0}', '{"a": 1, "b": 2}', True),
        ('{"a": true}', '{"a": 1}', False),
        ("```json\n[1, 2]\n```", "[1,2]", True),
        ("[2, 1]", "[1, 2]", False),
        ("1.0", "1", False),  # JSON too, but as text: a bare number is no structure
        ("[" * 100 + "]" * 100, "[" * 100 + " ]" * 100, True),
        ("[" * 600 + "]" * 600, "[" * 600 + " ]" * 600, False),  # as text, since nobody nests so deeply
    ],
)
def test_an_exact_match_is_the_same_text_or_the_same_json(reply, wanted, is_right):
    assert right(reply, wanted, metric="exact_match") == is_right


def test_case_counts_unless_it_is_told_not_to():
    assert right("STRASSE", "stra\u00dfe", metric="exact_match", ignore_case=True)
    assert not right("STRASSE", "stra\u00dfe", metric="exact_match")


def test_a_pattern_is_found_anywhere_unless_it_is_anchored():
    assert right("see AB-12 there", metric="regex", pattern=r"[A-Z]{2}-\d+")
    assert not right("see AB-12 there", metric="regex", pattern=r"^[A-Z]{2}-\d+$")
    assert right("AB-12", metric="regex", pattern=r"^[A-Z]{2}-\d+$")


def test_a_group_has_to_find_what_it_finds_in_the_row():
    section = {"metric": "regex", "pattern": r"####\s*(-?\d+)"}
    assert right("so it is\n#### 18", "long way\n#### 18", **section)
    assert not right("#### 19", "#### 18", **section)
    assert not right("18", "#### 18", **section)
    assert scorable("#### 18", **section)
    assert not scorable("18", **section)


@pytest.mark.parametrize("metric", ["regex", "json"])
def test_a_pattern_without_end_is_wrong_rather_than_for_ever(monkeypatch, metric):
    monkeypatch.setattr(patterns, "SECONDS", 0.05)
    pattern, slow, quick = r"^((?:a|aa)+)$", "a" * 5000 + "b", "aaa"
    section = {"pattern": pattern} if metric == "regex" else {"json_schema": json.dumps({"pattern": pattern})}
    if metric == "json":
        slow, quick = json.dumps(slow), json.dumps(quick)
    assert right(quick, quick, metric=metric, **section)
    assert "too long" in make_metric(TaskSection(metric=metric, **section)).why_wrong(slow, quick)
    assert scorable(slow, metric=metric, **section) == (metric == "json")


@pytest.mark.parametrize(
    ("reply", "is_right"),
    [
        ('{"a": 1}', True),
        ("[]", True),
        ("3", True),
        ('{"a": 1} and more', False),
        ("{'a': 1}", False),
        ('{"a": NaN}', False),
        ("", False),
        ("```json\n{}\n```", False),
        ("[" * 100_000, False),
    ],
)
def test_valid_json_is_the_whole_reply(reply, is_right):
    assert right(reply, "{}", metric="json") == is_right


def test_a_code_fence_is_right_where_the_rows_have_one():
    assert right('```json\n{"a": 1}\n```', "```json\n{}\n```", metric="json")
    assert right('{"a": 1}', "```json\n{}\n```", metric="json")


def test_json_follows_its_schema():
    schema = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
    assert right('{"a": 1, "b": 2}', metric="json", json_schema=schema)
    assert not right('{"a": "1"}', metric="json", json_schema=schema)
    assert not right("{}", metric="json", json_schema=schema)


@pytest.mark.parametrize(
    ("reply", "is_right"),
    [
        ("yes", True),
        ("Yes.", True),
        ("The answer is YES", True),
        ("no", False),
        ("yes or no", False),
        ("yesterday", False),
        ("", False),
    ],
)
def test_the_only_choice_that_a_reply_names_has_to_be_the_rows(reply, is_right):
    assert right(reply, "Yes", metric="choice", choices=["Yes", "No"]) == is_right


def test_a_longer_choice_hides_the_shorter_one_in_it():
    choices = ["New York", "York", "C++", "C"]
    assert right("It is New York.", "new york", metric="choice", choices=choices)
    assert not right("It is York.", "New York", metric="choice", choices=choices)
    assert right("I use C++.", "C++", metric="choice", choices=choices)


def test_a_choice_within_a_word_with_hyphens_or_a_decimal_number_is_not_named():
    assert not right("non-positive", "positive", metric="choice", choices=["positive", "negative"])
    assert not right("positive-ish", "positive", metric="choice", choices=["positive", "negative"])
    assert right("- positive", "positive", metric="choice", choices=["positive", "negative"])
    assert not right("4.5", "4", metric="choice", choices=["3", "4"])
    assert right("It is 4.", "4", metric="choice", choices=["3", "4"])


def test_choices_are_those_of_the_rows_where_none_are_named():
    assert right("B!", "b", rows=["a", "b", "c"], metric="choice")
    assert not right("b and c", "b", rows=["a", "b", "c"], metric="choice")
    assert not scorable("d", choices=["a", "b"], metric="choice")
    assert not scorable("a or b", choices=["a", "b"], metric="choice")


@pytest.mark.parametrize(
    ("reply", "wanted", "is_right"),
    [
        ("42", "The answer is 42", True),
        ("first 7, then 42", "42", True),
        ("42, then 7", "42", False),
        ("41.5", "42", True),
        ("41.4", "42", False),
        ("forty-two", "42", False),
        ("-42", "42", False),
    ],
)
def test_the_last_number_of_a_reply_counts(reply, wanted, is_right):
    assert right(reply, wanted, metric="number", tolerance=0.5) == is_right


def test_a_tolerance_is_met_at_its_very_edge():
    assert right("0.3", "0.2", metric="number", tolerance=0.1)  # as floats, they are further apart
    assert right("110", "100", metric="number", relative_tolerance=0.1)
    assert not right("110.1", "100", metric="number", relative_tolerance=0.1)
    assert right("-90", "-100", metric="number", relative_tolerance=0.1)
    assert not right("0.001", "0", metric="number", relative_tolerance=0.1)
    assert not scorable("none", metric="number")


def test_long_numbers_are_compared_to_their_last_digit():
    assert not right("1700000000001", "1700000000000", metric="number")
    assert not right("12345678901234567891", "12345678901234567890", metric="number")
    assert right("12345678901234567890.0", "12345678901234567890", metric="number")
    assert not right("5 000 000", "1 000 000", metric="number")
