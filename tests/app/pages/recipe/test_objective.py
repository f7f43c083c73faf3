"""The objective is chosen in the form of the page Recipe as on the page Data, and undone."""

import pytest
from app.facts import data_facts
from app.facts import page_facts as facts
from app.widgets.test_page_widgets import type_into

from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import parse_recipe
from burnish_engine.contract.recipe.recipe_preference import LOSS_TYPES, PreferenceSection

pytestmark = pytest.mark.gui


@pytest.mark.full
def test_what_the_rows_decided_is_not_suggested_away(page, bench):
    bench.set_objective("dpo", data_facts.pairs())
    row = page.form.row("preference.objective")
    assert row.value() == "dpo"
    assert row.reset_button.isHidden()


def learning(objective, rate):
    """A suggestion for an objective, with a learning rate of its own."""
    values = {"preference": {"objective": objective}, "train": {"learning_rate": rate, "micro_batch_tokens": 4096}}
    return facts.suggestion(Recipe.model_validate(values))


def suggested_for(answers):
    """The objective of the last suggestion that was asked for; empty: none was."""
    asked = answers.asked("suggest")
    return parse_recipe(asked[-1]["recipe"]).preference.objective if asked else ""


@pytest.mark.full
def test_another_objective_asks_for_its_learning_rate(qtbot, answers, page, bench, window):
    answers.result("suggest", suggestion=learning("dpo", 2e-5))
    bench.set_objective("dpo", data_facts.pairs())
    window.go_to("data")
    window.go_to("recipe")
    qtbot.waitUntil(lambda: page.form.row("train.learning_rate").value() == 2e-5)
    assert suggested_for(answers) == "dpo"
    answers.result("suggest", suggestion=learning("orpo", 3e-4))
    box = page.form.row("preference.objective").editor
    box.setCurrentIndex(box.findData("orpo"))
    qtbot.waitUntil(lambda: bench.recipe.train.learning_rate == 3e-4)
    assert bench.recipe.preference.objective == "orpo"
    assert suggested_for(answers) == "orpo"
    assert not page.suggestions.is_waiting


def choose(page, key, value):
    """Choose a value in the form, as a person does."""
    box = page.form.row(key).editor
    box.setCurrentIndex(box.findData(value))


@pytest.mark.full
def test_only_losses_of_the_objective_are_offered(page):
    box = page.form.row("preference.loss_type").editor
    items, view = box.model(), box.view()
    for objective in ("dpo", "kto", "dpo"):
        choose(page, "preference.objective", objective)
        box.showPopup()
        enabled = [number for number in range(box.count()) if items.item(number).isEnabled()]
        shown = [number for number in range(box.count()) if view.visualRect(items.index(number, 0)).height()]
        box.hidePopup()
        assert {box.itemData(number) for number in enabled} == set(LOSS_TYPES[objective])
        assert shown == enabled


@pytest.mark.full
def test_another_objective_takes_its_own_settings_and_undo_brings_the_former_ones_back(page, bench):
    bench.set_objective("dpo", data_facts.pairs())
    choose(page, "preference.loss_type", "ipo")
    bench.change_preference("beta", 0.3)
    dpo = bench.recipe.preference
    assert (dpo.beta, dpo.loss_type, dpo.rpo_alpha) == (0.3, "ipo", 1.0)
    choose(page, "preference.objective", "simpo")
    assert bench.recipe.preference == PreferenceSection(objective="simpo", beta=2.0)
    assert page.form.row("preference.beta").value() == 2.0
    assert page.form.row("preference.rpo_alpha").value() == 0.0
    page.settings.changes.undo()
    assert bench.recipe.preference == dpo
    assert page.form.row("preference.beta").value() == 0.3
    choose(page, "preference.objective", "kto")  # which has no loss of this name, and the same beta
    assert bench.recipe.preference == PreferenceSection(objective="kto", beta=0.3)
    assert not page.form.problems()


@pytest.fixture
def both(answers, window, bench):
    """The pages Data and Recipe, with rows that were inspected, and nothing that is suggested or planned meanwhile."""
    for method in ("suggest", "estimate", "inspect"):
        answers.set(method, {"hold": True})

    def show(dataset, **sections):
        bench.set_data_files(["/data/preferences.jsonl"])
        data = {"max_length": 2048, **sections.pop("data", {}), "files": bench.data_files}
        values = {"data": data, "train": {"micro_batch_tokens": 2048}, **sections}
        bench.set_recipe(Recipe.model_validate(values))
        bench.set_dataset(dataset)
        pages = {}
        for key in ("data", "recipe"):
            window.go_to(key)
            pages[key] = window.page(key)
        return pages

    return show


PAIRS, LABELS = data_facts.pairs(), data_facts.dataset(shape="kto", warnings=[])
OWN = {"beta": 0.3, "label_smoothing": 0.1, "loss_type": "robust"}


@pytest.mark.full
@pytest.mark.parametrize(
    ("dataset", "start", "chosen"),
    [
        (PAIRS, {"data": {"shape": "preference"}}, ["dpo"]),
        (PAIRS, {"data": {"shape": "preference"}}, ["simpo", "orpo", "sft", "dpo"]),
        (PAIRS, {"preference": {"objective": "dpo", **OWN}, "train": {"micro_batch_tokens": 8192}}, ["simpo", "sft"]),
        (PAIRS, {"data": {"shape": "preference"}, "adapter": {"method": "full"}}, ["dpo", "sft"]),
        (LABELS, {"data": {"shape": "kto"}, "task": {"metric": "choice"}}, ["kto"]),
        (LABELS, {"data": {"shape": "kto"}, "task": {"metric": "json"}}, ["kto", "sft"]),
    ],
)
def test_the_same_choice_makes_the_same_recipe_on_the_page_data_and_in_the_form(
    qtbot, window, bench, both, dataset, start, chosen
):
    pages = both(dataset, **start)
    before = bench.recipe
    by_form, by_card = [], []
    for objective in chosen:
        choose(pages["recipe"], "preference.objective", objective)
        assert not pages["recipe"].form.problems()
        by_form.append(bench.recipe)
    bench.set_recipe(before)
    window.go_to("data")
    for objective in chosen:
        bench.set_dataset(dataset)
        qtbot.waitUntil(lambda: not pages["data"]._turn.isActive() and pages["data"].objective.isVisible())
        pages["data"].objective.buttons[objective].click()
        by_card.append(bench.recipe)
    assert by_form == by_card
    assert [recipe.preference.objective for recipe in by_form] == chosen


@pytest.mark.full
def test_a_choice_in_the_form_shows_all_that_it_changed_and_one_undo_takes_it_back(bench, both):
    page = both(PAIRS, data={"shape": "preference"}, adapter={"method": "full"}, task={"metric": "choice"})["recipe"]
    before = bench.recipe
    for objective, changed in (
        ("dpo", {"train.micro_batch_tokens": 4096, "adapter.method": "lora", "preference.rpo_alpha": 1.0}),
        ("simpo", {"train.micro_batch_tokens": 4096, "adapter.method": "full", "preference.beta": 2.0}),
        ("kto", {"train.micro_batch_tokens": 2048, "adapter.method": "lora", "task.metric": "none"}),
    ):
        rows = {key: page.form.row(key) for key in changed}
        choose(page, "preference.objective", objective)
        assert {key: row.value() for key, row in rows.items()} == changed
        assert page.form.recipe() == bench.recipe
        page.settings.changes.undo()
        assert page.form.recipe() == bench.recipe == before
        assert not page.settings.changes.undo_button.isEnabled()


@pytest.mark.full
def test_a_choice_shows_what_it_changed_while_another_value_is_invalid(qtbot, answers, bench, both):
    page = both(LABELS, data={"shape": "kto"}, task={"metric": "choice"})["recipe"]
    before, metric = bench.recipe, page.form.row("task.metric")
    type_into(qtbot, page.form.row("train.epochs"), "no")
    choose(page, "preference.objective", "kto")
    assert metric.value() == "none"
    assert list(page.form.problems()) == ["train.epochs"]
    assert bench.recipe == before
    type_into(qtbot, page.form.row("train.epochs"), "5")
    assert (bench.recipe.preference.objective, bench.recipe.task.metric) == ("kto", "none")
    qtbot.waitUntil(lambda: suggested_for(answers) == "kto")
    page.settings.changes.undo()
    assert bench.recipe == before


def test_replies_as_they_stand_are_chosen_in_the_form_for_good_and_undone(bench, both):
    page = both(PAIRS, preference={"objective": "dpo"}, train={"micro_batch_tokens": 4096})["recipe"]
    before = bench.recipe
    choose(page, "preference.objective", "sft")
    assert (bench.recipe.preference.objective, bench.recipe.data.shape) == ("sft", "preference")
    page.settings.changes.undo()
    assert bench.recipe == before
    page.settings.changes.redo()
    assert (bench.recipe.preference.objective, bench.recipe.data.shape) == ("sft", "preference")


@pytest.mark.full
def test_a_choice_in_the_form_is_not_suggested_away_while_its_suggestion_is_waited_for(answers, page, bench):
    answers.set("suggest", {"hold": True})
    choose(page, "preference.objective", "dpo")
    for key in ("preference.objective", "preference.rpo_alpha"):
        assert page.form.row(key).reset_button.isHidden()


@pytest.mark.full
def test_undo_takes_the_objective_back_with_what_was_suggested_for_it(qtbot, answers, page, bench):
    type_into(qtbot, page.form.row("train.epochs"), "7")
    before, first = bench.recipe, bench.suggestion
    answers.result("suggest", suggestion=learning("dpo", 2e-5))
    choose(page, "preference.objective", "dpo")
    qtbot.waitUntil(lambda: bench.recipe.train.learning_rate == 2e-5 and not page.suggestions.is_waiting)
    after, asked = bench.recipe, len(answers.asked("suggest"))
    page.settings.changes.undo()
    assert (bench.recipe, bench.suggestion) == (before, first)
    assert page.form.row("train.learning_rate").reset_button.isHidden(), "the former suggestion came back"
    page.settings.changes.redo()
    assert bench.recipe == after
    assert page.form.row("train.learning_rate").reset_button.isHidden()
    page.settings.changes.undo()
    page.settings.changes.undo()
    assert bench.recipe.train.epochs == 3.0
    assert len(answers.asked("suggest")) == asked


def test_an_objective_that_was_undone_gets_no_suggestion_any_more(qtbot, answers, answered, page, bench):
    before = bench.recipe
    answers.result("suggest", suggestion=learning("dpo", 2e-5))
    choose(page, "preference.objective", "dpo")
    page.settings.changes.undo()
    qtbot.waitUntil(lambda: not page.suggestions.is_waiting)
    answered()
    assert bench.recipe == before
    page.settings.changes.redo()
    qtbot.waitUntil(lambda: bench.recipe.train.learning_rate == 2e-5)
    assert bench.recipe.preference.objective == "dpo"
