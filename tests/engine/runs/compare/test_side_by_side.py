"""Several runs beside each other: only what differs, with what is not known left open."""

import pytest

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.runs.card import write_card
from burnish_engine.runs.compare.side_by_side import side_by_side
from burnish_engine.runs.store import create_run

from support.runs.cards import make_card


def run(name, card=None, **train):
    paths = create_run(Recipe.model_validate({"name": name, "train": train}))
    if card is not None:
        write_card(paths, card)
    return paths


def rows(*runs):
    return {(row.group, row.key): row.values for row in side_by_side(runs).rows}


@pytest.mark.full
def test_only_keys_that_differ_are_rows_and_names_are_none():
    found = rows(run("a", learning_rate=1e-3), run("b", learning_rate=1e-3), run("c", learning_rate=2e-3))
    assert found == {("recipe", "train.learning_rate"): [1e-3, 1e-3, 2e-3]}


@pytest.mark.full
def test_equal_cards_make_no_rows_and_each_other_fact_makes_one():
    card = make_card()
    assert rows(run("a", card), run("b", card)) == {}
    there = card.circumstances
    other = card.model_copy(
        update={
            "circumstances": there.model_copy(update={"versions": {**there.versions, "torch": "9.9"}, "threads": 77}),
            "data": card.data.model_copy(update={"train_rows": 5, "tokens_sha256": "f" * 64}),
        }
    )
    found = rows(run("a", card), run("b", other), run("c", card))
    assert found["versions", "torch"] == [there.versions.get("torch"), "9.9", there.versions.get("torch")]
    assert found["machine", "threads"] == [str(there.threads), "77", str(there.threads)]
    assert found["data", "training rows"] == [card.data.train_rows, 5, card.data.train_rows]
    assert ("data", "tokenized data") in found
    assert ("model", "base model") not in found


def test_files_of_one_name_and_other_contents_differ():
    card = make_card()
    changed = [file.model_copy(update={"sha256": "e" * 64}) for file in card.data.files]
    other = card.model_copy(update={"data": card.data.model_copy(update={"files": changed})})
    values = rows(run("a", card), run("b", other))["data", "training files"]
    assert len(set(values)) == 2


def test_a_run_without_a_card_is_told_and_makes_no_difference():
    card = make_card()
    found = side_by_side([run("a", card), run("b"), run("c", card)])
    assert found.rows == []
    assert any(found.outcomes[1].run in note for note in found.notes)


def test_one_run_can_be_looked_at_and_none_cannot():
    assert len(side_by_side([run("a")]).outcomes) == 1
    with pytest.raises(UsageError):
        side_by_side([])
