"""Problems of preferences: contradictions, replies told apart by length, unequal labels, useless replies."""

from __future__ import annotations

from typing import Any

import pytest

from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_preference import PreferenceSection
from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.data.prepare import inspect_dataset
from burnish_engine.data.report.preference_findings import balanced_weights, label_findings

SHORT, LONG = "Yes.", "Yes, and here is a long explanation of why that is so, with more words than anyone needs."


def pair(number: int, chosen: str = "It is red.", rejected: str = "It is sad.") -> dict[str, str]:
    return {"prompt": f"What about number {number}?", "chosen": chosen, "rejected": rejected}


@pytest.fixture
def findings(write_jsonl: Any, make_tokenizer: Any) -> Any:
    """Inspect rows: (rows, settings of [preference], max_length) -> kind to finding."""

    def found(rows: list[dict[str, Any]], max_length: int = 200, **preference: Any) -> dict[str, Any]:
        recipe = Recipe(
            data=DataSection(files=[str(write_jsonl(rows))], max_length=max_length, validation_share=0.0),
            train=TrainSection(micro_batch_tokens=2 * max_length),
            preference=PreferenceSection(**{"objective": "dpo", **preference}),
        )
        report = inspect_dataset(recipe, make_tokenizer()).facts.report
        assert report is not None
        return {finding.kind: finding for finding in report.findings}

    return found


def places(finding: Any) -> list[int]:
    return [place.row for place in finding.first]


def test_the_same_replies_the_other_way_around_contradict_each_other(findings):
    rows = [pair(number) for number in range(8)] + [pair(3, "It is sad.", "It is red.")]
    found = findings(rows)["contradictions"]
    assert found.rows == 2
    assert places(found) == [4, 9]


@pytest.mark.full
def test_the_action_expects_as_many_swapped_labels_as_there_are_contradictions(findings):
    rows = [pair(number) for number in range(8)] + [pair(3, "It is sad.", "It is red."), pair(9)]
    (action,) = findings(rows)["contradictions"].actions
    assert action.line == "preference.label_smoothing = 0.1"  # as the recipe takes it: a number
    assert not findings(rows, label_smoothing=0.1)["contradictions"].actions
    assert not findings(rows, loss_type="ipo")["contradictions"].actions


def test_replies_to_other_prompts_do_not_contradict(findings):
    rows = [pair(number) for number in range(8)] + [pair(30, "It is sad.", "It is red.")]
    assert "contradictions" not in findings(rows)


@pytest.mark.full
@pytest.mark.parametrize(("chosen", "rejected", "word"), [(LONG, SHORT, "longer"), (SHORT, LONG, "shorter")])
def test_replies_that_differ_by_length_are_named(findings, chosen, rejected, word):
    rows = [pair(number, chosen, rejected) for number in range(16)] + [pair(99 - n, rejected, chosen) for n in range(4)]
    found = findings(rows)["length_bias"]
    assert found.rows == 16
    assert word in found.says
    assert "80" in found.says
    assert [action.value for action in found.actions] == ["simpo"]
    assert not findings(rows, objective="simpo")["length_bias"].actions


@pytest.mark.parametrize("biased", [2, 12])
def test_lengths_that_vary_by_chance_are_not_named(findings, biased):
    rows = [pair(n, LONG, SHORT) for n in range(biased)] + [pair(50 + n, SHORT, LONG) for n in range(20 - biased)]
    assert ("length_bias" in findings(rows)) is (biased == 2)


def test_a_few_pairs_say_nothing_about_length(findings):
    assert "length_bias" not in findings([pair(number, LONG, SHORT) for number in range(10)])


def test_pairs_that_say_nothing_are_findings_with_their_rows(findings):
    rows = [pair(1), pair(2, "The same.", "The same."), pair(3, rejected=""), pair(4, rejected=None), pair(5)]
    found = findings(rows)
    assert places(found["same_replies"]) == [2]
    assert places(found["empty_rejected"]) == [3]
    assert places(found["no_rejected"]) == [4]


def test_pairs_beyond_the_length_limit_are_named_with_a_longer_one(findings):
    rows = [pair(number) for number in range(4)] + [pair(4, "very " * 100 + "red.")]
    found = findings(rows, max_length=60)["long_pairs"]
    assert places(found) == [5]
    assert [(action.key, action.value) for action in found.actions] == [("data.max_length", 120)]


def test_identical_pairs_are_duplicates_and_the_other_order_is_none(findings):
    found = findings([pair(1), pair(1), pair(2)])
    assert places(found["duplicates"]) == [2]
    assert "duplicates" not in findings([pair(1), pair(1, "It is sad.", "It is red."), pair(2)])


def kto(good: int, bad: int, **weights: float) -> list[Any]:
    return list(label_findings(good, bad, PreferenceSection(**weights)))


@pytest.mark.parametrize(("good", "bad"), [(10, 10), (12, 10), (4, 3)])
def test_labels_in_balance_are_not_named(good, bad):
    assert kto(good, bad) == []
    assert balanced_weights(good, bad, PreferenceSection()) == {}


@pytest.mark.parametrize(("good", "bad", "key"), [(10, 40, "desirable_weight"), (40, 10, "undesirable_weight")])
def test_unequal_labels_come_with_the_weight_that_evens_them_out(good, bad, key):
    (finding,) = kto(good, bad)
    (action,) = finding.actions
    assert action.key == f"preference.{key}"
    weights = {"desirable_weight": 1.0, "undesirable_weight": 1.0, key: action.value}
    ratio = weights["desirable_weight"] * good / (weights["undesirable_weight"] * bad)
    assert 0.99 <= ratio <= 4 / 3 * 1.01
    assert kto(good, bad, **weights) == []


def test_advice_builds_on_the_weights_that_are_set():
    (finding,) = kto(10, 40, undesirable_weight=2.0)
    assert finding.actions[0].value == 8.0


def test_a_weight_that_no_recipe_takes_is_not_advised():
    (finding,) = kto(1, 2000)
    assert not finding.actions
    assert kto(1, 900)[0].actions


def test_labels_of_one_kind_alone_are_named():
    (finding,) = kto(10, 0)
    assert not finding.actions


@pytest.mark.parametrize("objective", ["sft", "kto"])
def test_labels_are_counted_whatever_is_learned_of_them(findings, objective):
    rows = [{"prompt": f"What about {n}?", "completion": "It is red.", "label": n < 3} for n in range(12)]
    found = findings(rows, objective=objective)["labels"]
    assert found.rows == 12
    assert "3 replies" in found.says
    assert "9 bad" in found.says
