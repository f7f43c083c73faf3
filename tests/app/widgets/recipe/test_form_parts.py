"""The recipe form's number boxes, search, offers, presets and text, driven by keys and clicks."""

import pytest
from app.facts import machine_facts as machines
from app.facts import page_facts as facts
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QAccessible, QWheelEvent
from PySide6.QtWidgets import QApplication, QStyle, QStyleOptionSpinBox

from burnish_app.recipe.history import RecipeHistory
from burnish_app.recipe.plan_text import Effect
from burnish_app.recipe.presets import PresetBasis, with_preset
from burnish_app.widgets.recipe.change_bar import ChangeBar
from burnish_app.widgets.recipe.last_change import LastChange
from burnish_app.widgets.recipe.preset_bar import PresetBar
from burnish_app.widgets.recipe.recipe_form import RecipeForm
from burnish_app.widgets.recipe.toml_editor import TomlEditor
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_file import dump_recipe

pytestmark = pytest.mark.gui


@pytest.fixture
def form(qtbot, theme):
    made = RecipeForm()
    qtbot.addWidget(made)
    made.resize(620, 900)
    made.all_settings.open()
    made.show()
    return made


def press_stepper(qtbot, box, control):
    option = QStyleOptionSpinBox()
    box.initStyleOption(option)
    place = box.style().subControlRect(QStyle.ComplexControl.CC_SpinBox, option, control, box)
    qtbot.mouseClick(box, Qt.MouseButton.LeftButton, pos=place.center())


@pytest.mark.full
def test_a_number_is_stepped_by_keys_and_buttons(qtbot, form):
    row = form.row("adapter.rank")
    with qtbot.waitSignal(form.edited) as edited:
        qtbot.keyClick(row.editor, Qt.Key.Key_Up)
    assert edited.args == ["adapter.rank"]
    assert form.recipe().adapter.rank == 32
    press_stepper(qtbot, row.editor, QStyle.SubControl.SC_SpinBoxUp)
    assert form.recipe().adapter.rank == 64
    press_stepper(qtbot, row.editor, QStyle.SubControl.SC_SpinBoxDown)
    assert form.recipe().adapter.rank == 32


@pytest.mark.full
def test_a_word_stands_for_zero_and_is_typed_as_well_as_the_number(qtbot, form):
    box = form.row("train.max_steps").editor
    assert box.text() == "off"
    assert not box._unit.isVisible()
    box.selectAll()
    qtbot.keyClicks(box, "40")
    assert form.recipe().train.max_steps == 40
    assert box._unit.isVisible()
    box.selectAll()
    qtbot.keyClicks(box, "OFF")
    assert form.recipe().train.max_steps == 0
    qtbot.keyClick(box, Qt.Key.Key_Up)
    assert form.recipe().train.max_steps == 10
    assert box._unit.isVisible()


def test_scrolling_over_a_number_or_choice_changes_nothing(form):
    form.row("adapter.rank").editor.setFocus()
    for key in ("adapter.rank", "model.quantize"):
        editor = form.row(key).editor
        before = form.row(key).value()
        no = QPoint(0, 0)
        wheel = QWheelEvent(
            QPointF(9, 9), QPointF(9, 9), no, QPoint(0, -120), Qt.MouseButton.NoButton,
            Qt.KeyboardModifier.NoModifier, Qt.ScrollPhase.NoScrollPhase, False,
        )  # fmt: skip
        QApplication.sendEvent(editor, wheel)
        assert form.row(key).value() == before


@pytest.mark.full
def test_every_editor_has_a_name_and_says_its_reason_or_problem(qtbot, form):
    form.show_suggestion(Recipe(), {"adapter.rank": "Room enough."})
    qtbot.waitUntil(lambda: not form._timer.isActive())
    for row in form.rows.values():
        spoken = QAccessible.queryAccessibleInterface(row.editor)
        assert row.editor.accessibleName() == row.field.label
        assert spoken.text(QAccessible.Text.Description)
    rank = form.row("adapter.rank")
    assert rank.editor.accessibleDescription() == "Room enough."
    rank.editor.setText("999")
    rank._on_edited()
    assert "256" in rank.editor.accessibleDescription()


def shown(form):
    return {key for key, row in form.rows.items() if row.isVisible()}


def test_a_search_shows_what_it_finds_in_folded_sections_and_nothing_else(qtbot, form):
    qtbot.waitUntil(lambda: not form._timer.isActive())
    before = shown(form)
    qtbot.keyClicks(form.search, "checkpoint")
    qtbot.waitUntil(lambda: shown(form) == form.found)
    assert "train.keep_checkpoints" in shown(form)
    assert "train.epochs" not in shown(form)
    assert form.folds["Training"].button.text().startswith("▾"), "its rows are seen"
    assert str(len(form.found)) in form.search.accessibleDescription()
    form.search.setText("max_grad")  # one among others that were found before
    qtbot.waitUntil(lambda: shown(form) == {"train.max_grad_norm"})
    form.search.setText("epochs")
    qtbot.waitUntil(lambda: "train.epochs" in shown(form) and shown(form) == form.found)
    assert "train.learning_rate" not in shown(form), "a neighbor in the same group"
    form.search.setText("checkpoint")
    row = form.row("train.keep_checkpoints")
    qtbot.keyClick(row.editor, Qt.Key.Key_Up)
    assert form.recipe().train.keep_checkpoints == 3
    qtbot.keyClick(form.search, Qt.Key.Key_Escape)
    assert form.search.text() == ""
    form.folds["Training"].button.click()  # opened by `row`
    qtbot.waitUntil(lambda: shown(form) == before)


@pytest.mark.full
def test_a_search_shows_what_has_no_use_now_and_says_so(qtbot, form):
    qtbot.keyClicks(form.search, "momentum")
    qtbot.waitUntil(lambda: "train.momentum" in shown(form))
    assert not form.row("train.momentum").editor.isEnabled()
    assert form.row("train.momentum").beside.text()
    form.search.setText("optimizer")
    form.row("train.optimizer").editor.setCurrentText("Muon")
    form.search.setText("momentum")
    assert form.row("train.momentum").editor.isEnabled()


def test_all_settings_are_one_title_until_they_are_wanted(qtbot, form):
    form.all_settings.button.click()
    assert not form.search.isVisible()
    form.show_suggestion(Recipe(), {})
    form.show_recipe(Recipe.model_validate({"train": {"seed": 7, "epochs": 9.0}}))
    assert "1 not as suggested" in form.all_settings.button.text(), "the epochs are in view"
    assert form.differing == 2
    form.search.setText("seed")  # as by Ctrl+F
    assert form.search.isVisible()
    qtbot.waitUntil(lambda: "train.seed" in shown(form))


def test_a_search_without_a_hit_says_so(qtbot, form):
    qtbot.keyClicks(form.search, "zebra")
    assert form._hits.isVisible()
    assert shown(form) == set()


def test_settings_of_this_case_stand_below_the_main_ones_with_their_reason(qtbot, form):
    qtbot.waitUntil(lambda: not form._timer.isActive())
    assert not form._offered.isVisible()
    spec = facts.model_facts().spec.model_dump() | {"num_experts": 64, "experts_per_token": 8}
    form.show_case(facts.model_facts(spec=DecoderSpec(**spec)), None, machines.pair(), None)
    qtbot.waitUntil(lambda: "adapter.expert_rank" in form.rows)
    row = form.row("adapter.expert_rank")
    assert form._offered.isAncestorOf(row)
    assert "64 experts" in row.beside.text()
    assert row.editor.text() == "auto"
    form.row("devices.strategy").editor.setCurrentIndex(1)
    assert form.recipe().devices.gpus == [gpu.index for gpu in machines.pair().gpus]
    assert form.row("devices.gpus").value() == form.recipe().devices.gpus
    form.show_case(facts.model_facts(), None, machines.pair(), None)
    assert not form._offered.isAncestorOf(row)
    assert form.row("adapter.expert_rank") is row, "it is back in its section"
    assert row.isVisible()


def test_a_section_that_hides_a_problem_opens(qtbot, form):
    form.show_recipe(Recipe.model_validate({"evaluation": {"every": 50, "patience": 3}}))
    form.row("evaluation.every")
    form.folds["Evaluation and early stopping"].button.click()
    assert not form.row("train.epochs").isHidden()
    every = form.row("evaluation.every")
    every.editor.setText("0")
    every._on_edited()
    assert form.recipe() is None
    assert form.row("evaluation.patience").isVisible()


@pytest.mark.full
def test_a_name_is_not_suggested(form):
    form.show_suggestion(Recipe(), {})
    form.show_recipe(Recipe(name="mine"))
    assert form.row("name").reset_button.isHidden()


@pytest.mark.full
def test_a_section_counts_what_was_changed_in_it(form):
    fold = form.folds["Training"]
    form.show_suggestion(Recipe(), {})
    assert "suggested" not in fold.button.text()
    form.show_recipe(Recipe.model_validate({"train": {"seed": 7, "pack": False}}))
    assert "2 not as suggested" in fold.button.text()


def test_a_preset_is_chosen_and_marked_and_none_for_values_of_ones_own(qtbot, theme):
    bar = PresetBar()
    qtbot.addWidget(bar)
    bar.show()
    basis = PresetBasis(Recipe(), 400, has_held_out=True)
    bar.show_basis(basis)
    with qtbot.waitSignal(bar.chosen) as chosen:
        qtbot.mouseClick(bar.cards["best"].button, Qt.MouseButton.LeftButton)
    assert chosen.args == ["best"]
    bar.show_chosen("quick")
    assert [name for name, card in bar.cards.items() if card.button.isChecked()] == ["quick"]
    bar.show_chosen(None)
    assert not any(card.button.isChecked() for card in bar.cards.values())
    bar.show_plan("best", facts.plan(seconds=600.0))
    assert "10 min" in bar.cards["best"].button.accessibleDescription()
    bar.show_basis(PresetBasis(Recipe(), 400, has_held_out=False))
    assert not bar.cards["best"].button.isEnabled()
    bar.show_basis(None)
    assert bar.isHidden()


def test_the_list_of_changes_leads_to_each_of_them(qtbot, theme):
    history = RecipeHistory(Recipe())
    bar = ChangeBar(history)
    qtbot.addWidget(bar)
    assert not bar.undo_button.isEnabled()
    suggested = PresetBasis(Recipe(), 400, has_held_out=True)
    history.record(with_preset(Recipe(), "quick", suggested))
    history.record(with_preset(Recipe(), "best", suggested))
    bar.refresh()
    assert "Epochs" in bar.undo_button.accessibleName()
    assert not bar.redo_button.isEnabled()
    actions = bar.menu().actions()
    assert len(actions) == 3
    assert "2" in bar.list_button.accessibleName()
    assert [action.isChecked() for action in actions] == [True, False, False]
    with qtbot.waitSignal(bar.wanted) as wanted:
        actions[2].trigger()
    assert wanted.args == [0]


def test_the_last_change_is_said_to_eyes_and_to_screen_readers(qtbot, theme):
    box = LastChange()
    qtbot.addWidget(box)
    assert box.isHidden()
    box.show_change("Rank: 16 → 32", [Effect("+0.40 GiB memory", better=False)])
    assert not box.isHidden()
    assert "+0.40\N{NO-BREAK SPACE}GiB" in box.text
    assert "Rank" in box.what.text()
    box.forget()
    assert box.isHidden()
    assert box.text == ""


def test_a_text_is_a_recipe_once_it_can_be_read(qtbot, theme):
    editor = TomlEditor()
    qtbot.addWidget(editor)
    editor.show_recipe(Recipe())
    with qtbot.waitSignal(editor.edited):
        editor.text.setPlainText("[train]\nepochs = 5.0  # mine\n")
    assert editor.recipe().train.epochs == 5.0
    editor.show_recipe(editor.recipe())
    assert "# mine" in editor.text.toPlainText(), "the text stays as typed"
    for broken, said in (("[train]\nepochs = \n", "TOML"), ("[train]\nepochz = 5.0\n", "epochz")):
        with qtbot.waitSignal(editor.edited):
            editor.text.setPlainText(broken)
        assert editor.recipe() is None
        assert said in editor.problem.text()
    editor.show_recipe(Recipe())
    assert editor.text.toPlainText().strip() == dump_recipe(Recipe()).strip()
    assert "TOML" not in editor.problem.text()
