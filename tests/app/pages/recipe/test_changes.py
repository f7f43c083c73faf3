"""Ways to change the recipe: presets, undo and redo, its text, and the search for a setting."""

import pytest
from app.facts import page_facts as facts
from app.pages.recipe.recipe_page import planned_ranks, settle
from app.widgets.test_page_widgets import type_into
from PySide6.QtCore import Qt

from burnish_engine.contract.recipe.recipe_file import parse_recipe

pytestmark = pytest.mark.gui


@pytest.mark.full
def test_undo_and_redo_reach_every_field_from_any_of_them(qtbot, page, bench):
    type_into(qtbot, page.form.row("adapter.rank"), "48")
    page.form.row("model.quantize").editor.setCurrentIndex(1)
    edit = page.form.row("name").editor
    edit.setFocus()
    qtbot.keyClick(edit, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert (bench.recipe.adapter.rank, bench.recipe.model.quantize) == (48, "none")
    qtbot.keyClick(edit, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert bench.recipe.adapter.rank == 32
    assert page.form.row("adapter.rank").value() == 32
    assert not page.settings.changes.undo_button.isEnabled()
    qtbot.keyClick(edit, Qt.Key.Key_Y, Qt.KeyboardModifier.ControlModifier)
    qtbot.keyClick(edit, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier)
    assert (bench.recipe.adapter.rank, bench.recipe.model.quantize) == (48, "nf4")
    assert page.form.row("model.quantize").value() == "nf4"
    page.form.search.setFocus()
    qtbot.keyClicks(page.form.search, "rank")
    qtbot.keyClick(page.form.search, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert (page.form.search.text(), bench.recipe.model.quantize) == ("rank", "none")


@pytest.mark.full
def test_an_invalid_value_is_undone_first(qtbot, page, bench):
    type_into(qtbot, page.form.row("adapter.rank"), "48")
    type_into(qtbot, page.form.row("train.epochs"), "no")
    page.settings.changes.undo()
    assert page.form.recipe() == bench.recipe
    assert (page.form.row("train.epochs").value(), bench.recipe.adapter.rank) == (3.0, 48)
    assert page.primary.isEnabled()


@pytest.mark.full
def test_undo_after_a_value_out_of_range_brings_the_value_before_it(qtbot, page, bench):
    before = bench.recipe
    type_into(qtbot, page.form.row("adapter.rank"), "99999")
    page.settings.changes.undo()
    assert page.form.row("adapter.rank").value() == before.adapter.rank
    assert bench.recipe == before


@pytest.mark.full
def test_what_other_pages_choose_is_not_undone_here(qtbot, page, bench):
    type_into(qtbot, page.form.row("adapter.rank"), "48")
    bench.set_data_files(["/data/other.jsonl"])
    assert not page.settings.changes.undo_button.isEnabled()
    page.settings.changes.undo()
    assert bench.data_files == ["/data/other.jsonl"]


@pytest.mark.full
def test_the_panel_says_what_the_last_change_did(qtbot, answers, page, bench, window):
    window.resize(1280, 800)
    settle(qtbot, page, bench)
    slower = facts.plan(memory_bytes=facts.plan().memory_bytes + 2**29, tokens_per_s=9_200.0)
    answers.result("estimate", plan=slower)
    type_into(qtbot, page.form.row("adapter.rank"), "64")
    qtbot.waitUntil(page.fit.change.isVisible)
    assert page.fit.change.what.text().startswith("Rank")
    assert "50\N{NO-BREAK SPACE}%" in page.fit.change.text
    assert "+0.50\N{NO-BREAK SPACE}GiB" in page.fit.change.text
    type_into(qtbot, page.form.row("train.epochs"), "no")
    assert page.fit.change.isHidden(), "nothing is said of a value that is invalid"


@pytest.mark.full
def test_a_preset_changes_how_long_it_trains_and_each_has_its_own_prediction(qtbot, answers, page, bench):
    cards = page.settings.presets.cards
    assert cards["balanced"].button.isChecked()
    settle(qtbot, page, bench)
    asked = [parse_recipe(request["recipe"]) for request in answers.asked("estimate")]
    lengths = {(one.train.epochs, one.train.max_steps) for one in asked}
    assert lengths >= {(3.0, 0), (3.0, 30), (6.0, 0)}
    type_into(qtbot, page.form.row("adapter.rank"), "48")
    qtbot.mouseClick(cards["quick"].button, Qt.MouseButton.LeftButton)
    assert bench.recipe.train.max_steps == page.form.row("train.max_steps").value() > 0
    assert bench.recipe.adapter.rank == 48
    type_into(qtbot, page.form.row("train.max_steps"), "7")
    assert not any(card.button.isChecked() for card in cards.values())
    qtbot.mouseClick(cards["balanced"].button, Qt.MouseButton.LeftButton)
    assert (bench.recipe.train.max_steps, bench.recipe.train.epochs) == (0, 3.0)


@pytest.mark.full
def test_the_recipe_is_edited_as_toml_and_as_a_form(qtbot, answers, page, bench):
    page.settings.view.button("toml").click()
    assert parse_recipe(page.toml.text.toPlainText()) == bench.recipe
    assert page.form.isHidden()
    text = page.toml.text.toPlainText()
    page.toml.text.setPlainText(text.replace("rank = 32", "rank = 24  # mine"))
    qtbot.waitUntil(lambda: bench.recipe.adapter.rank == 24)
    qtbot.waitUntil(lambda: 24 in planned_ranks(answers))
    assert "# mine" in page.toml.text.toPlainText()
    page.settings.view.button("form").click()
    assert page.form.row("adapter.rank").value() == 24
    type_into(qtbot, page.form.row("adapter.rank"), "40")
    page.settings.view.button("toml").click()
    assert "rank = 40" in page.toml.text.toPlainText()


@pytest.mark.full
def test_a_text_that_is_no_recipe_takes_the_verdict_back_and_is_not_kept(qtbot, page, bench):
    settle(qtbot, page, bench)
    page.settings.view.button("toml").click()
    page.toml.text.setPlainText("[adapter]\nrank = 999\n")
    qtbot.waitUntil(lambda: bench.plan is None and not page.primary.isEnabled())
    assert page.fit.verdict.text() != "It fits."
    assert bench.recipe.adapter.rank == 32
    page.settings.view.button("form").click()
    assert page.form.row("adapter.rank").value() == 32
    qtbot.waitUntil(lambda: page.fit.verdict.text() == "It fits.")
    assert page.primary.isEnabled()


@pytest.mark.full
def test_a_text_counts_as_soon_as_it_is_typed(qtbot, answers, page, bench):
    """Whoever starts, or goes back to the form, while typing has barely ended gets what was typed."""
    answers.result("start", run="/r")
    settle(qtbot, page, bench)
    page.settings.view.button("toml").click()
    text = page.toml.text.toPlainText()
    page.toml.text.setPlainText(text.replace("rank = 32", "rank = 24"))
    page.settings.view.button("form").click()
    assert (bench.recipe.adapter.rank, page.form.row("adapter.rank").value()) == (24, 24)
    page.settings.view.button("toml").click()
    page.toml.text.setPlainText(text.replace("rank = 32", "rank = 48"))
    page.start()
    qtbot.waitUntil(lambda: len(answers.asked("start")) == 1)
    assert parse_recipe(answers.asked("start")[0]["recipe"]).adapter.rank == 48


def test_a_text_that_is_no_recipe_starts_nothing(qtbot, answers, page, bench):
    settle(qtbot, page, bench)
    page.settings.view.button("toml").click()
    page.toml.text.setPlainText("[adapter]\nrank = 999\n")
    page.start()
    assert not page.starting.is_waiting


@pytest.mark.full
def test_ctrl_f_searches_the_settings(qtbot, page):
    edit = page.form.row("name").editor
    edit.setFocus()
    qtbot.keyClick(edit, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    assert page.form.search.hasFocus()


def test_a_recipe_that_is_dropped_gives_way_to_the_draft_by_undo(qtbot, page, bench, tmp_path):
    before, file = bench.recipe, tmp_path / "other.toml"
    file.write_text('name = "other"\n[data]\nfiles = ["b.jsonl"]\n[adapter]\nrank = 64\n', encoding="utf-8")
    page.take_drop([str(file)])
    assert (bench.recipe.name, bench.recipe.adapter.rank) == ("other", 64)
    assert "other.toml" in page.shown_banner.what
    qtbot.waitUntil(lambda: bench.suggestion is not None)
    assert bench.recipe.adapter.rank == 64, "the file says so"
    page.form.row("name").editor.setFocus()
    qtbot.keyClick(page.form.row("name").editor, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert bench.recipe == before
    bench.set_data_files(["/data/another.jsonl"])
    page.settings.changes.undo()
    assert bench.data_files == ["/data/another.jsonl"]
