"""Every page makes a saved recipe the draft, and shows its name whole beside its state."""

import pytest
from PySide6.QtWidgets import QLabel

from burnish_app.page_states.page_state import ButtonState, PageState, seen
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
    qtbot.waitUntil(lambda: page.state_pill.y() > page.name_label.geometry().bottom())
    assert page.name_label.width() >= page.name_label.sizeHint().width()
    page.resize(1200, 600)
    qtbot.waitUntil(lambda: page.state_pill.x() > page.name_label.geometry().right())


def test_a_state_decides_what_is_seen_enabled_and_said(qtbot, held, bench):
    page, pressed = Page(held, bench), []
    qtbot.addWidget(page)
    first, second = QLabel("first"), QLabel("second")
    page.add_parts(first=first, second=second)
    page.set_primary("Go", lambda: pressed.append("go"))
    for name in ("save", "stop"):
        page.add_secondary(name, lambda name=name: pressed.append(name), name=name)
    page.show()
    go = ButtonState(text="Start", hint="At once.", does="start")
    page.apply(
        PageState(status="busy", note="Soon.", parts=seen(first=True), primary=go, buttons={"stop": ButtonState()})
    )
    assert (first.isVisible(), second.isVisible()) == (True, False)
    assert {name for name, button in page.buttons.items() if button.isVisible()} == {"stop"}
    assert (page.primary.text(), page.primary.toolTip(), page.showing.primary.does) == ("Start", "At once.", "start")
    assert (page.status, page.foot.note.text()) == ("busy", "Soon.")
    off = ButtonState(is_enabled=False)
    page.apply(PageState(status=None, parts=seen(second=True), primary=off, buttons={"save": off}))
    assert (first.isVisible(), second.isVisible()) == (False, True)
    assert {name for name, button in page.buttons.items() if button.isVisible()} == {"save"}
    assert (page.primary.text(), page.primary.isEnabled()) == ("Start", False), "what is empty stays"
    assert (page.status, page.foot.note.text()) == ("busy", "Soon."), "what is None stays"
    page.apply(PageState(note=""))
    assert not page.primary.isVisible()
    assert not page.foot.isVisible(), "nothing stands in it"
    assert page.status == "empty"
