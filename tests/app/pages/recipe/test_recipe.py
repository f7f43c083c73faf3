"""Suggestion, plan and start of the recipe, and its files."""

import pytest
from app.facts import page_facts as facts
from app.pages.recipe.recipe_page import planned_ranks, settle
from app.widgets.test_page_widgets import type_into
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QPushButton

from burnish_engine.contract.recipe.recipe_file import load_recipe, parse_recipe
from burnish_engine.contract.serve.model_requests import FreeRequest

pytestmark = pytest.mark.gui
NEVER_MS = 10**8


@pytest.mark.full
def test_the_suggestion_is_taken_with_its_reasons(page, bench):
    assert (bench.recipe.train.epochs, bench.recipe.adapter.rank) == (3.0, 32)
    assert bench.data_files == ["/data/support.jsonl"]
    assert "three passes" in page.form.row("train.epochs").beside.text()
    assert page.fit.verdict.text() == "It fits."
    assert page.primary.isEnabled()
    assert page.status == "ready"


@pytest.mark.full
def test_every_edit_is_planned_once_it_rests(qtbot, answers, answered, page, bench):
    timer = page.plans.timer
    qtbot.waitUntil(lambda: bench.dataset is not None and not timer.isActive())
    answered()
    timer.setInterval(NEVER_MS)  # however slowly the keys come, the edit does not rest between them
    type_into(qtbot, page.form.row("adapter.rank"), "128")
    answered()
    assert not {1, 12, 128} & planned_ranks(answers)  # no key by itself is planned
    timer.setInterval(0)
    qtbot.waitUntil(lambda: 128 in planned_ranks(answers) and not page.plans.is_waiting)
    assert not {1, 12} & planned_ranks(answers)
    assert bench.suggestion is not None  # an edit does not ask for another recipe
    assert len(answers.asked("suggest")) == 1


@pytest.mark.full
def test_an_invalid_recipe_cannot_be_started(qtbot, page, bench):
    type_into(qtbot, page.form.row("train.epochs"), "no")
    assert not page.primary.isEnabled()
    assert page.status == "attention"
    assert bench.recipe.train.epochs == 3.0
    assert page.fit.verdict.text() != "It fits."
    assert page.fit.steps.text == "–"
    assert bench.plan is None
    type_into(qtbot, page.form.row("train.epochs"), "2")
    assert page.primary.isEnabled()


def test_the_note_about_a_bad_value_goes_with_it(qtbot, answers, page):
    type_into(qtbot, page.form.row("train.epochs"), "no")
    assert "Epochs" in page.foot.note.text()
    page.form.row("task.metric").editor.setCurrentIndex(page.form.row("task.metric").editor.findData("regex"))
    assert all(name in page.foot.note.text() for name in ("Epochs", "attern")), "which is far below"
    page.form.row("task.metric").editor.setCurrentIndex(0)
    answers.failure("estimate", "The driver does not answer.")
    type_into(qtbot, page.form.row("train.epochs"), "2")
    qtbot.waitUntil(lambda: page.foot.note.text() == "")


@pytest.mark.full
def test_another_target_asks_again_and_keeps_what_was_changed(qtbot, answers, page, bench, window):
    type_into(qtbot, page.form.row("adapter.rank"), "8")
    second = facts.suggestion().model_copy(
        update={"recipe": facts.suggestion().recipe.replace("epochs = 3.0", "epochs = 1.0")}
    )
    answers.result("suggest", suggestion=second)
    bench.set_target(bench.target.model_copy(update={"kind": "phone", "ram_gib": 6.0}))
    window.go_to("model")
    window.go_to("recipe")
    qtbot.waitUntil(lambda: bench.recipe.train.epochs == 1.0)
    assert answers.asked("suggest")[-1]["target"]["kind"] == "phone"
    assert (bench.recipe.adapter.rank, bench.target.kind) == (8, "phone")
    page._take_all()
    assert bench.recipe.adapter.rank == 32


@pytest.mark.full
def test_start_goes_to_the_run(qtbot, answers, page, bench, window, tmp_path):
    answers.result("start", run=str(tmp_path))
    page.primary.click()
    qtbot.waitUntil(lambda: window.shown_key == "train")
    assert bench.run == str(tmp_path)
    request = answers.asked("start")[0]
    assert request["anyway"] is False
    assert parse_recipe(request["recipe"]) == bench.recipe


@pytest.mark.full
def test_what_does_not_fit_can_be_started_anyway(qtbot, answers, page, window, tmp_path):
    answers.failure("start", "It needs 46 GiB and 21.9 GiB are free.", "Set train.recompute.", 10)
    page.primary.click()
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    assert page.shown_banner.what.startswith("It needs 46 GiB")
    assert "Start anyway" in [button.text() for button in page.shown_banner.findChildren(QPushButton)]
    answers.result("start", run=str(tmp_path))
    page.start(anyway=True)
    qtbot.waitUntil(lambda: window.shown_key == "train")
    assert answers.asked("start")[-1]["anyway"] is True


@pytest.mark.full
def test_another_failure_offers_no_such_way(qtbot, answers, page):
    answers.failure("start", "There is no file /data/support.jsonl.", "Check the path.", 11)
    page.primary.click()
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    assert [button.text() for button in page.shown_banner.findChildren(QPushButton)] == ["Dismiss"]


def told_rows(answers):
    return [request["dataset"]["train_rows"] for request in answers.asked("estimate") if request["dataset"]]


@pytest.mark.full
def test_a_server_that_began_anew_is_told_what_is_known_of_the_data(qtbot, answers, answered, page, bench, window):
    qtbot.waitUntil(lambda: bench.dataset is not None and not page.plans.is_waiting)
    qtbot.waitUntil(lambda: told_rows(answers) != [])  # found since this server began
    known = len(told_rows(answers))
    page.plans.ask()
    answered()
    assert len(told_rows(answers)) == known  # told already
    generation = window.client.generation
    answers.set("free", {"exit": 3})
    window.client.send(FreeRequest)
    qtbot.waitUntil(lambda: window.client.generation > generation and window.client.state == "ready")
    page.plans.ask()
    answered()
    assert told_rows(answers)[known:] == [bench.dataset.train_rows]


@pytest.mark.full
def test_without_data_it_leads_to_the_data(qtbot, window, bench):
    window.go_to("recipe")
    page = window.page("recipe")
    assert "no data" in page.shown_banner.what
    assert "data" in page.primary.text()
    page.primary.click()
    qtbot.waitUntil(lambda: window.shown_key == "data")


def test_a_failed_suggestion_leaves_a_usable_form(qtbot, answers, window, bench):
    answers.failure("suggest", "The data could not be read.", "Look at Data.", 11)
    answers.result("estimate", plan=facts.plan(fits=False))
    bench.set_data_files(["/data/support.jsonl"])
    window.go_to("recipe")
    page = window.page("recipe")
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    qtbot.waitUntil(lambda: page.fit.verdict.text() == "It does not fit.")
    assert page.primary.isEnabled()
    assert page.status == "attention"


@pytest.mark.full
def test_a_warning_that_the_plans_notes_repeat_stands_once(qtbot, answers, window, bench):
    plan = facts.plan().model_copy(update={"notes": ["Not all is known."]})
    answers.result("suggest", suggestion=facts.suggestion(warnings=["Not all is known.", "Mind the step."], plan=plan))
    bench.set_data_files(["/data/support.jsonl"])
    window.go_to("recipe")
    page = window.page("recipe")
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    assert page.shown_banner.what == "Mind the step."


def test_recipes_are_exported_and_imported(qtbot, answers, page, bench, tmp_path):
    file = tmp_path / "my recipe.toml"
    page.files.write(file)
    assert load_recipe(file) == bench.recipe
    file.write_text('[data]\nfiles = ["other.jsonl"]\n[train]\nepochs = 6.0\n', encoding="utf-8")
    page.take_drop([str(file)])
    assert bench.data_files == [str(tmp_path / "other.jsonl")]
    qtbot.waitUntil(lambda: bench.suggestion is not None)
    assert bench.recipe.train.epochs == 6.0
    assert page.form.row("train.epochs").value() == 6.0
    file.write_text("[train]\nepochs = 'x'\n", encoding="utf-8")
    page.take_drop([str(file)])
    assert "train.epochs" in page.shown_banner.what


@pytest.mark.full
def test_a_narrow_page_has_the_panel_on_top_and_its_verdict_in_the_foot(qtbot, answers, page, bench, window):
    settle(qtbot, page, bench)
    answers.result("estimate", plan=facts.plan(tokens_per_s=9_200.0))
    type_into(qtbot, page.form.row("adapter.rank"), "64")
    qtbot.waitUntil(lambda: page.fit.change.text != "")
    window.resize(1280, 800)
    qtbot.waitUntil(lambda: page.side.is_beside)
    assert page.fit.change.isVisible()
    assert page.foot.note.text() == "", "the panel says it"
    window.resize(744, 900)
    qtbot.waitUntil(lambda: not page.side.is_beside)
    assert not page.fit.change.isVisible()
    assert page.fit.mapTo(page, QPoint(0, 0)).y() < page.form.mapTo(page, QPoint(0, 0)).y()
    assert page.foot.note.text().startswith("It fits.")
    assert "50\N{NO-BREAK SPACE}%" in page.foot.note.text()
