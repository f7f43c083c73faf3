"""Buttons that start work are live only when what they would start is settled, and stands on the page.

Pages stand alone here, and their engine is not started: a test answers what they ask.
"""

import pytest
from app.facts import page_facts as facts
from app.page_scenes.several_scenes import a_duel, sweep_plan

from burnish_app.pages.duel import DuelPage
from burnish_app.pages.export import ExportPage
from burnish_app.pages.recipe import RecipePage
from burnish_app.pages.sweep import SweepPage
from burnish_engine.contract.recipe.recipe_export import TargetSection

pytestmark = pytest.mark.gui

UNFIT = "It does not fit."


@pytest.fixture
def shown(qtbot, held, bench):
    """Makes a page that is shown, with data to learn from."""
    bench.set_data_files(["/data/support.jsonl"])

    def show(kind):
        page = kind(held, bench)
        qtbot.addWidget(page)
        page.show()
        page.shown()
        return page

    return show


def test_no_run_starts_while_its_recipe_is_being_chosen(held, shown, bench):
    page = shown(RecipePage)
    assert page.settings.busy.isVisible()
    assert bench.is_choosing
    assert not page.primary.isEnabled()
    page.start()
    page.start(anyway=True)
    assert not held.requests("start")
    page.settings.busy.cancel.emit()  # what is shown is wanted
    assert not bench.is_choosing
    assert page.primary.isEnabled()


def test_a_suggestion_is_seen_before_it_can_be_started(qtbot, shown, bench):
    page = shown(RecipePage)
    page.suggestions.cancel()
    page.suggestions.suggested.emit(facts.suggestion())
    assert bench.recipe.adapter.rank == 32
    assert not page.primary.isEnabled()
    qtbot.waitUntil(page.primary.isEnabled)
    assert page.form.recipe() == bench.recipe


def test_an_offer_to_start_anyway_goes_with_the_recipe_that_it_is_about(held, shown, bench):
    page = shown(RecipePage)
    page.suggestions.cancel()
    page.start()
    held.fail("start", UNFIT, exit_code=10)
    assert page.shown_banner.what == UNFIT
    bench.set_target(TargetSection(kind="phone"))
    assert page.shown_banner is None


def test_no_sweep_starts_whose_draft_is_being_chosen_and_its_offer_goes_with_its_values(qtbot, held, shown, bench):
    page = shown(SweepPage)
    qtbot.waitUntil(lambda: bool(held.open("plan_sweep")))
    held.answer("plan_sweep", sweep_plan=sweep_plan())
    assert page.primary.isEnabled()
    page.start()
    held.fail("start_sweep", UNFIT, exit_code=10)
    bench.set_choosing(is_choosing=True)
    assert not page.primary.isEnabled()
    bench.set_choosing(is_choosing=False)
    page.settings.rows[0].values.setText("1e-5")
    assert page.shown_banner is None
    page.start(anyway=True)
    assert len(held.requests("start_sweep")) == 1


def test_values_are_proposed_around_those_of_the_draft_unless_some_were_typed(shown, bench):
    page = shown(SweepPage)
    row = page.settings.rows[0]
    assert str(bench.recipe.train.learning_rate) in row.values.text().split(", ")
    changed = bench.recipe.train.model_copy(update={"learning_rate": 0.001})
    bench.set_recipe(bench.recipe.model_copy(update={"train": changed}))
    assert row.values.text() == "0.0005, 0.001, 0.002"
    row.values.setText("0.3")
    bench.set_recipe(bench.recipe.model_copy(update={"train": bench.recipe.train}))
    assert row.values.text() == "0.3"


def test_no_duel_of_a_draft_starts_while_that_is_being_chosen(held, shown, bench):
    page = shown(DuelPage)
    page.planning.card.ask()
    held.answer("plan_duel", duels=[a_duel("planned")])
    assert page.primary.isEnabled()
    bench.set_choosing(is_choosing=True)
    assert not page.primary.isEnabled()


def test_no_export_starts_before_it_is_known_whether_one_goes_on(shown, run):
    page = shown(ExportPage)
    assert not page.primary.isEnabled()
    page.runs_changed([])
    assert page.primary.isEnabled()
