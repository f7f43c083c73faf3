"""Changes of a recipe, undone and redone, and what each did to the plan."""

import pytest
from app.facts import page_facts as facts

from burnish_app.recipe.history import PlannedChange, RecipeHistory, change_text
from burnish_engine.contract.recipe.recipe import Recipe


def recipe(**sections):
    return Recipe.model_validate(sections)


def ranked(rank):
    return recipe(adapter={"rank": rank})


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def history(clock):
    return RecipeHistory(ranked(16), clock)


def test_changes_are_undone_and_redone_in_order(history, clock):
    for rank in (32, 64):
        clock.now += 10
        history.record(ranked(rank), "adapter.rank")
    assert (history.done, len(history.changes)) == (2, 2)
    assert history.go_to(1).adapter.rank == 32
    assert history.go_to(0).adapter.rank == 16
    assert history.go_to(-1).adapter.rank == 16
    assert history.go_to(2).adapter.rank == history.go_to(9).adapter.rank == 64


def test_the_last_change_gets_another_outcome_and_stays_one_change(history, clock):
    for rank in (32, 64):
        clock.now += 10
        history.record(ranked(rank), "adapter.rank")
    history.go_to(1)
    assert history.before == ranked(16)
    history.amend(ranked(48))
    assert (history.recipe, history.done, len(history.changes)) == (ranked(48), 1, 1)
    assert "48" in history.changes[0]
    assert history.go_to(0) == history.before == ranked(16)


def test_a_change_after_an_undo_forgets_what_was_undone(history, clock):
    history.record(ranked(32), "adapter.rank")
    history.go_to(0)
    history.record(recipe(train={"epochs": 5.0}), "train.epochs")
    assert len(history.changes) == 1
    assert "Epochs" in history.changes[0]


def test_undo_after_undo_says_what_each_took_back(history, clock):
    change = PlannedChange()
    change.take(history.recipe, facts.plan(), history.step)
    for rank in (32, 64):
        clock.now += 10
        history.record(ranked(rank), "adapter.rank")
        change.take(history.recipe, facts.plan(), history.step)
    said = []
    for done in (1, 0, 1, 2):
        recipe = history.go_to(done)
        said.append(change.take(recipe, facts.plan(), history.step)[0])
    taken = [text.partition(": ")[2] for text in said]
    assert taken == ["64 → 32", "32 → 16", "16 → 32", "32 → 64"]


def test_a_quick_edit_after_an_undo_is_a_change_of_its_own(history, clock):
    for rank in (32, 64):
        clock.now += 10
        history.record(ranked(rank), "adapter.rank")
    history.go_to(1)
    clock.now += 0.1
    history.record(ranked(48), "adapter.rank")
    assert (history.done, len(history.changes)) == (2, 2)
    assert history.go_to(1) == ranked(32)


def test_the_keys_of_one_number_are_one_change(history, clock):
    for rank in (1, 12, 128):
        clock.now += 0.2
        history.record(ranked(rank), "adapter.rank")
    assert len(history.changes) == 1
    assert "16" in history.changes[0]
    assert "128" in history.changes[0]
    clock.now += 10
    history.record(ranked(64), "adapter.rank")
    assert len(history.changes) == 2, "a pause ends a change"
    history.record(recipe(adapter={"rank": 64}, train={"epochs": 5.0}), "train.epochs")
    assert len(history.changes) == 3, "another field is another change"


def test_what_was_typed_back_is_no_change(history, clock):
    history.record(ranked(1), "adapter.rank")
    clock.now += 0.1
    history.record(ranked(16), "adapter.rank")
    assert history.changes == []
    assert history.recipe == ranked(16)


def test_a_change_names_what_it_changed():
    assert change_text(ranked(16), ranked(16)) == ""
    assert "off" in change_text(Recipe(), recipe(train={"max_steps": 60}))
    quantized = change_text(Recipe(), recipe(model={"quantize": "nf4"}))
    assert "QLoRA" in quantized
    both = change_text(ranked(16), recipe(adapter={"rank": 8}, train={"epochs": 5.0}))
    assert "Rank" in both
    assert "Epochs" in both
    three = {"epochs": 5.0, "max_steps": 60}
    assert not change_text(ranked(16), recipe(adapter={"rank": 8}, train=three)).endswith("...")
    more = {**three, "learning_rate": 1e-3}
    assert change_text(ranked(16), recipe(adapter={"rank": 8}, train=more)).endswith("...")


def test_the_plan_before_a_change_is_compared_with_the_one_after_it(history, clock):
    change = PlannedChange()
    before, after = facts.plan(), facts.plan(tokens_per_s=9_200.0)
    assert change.take(history.recipe, before, history.step) is None
    history.record(ranked(1), "adapter.rank")
    change.take(history.recipe, facts.plan(tokens_per_s=50_000.0), history.step)
    history.record(ranked(128), "adapter.rank")
    what, found = change.take(history.recipe, after, history.step)
    assert "16" in what, "keys in between do not count"
    assert [effect.better for effect in found] == [False]
    assert "50 %" in found[0].text
    what, found = change.take(history.go_to(0), before, history.step)
    assert "128" in what.partition("→")[0], "an undo is a change too"
    assert [effect.better for effect in found] == [True]


def test_a_name_leaves_the_last_change_as_it_was(history):
    change = PlannedChange()
    change.take(history.recipe, facts.plan(), history.step)
    history.record(ranked(32), "adapter.rank")
    first = change.take(history.recipe, facts.plan(tokens_per_s=9_200.0), history.step)
    history.record(ranked(32).model_copy(update={"name": "mine"}), "name")
    assert change.take(history.recipe, facts.plan(tokens_per_s=9_200.0), history.step) == first
    history.record(ranked(8).model_copy(update={"name": "mine"}), "adapter.rank")
    what, _ = change.take(history.recipe, facts.plan(), history.step)
    assert "32" in what


def test_what_an_inspection_did_to_the_plan_is_not_the_last_change(history, clock):
    change = PlannedChange()
    change.take(history.recipe, facts.plan(), history.step)
    assert change.take(history.recipe, facts.plan(steps=248), history.step) is None
    history.record(ranked(32), "adapter.rank")
    first = change.take(history.recipe, facts.plan(steps=248, tokens_per_s=9_200.0), history.step)
    assert change.take(history.recipe, facts.plan(steps=300, tokens_per_s=9_000.0), history.step) == first
    clock.now += 10
    history.record(ranked(64), "adapter.rank")
    _, found = change.take(history.recipe, facts.plan(steps=300, tokens_per_s=4_500.0), history.step)
    assert ["50 %" in effect.text for effect in found if "speed" in effect.text] == [True], "compared with the newest"
    assert not [effect for effect in found if "steps" in effect.text]


def test_plans_about_other_data_are_not_compared(history):
    change = PlannedChange()
    change.take(history.recipe, facts.plan(), history.step)
    change.forget()
    history.record(ranked(32), "adapter.rank")
    assert change.take(history.recipe, facts.plan(), history.step) is None


def test_undo_after_a_value_out_of_range_goes_to_the_one_before_it(history, clock):
    """Typing 99999 goes by 9 and 99, which nobody meant."""
    for rank in (9, 99):
        clock.now += 0.2
        history.record(ranked(rank), "adapter.rank")
    for _ in range(3):
        clock.now += 0.2
        history.spoil("adapter.rank")
    assert history.go_to(history.before_spoiled) == ranked(16)


def test_undo_after_an_invalid_value_keeps_what_was_typed_before(history, clock):
    history.record(ranked(99), "adapter.rank")
    clock.now += 10
    history.spoil("adapter.rank")
    assert history.go_to(history.before_spoiled) == ranked(99)
    clock.now += 0.2
    history.spoil("train.epochs")
    assert history.before_spoiled == 1
    history.record(ranked(32), "adapter.rank")
    clock.now += 0.2
    history.spoil("adapter.rank")
    history.record(ranked(48), "adapter.rank")
    assert history.before_spoiled == history.done == 2, "it was mended"
