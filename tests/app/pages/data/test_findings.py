"""Findings of the page Data and what answers them: actions, the cut line, template, objective."""

import pytest
from app.facts import data_facts as facts
from app.pages.data.test_files import press
from app.pages.test_hardware import words
from PySide6.QtCore import QPointF, Qt
from PySide6.QtWidgets import QPushButton

from burnish_engine.contract.facts.data_report import CutLine, Finding
from burnish_engine.contract.recipe.recipe_file import parse_recipe

pytestmark = pytest.mark.gui


@pytest.mark.full
def test_a_reason_is_told_once_and_only_by_the_finding_that_is_of_it(qtbot, answers, window, page, file):
    found = facts.dataset()
    report = found.report.model_copy(
        update={
            "findings": [
                Finding(kind="masks", says="4 rows left out: no reply.", rows=4, dropped="no reply"),
                Finding(kind="control_tokens", says="One row holds not valid JSON at all.", rows=1),
            ]
        }
    )
    dropped = {"no reply": 4, "not valid JSON": 2}
    answers.result("inspect", dataset=found.model_copy(update={"report": report, "dropped": dropped}))
    window.take([file])
    qtbot.waitUntil(lambda: page.status == "done")
    qtbot.waitUntil(lambda: "2 rows left out: not valid JSON" in words(page.findings))
    assert words(page.findings).count("left out: no reply") == 1


def test_findings_open_their_rows(qtbot, answers, readable, inspected):
    page = inspected
    qtbot.waitUntil(lambda: "38 rows are the same" in words(page.findings))
    answers.result("rows", rows=facts.row_page(43, 9, 52))
    press(page.findings, "Show the rows")
    qtbot.waitUntil(lambda: page.rows.table.model().rowCount() == 52)
    assert [place["row"] for place in answers.asked("rows")[-1]["places"]][:3] == [44, 45, 102]
    assert "The first 9 of 38" in words(page.rows)
    answers.result("rows", rows=facts.row_page())
    press(page.rows, "Show all rows")
    qtbot.waitUntil(lambda: page.rows.table.model().rowCount() == 1204)
    assert "The first 9 of 38" not in words(page.rows)


@pytest.mark.full
def test_rows_whose_numbers_are_estimates_are_not_opened(qtbot, answers, window, page, file):
    report = facts.dataset_report(sampled_rows=900, exact_places=False)
    answers.result("inspect", dataset=facts.dataset(report=report))
    window.take([file])
    qtbot.waitUntil(lambda: "38 rows are the same" in words(page.findings))
    assert "Show the rows" not in [button.text() for button in page.findings.findChildren(QPushButton)]


@pytest.mark.full
def test_a_cut_far_from_any_step_is_told_as_exactly_as_the_finding(qtbot, answers, window, page, file):
    """One endless row leaves a gap between the even steps and its own length, in which usual maxima lie."""
    steps = [(0, 100, 24_000), (128, 40, 3_000), (384, 1, 830), (1214, 0, 0)]
    lines = [CutLine(max_length=1024, rows_cut=1, tokens_lost=190, learned_lost=190)]
    report = facts.dataset_report(length_steps=steps, cut_lines=lines, tokens_lost=190)
    answers.result("inspect", dataset=facts.dataset(report=report))
    window.take([file])
    qtbot.waitUntil(lambda: "1 row, 0.8 %" in page.lengths.cut.text())


def test_the_cut_line_sets_the_longest_row(qtbot, readable, inspected, bench):
    page = inspected
    chart = page.lengths.histogram
    qtbot.waitUntil(lambda: chart.isVisible() and chart.width() > 100)
    y = chart.height() // 2
    begin, end = chart.cut_position(), chart.width() // 4
    qtbot.mousePress(chart, Qt.MouseButton.LeftButton, pos=QPointF(begin, y).toPoint())
    qtbot.mouseMove(chart, QPointF(end, y).toPoint())
    said = page.lengths.cut.text()
    assert bench.recipe.data.max_length == 1024, "not before the line is let go"
    qtbot.mouseRelease(chart, Qt.MouseButton.LeftButton, pos=QPointF(end, y).toPoint())
    cut = bench.recipe.data.max_length
    assert 300 < cut < 500
    assert said.startswith(f"Cut at {cut}: ")
    rows = next(rows for length, rows, _ in facts.length_steps() if length == cut)
    assert f"{rows} rows" in said
    chart.setFocus()
    qtbot.keyClick(chart, Qt.Key.Key_Right)
    qtbot.keyClick(chart, Qt.Key.Key_Return)
    assert bench.recipe.data.max_length == cut + 16
    qtbot.keyClick(chart, Qt.Key.Key_Left)
    qtbot.keyClick(chart, Qt.Key.Key_Escape)
    assert (bench.recipe.data.max_length, chart.cut_tokens) == (cut + 16, cut + 16)
    assert f"{cut + 16}" in chart.accessibleDescription()


def test_a_system_message_that_nobody_wrote_is_told_and_another_can_be_written(
    qtbot, answers, readable, window, page, bench, file
):
    report = facts.dataset_report()
    template = report.template.model_copy(update={"adds": "You are Lamp."})
    slips = Finding(kind="added_text", says="9 rows are given a text that nobody wrote.", rows=9, first=facts.places(3))
    report = report.model_copy(update={"template": template, "findings": [slips]})
    answers.result("inspect", dataset=facts.dataset(report=report))
    window.take([file])
    qtbot.waitUntil(lambda: page.status == "done")
    assert page.template.message.placeholderText() == "You are Lamp."
    press(page.findings, "Write another")
    assert page.template.message.hasFocus()
    qtbot.keyClicks(page.template.message, "Answer briefly.")
    qtbot.keyClick(page.template.message, Qt.Key.Key_Return)
    assert bench.recipe.data.system_prompt == "Answer briefly."


def test_findings_are_folded_and_counted_until_no_row_is_left(qtbot, answers, readable, window, file):
    window.go_to("data")
    page = window.page("data")
    answers.result("inspect", dataset=facts.dataset())
    window.take([file])
    qtbot.waitUntil(lambda: page.status == "done")
    assert not page.details.is_open
    assert f"{page.findings.count} findings" in page.details.button.text()
    assert page.findings.count > 3
    answers.result("inspect", dataset=facts.dataset(train_rows=0))
    press(page.files, "Remove")
    window.take([file])
    qtbot.waitUntil(lambda: page.details.is_open)


@pytest.mark.full
def test_an_action_is_kept_in_the_recipe_and_can_be_undone(qtbot, answers, inspected, bench):
    page = inspected
    assert "Lines 44, 45, 102, 103, 230, 231, 340, 341 ... of support.jsonl" in words(page)
    for text, field, value in (("Leave out copies", "duplicates", "drop"), ("Split them", "overlong", "split")):
        press(page, text)
        assert getattr(bench.recipe.data, field) == value
        qtbot.waitUntil(lambda: page.status == "done")
    assert parse_recipe(answers.asked("inspect")[-1]["recipe"]).data.duplicates == "drop"
    qtbot.waitUntil(lambda: "Copies of earlier rows are left out." in words(page))
    press(page, "Undo")
    assert bench.recipe.data.duplicates == "keep"
    assert bench.recipe.data.overlong == "split", "only that one"
    qtbot.waitUntil(lambda: "Copies of earlier rows are left out." not in words(page.findings))


def test_every_choice_about_rows_can_be_made_without_a_finding(qtbot, inspected, bench):
    page = inspected
    page.findings._fold.click()
    row = page.findings._rows["secrets"]
    assert row.editor.currentText() == "stay"
    row.editor.setCurrentText("are left out")
    assert bench.recipe.data.secrets == "drop"


@pytest.mark.full
def test_rows_that_cannot_be_read_offer_to_go_on_without_them(qtbot, answers, window, page, bench, file):
    answers.failure("inspect", "Line 3 is no JSON.", 'Correct it. Or set data.broken_rows = "drop" to continue.', 11)
    window.take([file])
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    answers.result("inspect", dataset=facts.dataset())
    press(page, "Continue without such rows")
    assert bench.recipe.data.broken_rows == "drop"
    qtbot.waitUntil(lambda: page.status == "done")


def test_a_template_is_chosen_and_its_checks_are_told(qtbot, inspected, bench):
    page = inspected
    assert "✓  Takes a system message" in words(page)
    assert "!  Roles must alternate" in words(page)
    box = page.template.box
    box.setCurrentIndex(box.findData("chatml"))
    box.activated.emit(0)
    assert bench.recipe.data.template == "chatml"


@pytest.mark.full
def test_a_micro_batch_grows_with_the_longest_row(inspected, bench):
    bench.set_recipe(bench.recipe.model_copy(update={"train": bench.recipe.train.model_copy(update={"epochs": 3.0})}))
    inspected.lengths.cut_chosen.emit(4096)
    assert (bench.recipe.data.max_length, bench.recipe.train.micro_batch_tokens) == (4096, 4096)
    assert parse_recipe(bench.recipe_toml) == bench.recipe


@pytest.mark.full
def test_nothing_jumps_while_the_same_files_are_looked_at_again(qtbot, answers, inspected):
    page = inspected
    answers.set("inspect", {"hold": True})
    press(page, "Leave out copies")
    assert page.status == "busy"
    assert page.findings.isVisible()
    assert page.facts.isVisible()


def test_recognized_pairs_take_the_usual_objective_and_offer_the_others(qtbot, answers, window, page, bench, file):
    answers.result("inspect", dataset=facts.pairs())
    window.take([file])
    qtbot.waitUntil(lambda: page.objective.isVisible() and page.status == "done")
    assert bench.recipe.preference.objective == "dpo"
    assert list(page.objective.buttons) == ["dpo", "orpo", "simpo", "sft"]
    assert page.objective.buttons["dpo"].isChecked()
    assert parse_recipe(answers.asked("inspect")[-1]["recipe"]).preference.objective == "dpo"
    page.objective.buttons["orpo"].click()
    qtbot.waitUntil(lambda: page.objective.buttons["orpo"].isChecked() and page.status == "done")
    assert bench.recipe.preference.objective == "orpo"
    assert parse_recipe(answers.asked("inspect")[-1]["recipe"]).preference.objective == "orpo"


@pytest.mark.full
def test_only_the_chosen_replies_may_be_learned_and_nobody_is_asked_again(qtbot, answers, window, page, bench, file):
    answers.result("inspect", dataset=facts.pairs())
    window.take([file])
    qtbot.waitUntil(lambda: page.objective.isVisible() and page.status == "done")
    page.objective.buttons["sft"].click()
    qtbot.waitUntil(lambda: page.status == "done" and page.objective.buttons["sft"].isChecked())
    assert (bench.recipe.preference.objective, bench.recipe.data.shape) == ("sft", "preference")


def click_action(card, part):
    """Click the only button of the card whose text holds this."""
    (button,) = (one for one in card.findChildren(QPushButton) if part in one.text() and one.isVisibleTo(card))
    button.click()


def test_findings_about_pairs_change_the_objective_and_its_settings(qtbot, answers, window, page, bench, file):
    answers.result("inspect", dataset=facts.pairs())
    window.take([file])
    qtbot.waitUntil(lambda: page.objective.isVisible() and page.status == "done")
    qtbot.waitUntil(lambda: "26 pairs contradict others" in words(page.findings))
    click_action(page.findings, "0.011")
    assert bench.recipe.preference.label_smoothing == 0.011
    click_action(page.findings, "SimPO")
    assert bench.recipe.preference.objective == "simpo"


@pytest.mark.full
def test_other_data_has_no_objective_to_choose_and_forgets_the_former(
    qtbot, answers, window, page, bench, file, tmp_path
):
    answers.result("inspect", dataset=facts.pairs())
    window.take([file])
    qtbot.waitUntil(lambda: page.objective.isVisible() and page.status == "done")
    answers.result("inspect", dataset=facts.dataset())
    other = tmp_path / "other.jsonl"
    other.write_text('{"text": "b"}\n', encoding="utf-8")
    page._use([str(other)])
    qtbot.waitUntil(lambda: page.status == "done" and not page.objective.isVisible())
    assert bench.recipe.preference.objective == "sft"
