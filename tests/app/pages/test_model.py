from pathlib import Path

import pytest
from app import page_facts as facts
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QPushButton

pytestmark = pytest.mark.gui


@pytest.fixture
def page(qtbot, answers, window):
    answers.result("model", model=facts.model_facts(path="embedded", name="SmolLM2 135M"))
    answers.result("models", models=facts.catalog())
    window.go_to("model")
    page = window.page("model")
    qtbot.waitUntil(lambda: page.catalog.models.rowCount() == 8)
    qtbot.waitUntil(lambda: page.status == "done")
    return page


def test_the_embedded_model_is_chosen_at_first(page, bench):
    assert bench.model.name == "SmolLM2 135M"
    assert page._chosen.accessibleName() == "SmolLM2 135M"
    assert page.primary.isEnabled()


def test_another_folder_is_looked_at_and_remembered(qtbot, answers, page, bench, tmp_path):
    folder = str(tmp_path / "my model")
    answers.result("model", model=facts.model_facts(path=folder, name="mine"))
    page.folder.setEditText(f'"{folder}"')
    page._use_folder()
    assert bench.model_path == folder
    assert page.status == "busy"
    qtbot.waitUntil(lambda: page.status == "done")
    assert answers.asked("model")[-1]["path"] == folder
    assert page.folder.findText(folder) == 0


def test_a_broken_folder_is_told_with_a_way_out(qtbot, answers, page, bench, tmp_path):
    answers.failure("model", "There is no config.json there.", "Choose another.", 12)
    page.take_drop([str(tmp_path)])
    qtbot.waitUntil(lambda: page.status == "attention")
    assert page.shown_banner.what == "There is no config.json there."
    assert not page.primary.isEnabled()
    answers.result("model", model=facts.model_facts(path="embedded"))
    page.choose("embedded")
    qtbot.waitUntil(lambda: page.status == "done")
    assert page.shown_banner is None


def test_the_catalog_is_ranked_anew_for_another_target(qtbot, answers, page):
    page.target.chosen.emit(page.target._target.model_copy(update={"kind": "phone", "ram_gib": 6.0}))
    qtbot.waitUntil(lambda: answers.asked("models")[-1]["target"]["kind"] == "phone")
    page.catalog.search.setFocus()
    qtbot.keyClicks(page.catalog.search, "code")
    qtbot.waitUntil(lambda: answers.asked("models")[-1]["query"] == "code")


def test_facts_that_no_source_confirmed_are_told_until_the_model_is_here(qtbot, answers, page):
    listed = facts.catalog()
    unsure = {"unchecked": "Its rotary base was not seen."}
    answers.result(
        "models", models=[one.model_copy(update={"model": one.model.model_copy(update=unsure)}) for one in listed]
    )
    page.target.chosen.emit(page.target._target.model_copy(update={"kind": "phone", "ram_gib": 6.0}))
    qtbot.waitUntil(lambda: bool(page.catalog.models.at(1).model.unchecked))

    def told():
        return any("rotary base" in label.text() for label in page.catalog.findChildren(QLabel))

    page.catalog.table.selectRow(1)
    assert told()
    page.catalog.table.selectRow(0)  # its files are here
    qtbot.waitUntil(lambda: not told())


def test_a_model_that_is_here_is_used_at_once(qtbot, answers, page, bench):
    page.catalog.table.selectRow(0)
    assert page.catalog.action.text() == "Use this model"
    qtbot.mouseClick(page.catalog.action, Qt.MouseButton.LeftButton)
    assert bench.model_path == "Qwen/Qwen3-1.7B"


def test_a_token_is_asked_for_where_terms_must_be_accepted_and_never_kept(qtbot, answers, page, bench, burnish_home):
    page.catalog.table.selectRow(1)
    assert page.catalog.token.isHidden()
    page.catalog.table.selectRow(2)
    assert not page.catalog.token.isHidden()
    page.catalog.token.setText("hf_secret")
    answers.set("fetch", {"type": "progress", "what": "Fetching", "done": 1, "total": 4}, {"hold": True})
    qtbot.mouseClick(page.catalog.action, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: "Fetching  25 %" in page.catalog._progress.text)
    assert answers.asked("fetch")[0]["token"] == "hf_secret"
    assert page.catalog.token.text() == ""
    bench.save()
    kept = [file for file in Path(burnish_home).rglob("*") if file.is_file()]
    assert all(b"hf_secret" not in file.read_bytes() for file in kept)
    page.catalog._progress.cancel.emit()
    qtbot.waitUntil(lambda: "goes on where it stopped" in page.catalog.message.text())
    assert page.catalog.action.isEnabled()


def test_a_fetched_model_is_used(qtbot, answers, page, bench):
    answers.result("fetch", model=facts.model_facts())
    answers.result("model", model=facts.model_facts())
    page.catalog.table.selectRow(1)
    qtbot.mouseClick(page.catalog.action, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: bench.model_path == "Qwen/Qwen3-0.6B")
    qtbot.waitUntil(lambda: bench.model is not None and bench.model.name == "Qwen3 0.6B")


def test_a_failed_fetch_is_told_beside_it(qtbot, answers, page):
    what, remedy = "The disk is full.", "Free 2 GiB."
    answers.failure("fetch", what, remedy, 15)
    page.catalog.table.selectRow(1)
    qtbot.mouseClick(page.catalog.action, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: page.catalog.message.text() == f"{what} {remedy}")
    assert page.catalog.message.isVisibleTo(page)


def test_models_of_other_programs_are_listed_and_used_in_their_folder(qtbot, answers, window, bench):
    answers.result("model", model=facts.model_facts(path="embedded"))
    answers.result("models", models=facts.catalog())
    answers.result("local_models", local_models=facts.local_models())
    window.go_to("model")
    card = window.page("model").local
    qtbot.waitUntil(lambda: not card.isHidden())
    use = [button for button in card.findChildren(QPushButton) if button.text() == "Use it"]
    assert len(use) == 2  # the file of Ollama cannot be trained
    assert card.rest.content.isHidden()
    card.rest.button.click()
    assert not card.rest.content.isHidden()
    assert any("GGUF" in label.text() for label in card.rest.findChildren(QLabel))
    use[0].click()
    assert bench.model_path == facts.local_models()[0].folder
    window.go_to("data")
    window.go_to("model")
    assert len(answers.asked("local_models")) == 1


def test_where_none_of_them_can_be_trained_that_is_what_the_card_offers_to_explain(page):
    page.local.show_models(facts.local_models())
    assert "Others" in page.local.rest.button.text()
    page.local.show_models(facts.local_models()[-1:])
    assert "Others" not in page.local.rest.button.text()


def test_a_machine_without_such_models_shows_no_card(qtbot, answers, page):
    qtbot.waitUntil(lambda: len(answers.asked("local_models")) == 1)
    page.local.show_models([])
    assert page.local.isHidden()
