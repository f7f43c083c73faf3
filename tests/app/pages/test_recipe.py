import pytest
from app import data_facts
from app import page_facts as facts
from app.machine_facts import checkup, gpu, machine
from app.scenes import summary
from app.widgets.test_page_widgets import type_into
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QPushButton

from burnish_app.widgets.recipe.place_box import PlaceBox
from burnish_app.widgets.recipe.place_card import PlaceCard
from burnish_engine.contract.facts.advice import PlaceOffers, PlannedOffer, SharedSteps
from burnish_engine.contract.recipe.recipe_file import load_recipe, parse_recipe
from burnish_engine.contract.serve.messages import Result
from burnish_engine.contract.serve.model_requests import FreeRequest

pytestmark = pytest.mark.gui
NEVER_MS = 10**8


@pytest.fixture
def page(qtbot, answers, window, bench):
    answers.result("suggest", suggestion=facts.suggestion())
    answers.result("estimate", plan=facts.plan())
    answers.result("inspect", dataset=data_facts.dataset())
    bench.set_data_files(["/data/support.jsonl"])
    window.go_to("recipe")
    page = window.page("recipe")
    qtbot.waitUntil(lambda: bench.suggestion is not None)
    qtbot.waitUntil(lambda: bench.plan is not None)
    return page


def test_the_suggestion_is_taken_with_its_reasons(page, bench):
    assert (bench.recipe.train.epochs, bench.recipe.adapter.rank) == (3.0, 32)
    assert bench.data_files == ["/data/support.jsonl"]
    assert "three passes" in page.form.row("train.epochs")._beside.text()
    assert page.fit.verdict.text() == "It fits."
    assert page.primary.isEnabled()
    assert page.status == "ready"


def test_what_the_rows_decided_is_not_suggested_away(page, bench):
    bench.set_objective("dpo", "preference")
    row = page.form.row("preference.objective")
    assert row.value() == "dpo"
    assert row._reset.isHidden()


def planned_ranks(answers):
    return {parse_recipe(request["recipe"]).adapter.rank for request in answers.asked("estimate")}


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
    assert "Epochs" in page._foot_note.text()
    page.form.row("task.metric")._editor.setCurrentIndex(page.form.row("task.metric")._editor.findData("regex"))
    assert all(name in page._foot_note.text() for name in ("Epochs", "attern")), "which is far below"
    page.form.row("task.metric")._editor.setCurrentIndex(0)
    answers.failure("estimate", "The driver does not answer.")
    type_into(qtbot, page.form.row("train.epochs"), "2")
    qtbot.waitUntil(lambda: page._foot_note.text() == "")


def test_a_plan_of_an_earlier_recipe_is_not_taken_for_this_one(qtbot, page, bench):
    page.plans.ask()
    earlier = page.plans._request
    type_into(qtbot, page.form.row("train.epochs"), "2")
    page.plans._answered(earlier, Result(id=earlier, plan=facts.plan()))
    assert bench.plan is None


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


def test_start_goes_to_the_run(qtbot, answers, page, bench, window, tmp_path):
    answers.result("start", run=str(tmp_path))
    page.primary.click()
    qtbot.waitUntil(lambda: window.shown_key == "train")
    assert bench.run == str(tmp_path)
    request = answers.asked("start")[0]
    assert request["anyway"] is False
    assert parse_recipe(request["recipe"]) == bench.recipe


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


def test_another_failure_offers_no_such_way(qtbot, answers, page):
    answers.failure("start", "There is no file /data/support.jsonl.", "Check the path.", 11)
    page.primary.click()
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    assert [button.text() for button in page.shown_banner.findChildren(QPushButton)] == ["Dismiss"]


def told_rows(answers):
    return [request["dataset"]["train_rows"] for request in answers.asked("estimate") if request["dataset"]]


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
    page.export_file(file)
    assert load_recipe(file) == bench.recipe
    file.write_text('[data]\nfiles = ["other.jsonl"]\n[train]\nepochs = 6.0\n', encoding="utf-8")
    page.import_file(file)
    assert bench.data_files == [str(tmp_path / "other.jsonl")]
    qtbot.waitUntil(lambda: bench.suggestion is not None)
    assert bench.recipe.train.epochs == 6.0
    assert page.form.row("train.epochs").value() == 6.0
    file.write_text("[train]\nepochs = 'x'\n", encoding="utf-8")
    page.import_file(file)
    assert "train.epochs" in page.shown_banner.what


def test_undo_and_redo_reach_every_field_from_any_of_them(qtbot, page, bench):
    type_into(qtbot, page.form.row("adapter.rank"), "48")
    page.form.row("model.quantize")._editor.setCurrentIndex(1)
    edit = page.form.row("name")._editor
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


def test_an_invalid_value_is_undone_first(qtbot, page, bench):
    type_into(qtbot, page.form.row("adapter.rank"), "48")
    type_into(qtbot, page.form.row("train.epochs"), "no")
    page.settings.changes.undo()
    assert page.form.recipe() == bench.recipe
    assert (page.form.row("train.epochs").value(), bench.recipe.adapter.rank) == (3.0, 48)
    assert page.primary.isEnabled()


def test_what_other_pages_choose_is_not_undone_here(qtbot, page, bench):
    type_into(qtbot, page.form.row("adapter.rank"), "48")
    bench.set_data_files(["/data/other.jsonl"])
    assert not page.settings.changes.undo_button.isEnabled()
    page.settings.changes.undo()
    assert bench.data_files == ["/data/other.jsonl"]


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


def settle(qtbot, page, bench):
    qtbot.waitUntil(lambda: bench.dataset is not None and bench.plan is not None and not page.plans.is_waiting)


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
    assert not page._start_request


def test_ctrl_f_searches_the_settings(qtbot, page):
    edit = page.form.row("name")._editor
    edit.setFocus()
    qtbot.keyClick(edit, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    assert page.form.search.hasFocus()


def test_a_narrow_page_has_the_panel_on_top_and_its_verdict_in_the_foot(qtbot, answers, page, bench, window):
    settle(qtbot, page, bench)
    answers.result("estimate", plan=facts.plan(tokens_per_s=9_200.0))
    type_into(qtbot, page.form.row("adapter.rank"), "64")
    qtbot.waitUntil(lambda: page.fit.change.text != "")
    window.resize(1280, 800)
    qtbot.waitUntil(lambda: page.aside_is_beside)
    assert page.preview.isVisible()
    assert page.fit.change.isVisible()
    assert "speed" not in page._foot_note.text()
    window.resize(744, 900)
    qtbot.waitUntil(lambda: not page.aside_is_beside)
    assert not page.preview.isVisible()
    assert not page.fit.change.isVisible()
    assert page.fit.mapTo(page, QPoint(0, 0)).y() < page.form.mapTo(page, QPoint(0, 0)).y()
    assert page._foot_note.text().startswith("It fits.")
    assert "50\N{NO-BREAK SPACE}%" in page._foot_note.text()


def test_a_run_elsewhere_is_not_judged_by_this_machine(qtbot, answers, page, bench):
    """One field says where to run; this machine's plan says nothing about another one, and does not hold it up."""
    settle(qtbot, page, bench)
    before = len(answers.asked("estimate"))
    type_into(qtbot, page.form.row("devices.where"), "ssh:office")
    qtbot.waitUntil(lambda: bench.plan is None and not page.plans.is_waiting)
    assert bench.recipe.devices.where == "ssh:office"
    assert len(answers.asked("estimate")) == before
    assert page.primary.isEnabled()
    assert "office" in page.primary.text(), "it does not start here"
    assert not page.fit.time.isVisible(), "figures of no machine"
    assert page.fit.verdict.text() != "It fits."
    assert [time.text() for time in page.settings.presets._times.values()] == ["", "", ""]
    type_into(qtbot, page.form.row("devices.where"), "here")
    qtbot.waitUntil(lambda: bench.plan is not None)
    assert "office" not in page.primary.text()
    assert page.fit.time.isVisible()
    qtbot.waitUntil(lambda: all(time.text() for time in page.settings.presets._times.values()))


@pytest.fixture
def there(qtbot, page, bench, office):
    """The machine that the recipe names, which nobody asked yet."""
    settle(qtbot, page, bench)
    office.result("machine", machine=machine(gpu(0, name="NVIDIA H100", vram_free_bytes=70 * 2**30)))
    type_into(qtbot, page.form.row("devices.where"), "ssh:office")
    qtbot.waitUntil(lambda: page.there.where == "ssh:office")
    return page.there


def last(answers, method):
    return answers.asked(method)[-1]


def test_a_machine_elsewhere_is_asked_for_its_cards_and_the_recipe_is_planned_for_it(
    qtbot, answers, page, bench, there
):
    """Plan and suggestion come from here, where model and data are, for the cards and the memory of that machine."""
    place = page.findChild(PlaceCard)
    assert place.ask.isVisible()
    assert bench.plan is None
    before = len(answers.asked("suggest"))
    qtbot.mouseClick(place.ask, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: bench.plan is not None)
    for method in ("estimate", "suggest"):
        assert last(answers, method)["machine"]["gpus"][0]["name"] == "NVIDIA H100"
    assert len(answers.asked("suggest")) == before + 1
    assert "NVIDIA H100" in place.facts.text()
    assert page.fit._memory.text().endswith("of office.")
    assert page._foot_note.text().startswith("office: ")
    assert not place.ask.isVisible()
    assert bench.recipe.devices.where == "ssh:office"
    type_into(qtbot, page.form.row("devices.where"), "here")
    qtbot.waitUntil(lambda: last(answers, "estimate")["machine"] is None and bench.plan is not None)
    qtbot.waitUntil(lambda: last(answers, "suggest")["machine"] is None)
    assert not place.isVisible()
    assert "office" not in page.fit._memory.text()


def test_the_times_of_the_presets_are_that_machines(qtbot, answers, page, bench, there):
    times = page.settings.presets._times.values()
    qtbot.waitUntil(lambda: not any(time.text() for time in times))  # those of this machine
    page.there.connect_now()
    qtbot.waitUntil(lambda: all(time.text() for time in times))
    assert last(answers, "estimate")["machine"]["gpus"][0]["name"] == "NVIDIA H100"


def test_a_machine_that_refuses_is_said_beside_the_verdict_and_holds_nothing_up(qtbot, page, bench, there, office):
    refusal = {"type": "failure", "id": "", "what": "Host key verification failed.", "remedy": "Accept it."}
    office.set("at_start", {**refusal, "exit_code": 12}, {"exit": 12})
    place = page.findChild(PlaceCard)
    qtbot.mouseClick(place.ask, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: "Host key verification failed." in place.words.text())
    assert bench.plan is None
    assert page.primary.isEnabled()
    office.set("at_start")
    qtbot.mouseClick(place.ask, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: bench.plan is not None)
    assert not place.words.isVisible()


def test_a_lost_machine_takes_its_verdict_back_and_leaves_the_settings(qtbot, answers, page, bench, there, office):
    page.there.connect_now()
    qtbot.waitUntil(lambda: bench.plan is not None and not page.suggestions.is_waiting)
    suggested = len(answers.asked("suggest"))
    office.set("at_start", {"exit": 12})
    office.set("doctor", {"exit": 12})
    qtbot.mouseClick(page.findChild(PlaceCard).check, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: bench.plan is None and page.there.state == "failed")
    assert len(answers.asked("suggest")) == suggested


def test_the_connection_can_be_given_up_while_it_is_made(qtbot, page, there, office, tmp_path):
    office.set("at_start", {"until": str(tmp_path / "never")})
    place = page.findChild(PlaceCard)
    qtbot.mouseClick(place.ask, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(place.busy.isVisible)
    place.busy.cancel.emit()
    assert place.ask.isVisible()
    assert there.client is None
    (tmp_path / "never").touch()


def test_a_run_that_does_not_fit_there_is_handed_over_only_when_that_is_wanted(qtbot, answers, page, bench, there):
    unfit = facts.plan(fits=False, problems=["It needs 4.00 GiB more."])
    answers.result("estimate", plan=unfit)
    answers.result("start", run="/runs/x")
    there.connect_now()
    qtbot.waitUntil(lambda: bench.plan is not None and not page.suggestions.is_waiting)
    page.start()
    assert "on office" in page.shown_banner.what
    assert not answers.asked("start")
    action = next(one for one in page.shown_banner.findChildren(QPushButton) if "anyway" in one.text())
    qtbot.mouseClick(action, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: bool(answers.asked("start")))
    assert last(answers, "start")["anyway"]


def test_a_check_there_says_whether_training_works(qtbot, page, there, office):
    office.result("doctor", checkup=checkup(machine(gpu(0)), ready=False, problems=["No compiler was found."]))
    page.there.connect_now()
    place = page.findChild(PlaceCard)
    qtbot.waitUntil(place.check.isVisible)
    qtbot.mouseClick(place.check, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: "No compiler was found." in place.verdict.text())


def test_a_service_is_asked_for_its_machines_and_the_recipe_is_planned_for_the_one_it_would_take(
    qtbot, answers, page, bench
):
    settle(qtbot, page, bench)
    shared = SharedSteps(gpus=4, passes=2, times=3.9, step_ms=900.0, exchange_ms=3.0, exchange_bytes=2**27)
    plan = facts.plan(shared=shared)
    card = machine(*(gpu(index, name="NVIDIA A100") for index in range(4)))
    offer = PlannedOffer(name="a100x4", machine=card, gpus=4, used_gpus=4, usd_per_hour=10.0, plan=plan)
    unfit = offer.model_copy(update={"name": "t4-small", "plan": facts.plan(fits=False)})
    answers.result("offers", offers=PlaceOffers(where="hf", offers=[unfit, offer], chosen=1, longest_s=3600))
    answers.result("estimate", plan=plan)
    type_into(qtbot, page.form.row("devices.where"), "hf")
    place = page.place
    qtbot.waitUntil(place.ask.isVisible)
    assert bench.plan is None
    qtbot.mouseClick(place.ask, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: bench.plan is not None and not page.suggestions.is_waiting)
    assert last(answers, "offers")["recipe"]
    assert last(answers, "estimate")["machine"]["gpus"][0]["name"] == "NVIDIA A100"
    usd = 10.0 * plan.total_seconds / 3600
    for word in ("4 GPUs", "2 passes", "3.0 ms"):
        assert word in place.takes.text()
    assert "USD" not in place.takes.text(), "which the list says"
    best, other = place.facts.text().splitlines()
    assert best.startswith("a100x4")
    assert f"{usd:.2f} USD" in best
    assert other.startswith("t4-small")
    assert "a100x4" in page.fit._memory.text()
    assert not place.check.isVisible()
    # Another recipe may suit another machine.
    qtbot.waitUntil(lambda: not page.plans.is_waiting)
    page.settings.presets.chosen.emit("quick")
    qtbot.waitUntil(place.ask.isVisible)
    qtbot.waitUntil(lambda: "USD" in place.takes.text())


def test_a_service_is_asked_again_when_the_page_is_shown_later(qtbot, answers, page, window, bench, monkeypatch):
    settle(qtbot, page, bench)
    offer = PlannedOffer(name="t4", machine=machine(gpu(0)), gpus=1, used_gpus=1, usd_per_hour=1.0, plan=facts.plan())
    answers.result("offers", offers=PlaceOffers(where="hf", offers=[offer], chosen=0, longest_s=3600))
    type_into(qtbot, page.form.row("devices.where"), "hf")
    qtbot.waitUntil(page.place.ask.isVisible)
    qtbot.mouseClick(page.place.ask, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: page.there.state == "ready")
    monkeypatch.setattr("burnish_app.engine.engine_there._OLD_S", -1.0)
    window.go_to("data")
    window.go_to("recipe")
    qtbot.waitUntil(lambda: len(answers.asked("offers")) == 2)
    assert page.there.offers is not None


def test_places_of_earlier_runs_are_offered(page):
    page.runs_changed([summary("finished"), summary("finished", where="ssh:lab")])
    box = page.form.row("devices.where").findChild(PlaceBox)
    offered = [box.itemText(index) for index in range(box.count())]
    assert offered[:2] == ["here", "ssh:lab"]
    assert box.text() == "here"


def test_a_place_that_is_none_is_said_at_its_field(qtbot, page, bench):
    type_into(qtbot, page.form.row("devices.where"), "ssh:-oProxyCommand=x")
    assert page.form.recipe() is None
    assert not page.primary.isEnabled()
