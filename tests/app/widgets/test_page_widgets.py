"""The widgets of the pages on their own."""

from typing import get_args

import pytest
from app.facts import page_facts as facts
from PySide6.QtCore import QEvent, QPoint, Qt
from PySide6.QtGui import QHelpEvent, QTextCursor, QTextFormat
from PySide6.QtWidgets import QCheckBox, QLabel, QToolTip

from burnish_app.item_models.listed_models import ListedModelsTableModel, merge
from burnish_app.recipe.place_text import planned_place
from burnish_app.recipe.plan_text import plan_line, time_text
from burnish_app.state.answerers import Answerer
from burnish_app.widgets.data.example_view import ExampleView
from burnish_app.widgets.data.histogram import LengthHistogram
from burnish_app.widgets.export.type_choices import TypeChoices
from burnish_app.widgets.model.target_selector import TargetSelector
from burnish_app.widgets.recipe.fields.place_box import PlaceBox
from burnish_app.widgets.recipe.fit_card import FitCard
from burnish_app.widgets.recipe.memory_bar import MemoryBar, MemorySegment
from burnish_app.widgets.recipe.recipe_form import RecipeForm
from burnish_app.widgets.try_out.chat_pane import ChatPane
from burnish_engine.contract.facts.advice import TimePart
from burnish_engine.contract.facts.coverage import Coverage, KindCoverage
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_export import TargetSection
from burnish_engine.contract.serve.model_requests import ChatMessage
from burnish_engine.contract.serve.replies import Reply

pytestmark = pytest.mark.gui


@pytest.fixture
def form(qtbot, theme):
    made = RecipeForm()
    qtbot.addWidget(made)
    made.show()
    return made


def type_into(qtbot, row, text):
    edit = row.editor.lineEdit() if isinstance(row.editor, PlaceBox) else row.editor
    edit.selectAll()
    qtbot.keyClicks(edit, text)


@pytest.mark.full
def test_the_form_shows_the_schema_s_message_beside_the_field(qtbot, form):
    with qtbot.waitSignal(form.edited):
        type_into(qtbot, form.row("adapter.rank"), "999")
    assert form.recipe() is None
    assert "at most 256" in form.problems()["adapter.rank"]
    assert "at most 256" in form.row("adapter.rank").beside.text()
    type_into(qtbot, form.row("adapter.rank"), "64")
    assert form.recipe().adapter.rank == 64
    assert form.row("adapter.rank").beside.text() == ""


@pytest.mark.full
def test_a_problem_between_fields_is_said_at_the_one_that_it_names_first(qtbot, form):
    row = form.row("data.max_length")
    type_into(qtbot, row, "4096")
    assert form.recipe() is None
    assert "a row has to fit into one pass" in row.beside.text()
    assert not form.other_problems.isVisible()


def test_a_problem_that_begins_with_no_field_is_said_at_the_top(form):
    values = {"preference": {"objective": "dpo"}, "data": {"max_length": 1024}, "train": {"micro_batch_tokens": 2048}}
    form.show_recipe(Recipe.model_validate(values))
    form.row("train.micro_batch_tokens").editor.setText("1024")
    form.row("train.micro_batch_tokens")._on_edited()
    assert form.recipe() is None
    assert "a pair of rows" in form.other_problems.text()
    assert form.other_problems.isVisible()


def test_a_problem_of_a_section_is_said_at_the_field_it_is_about(qtbot, form):
    patience = form.row("evaluation.patience")
    type_into(qtbot, patience, "3")
    assert form.recipe() is None
    assert "every = 0 makes none on the way" in patience.beside.text()
    assert not form.other_problems.isVisible()
    type_into(qtbot, form.row("evaluation.every"), "50")
    assert form.recipe().evaluation.patience == 3


@pytest.mark.full
def test_a_folded_section_opens_with_the_current_values(qtbot, form):
    assert "train.seed" not in form.rows
    form.show_recipe(Recipe.model_validate({"train": {"seed": 41}}))
    type_into(qtbot, form.row("train.seed"), "42")
    assert form.recipe().train.seed == 42


def test_an_edited_value_is_marked_and_leads_back(qtbot, form):
    suggested = Recipe.model_validate({"train": {"epochs": 3.0}})
    form.show_recipe(suggested)
    form.show_suggestion(suggested, {"train.epochs": "A thousand rows take three passes."})
    row = form.row("train.epochs")
    qtbot.waitUntil(row.isVisible)
    assert row.beside.text() == "A thousand rows take three passes."
    assert not row.reset_button.isVisible()
    type_into(qtbot, row, "7")
    assert row.reset_button.isVisible()
    assert row.reset_button.text() == "Suggested: 3"
    qtbot.mouseClick(row.reset_button, Qt.MouseButton.LeftButton)
    assert form.recipe().train.epochs == 3.0
    assert not row.reset_button.isVisible()


def test_choices_and_lists_edit_the_recipe(qtbot, form):
    form.row("data.learn").editor.setCurrentText("everything")
    type_into(qtbot, form.row("export.quants"), "Q4_K_M, IQ4_NL")
    form.row("evaluation.prompts").editor.setPlainText("One, two?\nThree?")
    recipe = form.recipe()
    assert recipe.data.learn == "everything"
    assert recipe.export.quants == ["Q4_K_M", "IQ4_NL"]
    assert recipe.evaluation.prompts == ["One, two?", "Three?"]


def hover(widget, x, y):
    widget.event(QHelpEvent(QEvent.Type.ToolTip, QPoint(x, y), widget.mapToGlobal(QPoint(x, y))))
    return QToolTip.text()


def test_the_memory_bar_names_each_part_on_hover(qtbot, theme):
    bar = MemoryBar()
    qtbot.addWidget(bar)
    bar.resize(400, 80)
    bar.show()
    bar.show_parts(
        [MemorySegment("Weights", 3 * 2**30, "in bf16"), MemorySegment("Nothing", 0), MemorySegment("Logits", 2**30)],
        8 * 2**30,
    )
    assert hover(bar, 20, 30) == "Weights: 3.0 GiB\nin bf16"
    assert hover(bar, 370, 30) == "Logits: 1.0 GiB"  # the parts share the bar's width, however much is free
    spoken = bar.accessibleDescription().splitlines()
    assert spoken == ["4.0 GiB needed, 8.0 GiB free", "Weights: 3.0 GiB", "Logits: 1.0 GiB"]


def test_the_cut_line_stands_where_its_length_is(qtbot, theme):
    chart = LengthHistogram()
    qtbot.addWidget(chart)
    chart.resize(400, 150)
    steps = [(0, 11, 2000), (100, 6, 700), (200, 1, 200), (400, 0, 0)]
    for cut, share in ((0, 0.0), (100, 1 / 3), (150, 0.5), (300, 2.5 / 3)):
        chart.show_lengths(steps, cut)
        assert chart.cut_position() == pytest.approx(share * 400)
    chart.show_lengths(steps, 4000)
    assert chart.cut_position() == 399
    chart.show_lengths([], 100)
    chart.grab()


def tinted(view):
    cursor, found = QTextCursor(view.document()), ""
    while not cursor.atEnd():
        cursor.movePosition(QTextCursor.MoveOperation.NextCharacter, QTextCursor.MoveMode.KeepAnchor)
        found += cursor.selectedText() if cursor.charFormat().hasProperty(QTextFormat.Property.BackgroundBrush) else ""
        cursor.clearSelection()
    return found


def test_what_is_learned_has_a_tint(qtbot, theme):
    view = ExampleView()
    qtbot.addWidget(view)
    view.show_pieces([("<user>Hi", False), ("Hello.", True), ("<end>", False)])
    assert view.toPlainText() == "<user>HiHello.<end>"
    assert tinted(view) == "Hello."


def test_a_very_long_row_is_shown_in_part(qtbot, theme):
    view = ExampleView()
    qtbot.addWidget(view)
    view.show_pieces([("a" * 12_000, False), ("b" * 5000, True)])
    assert view.toPlainText().endswith("... and 5,000 more")


def test_the_catalog_table_says_what_people_ask(qtbot, qtmodeltester, theme):
    table = ListedModelsTableModel()
    table.show(merge(facts.catalog(), []))
    qtmodeltester.check(table)
    texts = [table.index(2, column).data() for column in range(table.columnCount())]
    assert texts == ["Llama 3.2 1B", "1.24 B", "Good fit", "35,599", "Sign-in"]
    assert "RTX 4090" in table.index(2, 0).data(Qt.ItemDataRole.ToolTipRole)
    assert table.row_of("Qwen/Qwen3-32B") == 7
    assert table.row_of("nobody/nothing") == -1


def test_the_target_selector_offers_the_usual_memory_of_each_kind(qtbot, theme):
    selector = TargetSelector()
    qtbot.addWidget(selector)
    selector.show_target(TargetSection(kind="laptop", ram_gib=20.0))
    assert selector.memory.currentText() == "20 GiB"
    with qtbot.waitSignal(selector.chosen) as chosen:
        selector.kind.setCurrentText("phone")
        selector.kind.activated.emit(0)
    assert (chosen.args[0].kind, chosen.args[0].ram_gib) == ("phone", 6.0)


def test_the_fit_card_tells_fits_barely_and_not(qtbot, theme):
    card = FitCard()
    qtbot.addWidget(card)
    card.show_plan(facts.plan())
    fits = card.verdict.text()
    card.show_plan(facts.plan(fits=False))
    assert "not" in card.verdict.text()
    assert "not" not in fits
    for key in ("adapter.expert_rank", "adapter.rank"):
        card.show_plan(facts.plan(fits=False, fitting_rank={"key": key, "rank": 9}))
        assert "rank 9" in card.verdict.text()
        assert ("expert" in card.verdict.text()) == (key == "adapter.expert_rank")
    card.show_plan(facts.plan(), where=planned_place("ssh:hf", None))
    assert "of hf." in card.memory.text(), "a host of that name is no service"
    free = facts.plan().memory_bytes * 100 // 95
    assert "barely" in plan_line(facts.plan(memory_free_bytes=free))
    line = plan_line(facts.plan())
    assert line.startswith(fits)
    assert all(figure in line for figure in ("4.0 GiB", "21.9 GiB", "31 s"))


def test_every_part_of_the_predicted_time_has_a_line_of_its_own():
    names = get_args(TimePart.model_fields["name"].annotation)
    parts = [TimePart(name=name, count=2, seconds=60.0 * (1 + number)) for number, name in enumerate(names)]
    lines = time_text(facts.plan(times=parts)).splitlines()
    assert len({*lines}) == len(lines) == len(names) + 1


def test_the_fit_card_says_what_the_adapter_reaches(qtbot, theme):
    card = FitCard()
    qtbot.addWidget(card)
    kinds = (
        KindCoverage(kind="attention", weights=100, reached=100),
        KindCoverage(kind="experts", weights=100, reached=0),
    )
    card.show_plan(facts.plan(coverage=Coverage(kinds=kinds)))
    shown = " ".join(label.text() for label in card.findChildren(QLabel))
    assert "50.0 %" in shown
    assert "experts 0 %" in shown


def test_the_fit_card_speaks_of_the_adapter_only_where_there_is_one(qtbot, theme):
    card = FitCard()
    qtbot.addWidget(card)
    card.show_plan(facts.plan(), full_fine_tuning=True)
    assert "Every weight" in card.steps.toolTip()
    assert "adapter" not in card.disk.toolTip()
    card.show_plan(facts.plan())
    assert "Those of the adapter" in card.steps.toolTip()


def test_fields_of_adapters_are_idle_while_every_weight_is_trained(qtbot, form):
    rank, method = form.row("adapter.rank"), form.row("adapter.method")
    reasons = {"adapter.rank": "Enough for the data.", "train.learning_rate": "Usual for a LoRA."}
    form.show_suggestion(Recipe(), reasons)
    rate = form.row("train.learning_rate")
    assert rate.beside.text() == "Usual for a LoRA."
    method.editor.setCurrentText("full")
    assert form.recipe().adapter.method == "full"
    for key in ("adapter.rank", "adapter.alpha", "adapter.dropout", "adapter.targets"):
        assert not form.row(key).editor.isEnabled()
        assert "every weight is trained" in form.row(key).beside.text()
    assert "ten times lower" in rate.beside.text()
    method.editor.setCurrentText("lora")
    assert rank.editor.isEnabled()
    assert rank.beside.text() == "Enough for the data."


def test_an_optimizer_shows_its_own_settings_and_what_to_know(qtbot, form):
    optimizer, beta2, momentum = (form.row(f"train.{name}") for name in ("optimizer", "beta2", "momentum"))
    assert not beta2.isHidden()
    assert momentum.isHidden()
    optimizer.editor.setCurrentText("Lion")
    assert form.recipe().train.optimizer == "lion"
    assert beta2.isHidden()
    assert not momentum.isHidden()
    assert "lower" in optimizer.beside.text()
    form.show_recipe(Recipe.model_validate({"train": {"optimizer": "schedule_free"}}))
    assert optimizer.editor.currentText() == "AdamW, schedule-free"
    assert "schedule" in optimizer.beside.text()
    form.show_suggestion(Recipe(), {})
    assert optimizer.reset_button.text() == "Suggested: AdamW"


@pytest.fixture
def pane(qtbot, theme):
    made = ChatPane("Last", "tuned")
    made.offer([Answerer("tuned", "Tuned", "/run", "tuned"), Answerer("exported", "File", "/run", "exported", False)])
    qtbot.addWidget(made)
    made.show()
    return made


def user(text):
    return [ChatMessage(role="user", content=text)]


def reply(text="Hello there", **changes):
    return Reply(**{"text": text, "stopped": True, "tokens": 10, "seconds": 2.0, "name": "Model", **changes})


def test_a_streamed_reply_becomes_part_of_the_conversation(qtbot, pane):
    pane.say(user("Hi"))
    for piece in ("Hello", " there"):
        pane.stream(piece)
    pane.finish(reply())
    assert pane.text.toPlainText() == "You\nHi\nTuned\nHello there"
    assert [(message.role, message.content) for message in pane.messages] == [
        ("user", "Hi"),
        ("assistant", "Hello there"),
    ]
    assert "5.0" in pane.state.text()
    assert pane.state.toolTip() == "Model"


def test_a_stopped_reply_keeps_what_came_and_a_failed_one_leaves_no_half_turn(pane):
    pane.say(user("Hi"))
    pane.stream("Hel")
    pane.stop("stopped")
    assert pane.messages[-1].content == "Hel"
    pane.say(user("Again"))
    pane.stop("It failed.")
    assert [message.role for message in pane.messages] == ["user", "assistant"]
    assert pane.state.text() == "It failed."
    pane.clear()
    assert (pane.messages, pane.text.toPlainText()) == ([], "")


def test_only_those_who_can_answer_may_be_chosen(pane):
    assert pane.who.model().item(0).isEnabled()
    assert not pane.who.model().item(1).isEnabled()


def test_unusual_types_are_folded_until_wanted(qtbot, theme):
    types = TypeChoices()
    qtbot.addWidget(types)
    types.show()
    assert types.boxes["Q8_0"].isVisible()
    assert "Q5_0" not in {box.text() for box in types.findChildren(QCheckBox) if box.isVisible()}
    types.choose(["Q5_0", "Q8_0"])
    assert types.boxes["Q5_0"].isVisible()
    assert types.chosen() == ["Q8_0", "Q5_0"]
    types.show_sizes({"Q8_0": 639 * 2**20, "Q5_0": 430 * 2**20}, "Q8_0")
    assert types.sizes["Q5_0"].text().endswith("0.45 GB")
    assert types.sizes["Q8_0"].text().endswith("0.67 GB")
    assert "recommended" in types.descriptions["Q8_0"].text()
