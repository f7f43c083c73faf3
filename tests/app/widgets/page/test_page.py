"""Every page makes a saved recipe the draft, and shows its name whole beside its state."""

import pytest

from burnish_app.widgets.page.page import Page
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe


@pytest.fixture
def page(qtbot, theme, client, bench):
    made = Page(client, bench)
    qtbot.addWidget(made)
    return made


@pytest.mark.full
def test_a_copy_of_a_recipe_becomes_the_draft_and_is_shown(qtbot, page, bench, tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(dump_recipe(Recipe(name="old")), encoding="utf-8")
    before = bench.recipe
    with qtbot.waitSignal(page.go_to) as led:
        page.draft_from(path, "support-desk", lambda recipe: recipe.model_copy(update={"name": "new"}))
    assert led.args == ["recipe"]
    assert bench.recipe.name == "new"
    assert (bench.replaced.source, bench.replaced.former) == ("support-desk", before)


def test_a_recipe_that_cannot_be_read_leaves_the_draft_and_the_page(qtbot, page, bench, tmp_path):
    before = bench.recipe
    with qtbot.assertNotEmitted(page.go_to):
        page.draft_from(tmp_path / "gone.toml", "support-desk")
    assert bench.recipe == before
    assert page.shown_banner.kind == "error"


def test_a_long_state_goes_below_a_name_that_it_would_shorten(qtbot, page):
    page.set_name("support-desk of this week")
    page.set_state("Checking that it will learn", "live")
    page.resize(470, 600)
    page.show()
    qtbot.waitUntil(lambda: page._pill.y() > page._name.geometry().bottom())
    assert page._name.width() >= page._name.sizeHint().width()
    page.resize(1200, 600)
    qtbot.waitUntil(lambda: page._pill.x() > page._name.geometry().right())
