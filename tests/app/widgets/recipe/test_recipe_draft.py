"""The recipe while it is edited: suggestions, presets, and changes to undo."""

import pytest
from app.facts import page_facts as facts

from burnish_app.recipe.presets import PRESETS
from burnish_app.widgets.recipe.recipe_draft import RecipeDraft


@pytest.fixture
def draft(bench):
    return RecipeDraft(bench)


def with_epochs(recipe, epochs):
    return recipe.model_copy(update={"train": recipe.train.model_copy(update={"epochs": epochs})})


def test_a_suggestion_keeps_what_the_person_changed_until_all_of_it_is_taken(draft, bench):
    draft.write(with_epochs(bench.recipe, 7.0), "train.epochs")
    draft.suggest(facts.suggestion())
    assert (bench.recipe.train.epochs, bench.recipe.adapter.rank) == (7.0, 32)
    assert draft.all_suggested().train.epochs == 3.0


def test_an_edit_keeps_the_suggestion(draft, bench):
    draft.suggest(facts.suggestion())
    suggestion = bench.suggestion
    draft.write(with_epochs(bench.recipe, 5.0), "train.epochs")
    assert bench.suggestion is suggestion


def test_what_is_written_is_told_from_what_changes_elsewhere(draft, bench):
    seen = []
    bench.changed.connect(lambda name: seen.append(draft.edited_key) if name == "recipe" else None)
    draft.write(with_epochs(bench.recipe, 5.0), "train.epochs")
    bench.set_recipe(with_epochs(bench.recipe, 6.0))
    assert seen == ["train.epochs", None]


def test_a_change_can_be_undone_but_not_one_from_before_another_model(draft, bench):
    before = bench.recipe
    draft.write(with_epochs(before, 5.0), "train.epochs")
    draft.record()
    assert draft.history.go_to(0) == before
    bench.set_recipe(before.model_copy(update={"model": before.model.model_copy(update={"path": "/models/other"})}))
    draft.record()
    assert draft.history.changes == []


def test_presets_need_a_suggestion(draft, bench):
    assert draft.with_presets() == {}
    assert draft.preset_basis() is None
    draft.suggest(facts.suggestion())
    found = draft.with_presets()
    assert tuple(found) == tuple(PRESETS)
    assert len({recipe.train.epochs for recipe in found.values()}) > 1


def test_what_is_learned_is_not_suggested_but_chosen_with_the_rows(draft, bench):
    draft.suggest(facts.suggestion())
    chosen = bench.recipe.preference.model_copy(update={"objective": "dpo"})
    bench.set_recipe(bench.recipe.model_copy(update={"preference": chosen}))
    assert draft.suggested_values().preference.objective == "dpo"
    assert draft.suggested.preference.objective != "dpo"
