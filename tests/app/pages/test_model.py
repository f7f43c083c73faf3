from pathlib import Path

import pytest
from app.facts import data_facts, model_facts
from app.facts import page_facts as facts
from app.facts.run_summaries import summary
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel

from burnish_engine.contract.paths import RunPaths

pytestmark = pytest.mark.gui

QWEN, LLAMA = "Qwen/Qwen3-0.6B", "meta-llama/Llama-3.2-1B-Instruct"


@pytest.fixture
def page(qtbot, answers, window):
    answers.result("model", model=facts.model_facts(path="embedded", name="SmolLM2 135M"))
    answers.result("models", models=facts.catalog())
    window.go_to("model")
    page = window.page("model")
    qtbot.waitUntil(lambda: page.models.models.rowCount() == 8)
    qtbot.waitUntil(lambda: page.status == "done")
    return page


def names(page):
    table = page.models.models
    return [table.at(row).name for row in range(table.rowCount())]


def click(qtbot, button):
    qtbot.mouseClick(button, Qt.MouseButton.LeftButton)


def enter(qtbot, field, text):
    field.setFocus()
    field.setText(text)
    qtbot.keyClick(field, Qt.Key.Key_Return)


@pytest.mark.full
def test_a_typed_folder_is_looked_at_and_listed_from_then_on(qtbot, answers, page, bench, tmp_path):
    folder = str(tmp_path / "my model")
    answers.result("model", model=facts.model_facts(path=folder, name="mine"))
    enter(qtbot, page.models.search, f'"{folder}"')
    assert bench.model_path == folder
    assert page.status == "busy"
    qtbot.waitUntil(lambda: page.status == "done")
    assert answers.asked("model")[-1]["path"] == folder
    assert page.models.search.text() == ""
    page.window().go_to("data")
    page.window().go_to("model")
    qtbot.waitUntil(lambda: folder in answers.asked("local_models")[-1]["folders"])
    assert not answers.asked("search_hub")


@pytest.mark.full
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


@pytest.mark.full
def test_the_tick_comes_after_the_files_were_checked(qtbot, answers, page, bench, tmp_path):
    answers.result("model", model=facts.model_facts(path=QWEN))
    answers.set("check_files", {"type": "progress", "what": "model.safetensors", "done": 1, "total": 4},
                {"until": str(tmp_path / "go")},
                {"type": "result", "integrity": model_facts.integrity().model_dump(mode="json")})  # fmt: skip
    page.choose(QWEN)
    qtbot.waitUntil(lambda: "model.safetensors" in page._busy.text)
    assert bench.model is not None
    assert page.status == "busy"
    (tmp_path / "go").touch()
    qtbot.waitUntil(lambda: page.status == "done")
    assert page.checked.isVisible()
    assert "9 files" in page.checked.toolTip()
    assert len(answers.asked("check_files")) == 2
    page.window().go_to("data")
    page.window().go_to("model")
    assert len(answers.asked("check_files")) == 2, "once for each choice"


def test_a_damaged_file_takes_the_model_back(qtbot, answers, page, bench):
    answers.result("model", model=facts.model_facts(path=QWEN))
    answers.failure("check_files", "model.safetensors is damaged.", "Fetch the model again.", 12)
    page.choose(QWEN)
    qtbot.waitUntil(lambda: page.status == "attention")
    assert page.shown_banner.what == "model.safetensors is damaged."
    assert bench.model is None
    assert not page.primary.isEnabled()
    asked = len(answers.asked("model"))
    qtbot.wait(100)
    assert len(answers.asked("model")) == asked, "it is not asked over and over"


@pytest.mark.full
def test_the_list_is_judged_for_the_target_and_the_rows(qtbot, answers, page, bench):
    page.target.chosen.emit(page.target._target.model_copy(update={"kind": "phone", "ram_gib": 6.0}))
    qtbot.waitUntil(lambda: answers.asked("models")[-1]["target"]["kind"] == "phone")
    assert answers.asked("models")[-1]["recipe"] == ""
    bench.set_data_files([data_facts.DATA_FILE])
    bench.set_dataset(data_facts.dataset())
    page.window().go_to("data")
    page.window().go_to("model")
    qtbot.waitUntil(lambda: answers.asked("local_models")[-1]["dataset"] is not None)
    assert data_facts.DATA_FILE in answers.asked("models")[-1]["recipe"]
    assert answers.asked("local_models")[-1]["dataset"]["train_rows"] == 1102
    assert "1,160" in page.judged_for.text()
    page.choose("Qwen/Qwen3-1.7B")  # its tokenizer has not counted the rows, yet they are known
    assert bench.dataset is None
    page.window().go_to("data")
    page.window().go_to("model")
    assert "1,160" in page.judged_for.text()
    bench.set_data_files(["/other.jsonl"])
    page.window().go_to("data")
    page.window().go_to("model")
    qtbot.waitUntil(lambda: answers.asked("models")[-1]["dataset"] is None)
    assert "1,160" not in page.judged_for.text()


@pytest.mark.full
def test_models_are_judged_anew_each_time_the_page_is_shown(qtbot, answers, page):
    qtbot.waitUntil(lambda: len(answers.asked("models")) == 1)
    page.window().go_to("data")
    page.window().go_to("model")
    qtbot.waitUntil(lambda: len(answers.asked("models")) == 2)


@pytest.mark.full
def test_words_and_filters_leave_what_holds_them_at_once(qtbot, answers, page):
    asked = len(answers.asked("models"))
    qtbot.keyClicks(page.models.search, "qwen3 0.6")
    assert names(page) == [QWEN]
    page.models.search.clear()
    page.models.scope.button("here").click()
    assert names(page) == ["Qwen/Qwen3-1.7B"]
    page.models.scope.button("all").click()
    page.models.fitting.setChecked(True)
    assert "Qwen/Qwen3-32B" not in names(page)
    assert LLAMA in names(page)
    assert len(answers.asked("models")) == asked
    page.models.search.setText("nothing of this name")
    assert names(page) == []
    assert page.models._empty.isVisible()
    assert page.models.selected() is None
    assert page.models.details.action.isHidden()


def test_the_hub_is_searched_only_when_asked(qtbot, answers, page):
    answers.result("search_hub", hub_models=model_facts.hub_models())
    page.models.scope.button("hub").click()
    assert names(page) == []
    page.models.search.setFocus()
    qtbot.keyClicks(page.models.search, "qwen coder")
    assert not answers.asked("search_hub")
    qtbot.keyClick(page.models.search, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: len(names(page)) == 3)
    assert answers.asked("search_hub")[0]["query"] == "qwen coder"
    assert not page.models.ask_hub.isVisible()
    page.models.search.setText("qwen coder 14b")
    assert page.models.ask_hub.isVisible()
    page.models.scope.button("all").click()
    assert names(page) == [model_facts.hub_models()[1].name]


def test_a_search_that_fails_is_told_and_can_be_repeated(qtbot, answers, page):
    answers.failure("search_hub", "hub.example could not be reached.", "Check the network.", 12)
    enter(qtbot, page.models.search, "qwen")
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    assert "could not be reached" in page.shown_banner.what
    assert page.models.ask_hub.isVisible()
    answers.result("search_hub", hub_models=model_facts.hub_models())
    click(qtbot, page.models.ask_hub)
    qtbot.waitUntil(lambda: len(names(page)) == 3)


def test_facts_that_no_source_confirmed_are_told_until_the_model_is_here(qtbot, answers, page):
    unsure = {"unchecked": "Its rotary base was not seen."}
    listed = [one.model_copy(update={"model": one.model.model_copy(update=unsure)}) for one in facts.catalog()]
    answers.result("models", models=listed)
    page.target.chosen.emit(page.target._target.model_copy(update={"kind": "phone", "ram_gib": 6.0}))
    qtbot.waitUntil(lambda: bool(page.models.models.at(1).catalog.unchecked))

    def told():
        return any("rotary base" in label.text() for label in page.models.details.findChildren(QLabel))

    page.models.select(QWEN)
    assert told()
    page.models.select("Qwen/Qwen3-1.7B")  # its files are here
    qtbot.waitUntil(lambda: not told())


@pytest.mark.full
def test_a_model_that_is_here_is_used_at_once(qtbot, page, bench):
    page.models.select("Qwen/Qwen3-1.7B")
    assert page.models.details.action.text() == "Use this model"
    click(qtbot, page.models.details.action)
    assert bench.model_path == "Qwen/Qwen3-1.7B"


@pytest.mark.full
def test_return_uses_the_row_that_has_the_focus(qtbot, page, bench):
    page.models.select("Qwen/Qwen3-1.7B")
    page.models.table.setFocus()
    qtbot.keyClick(page.models.table, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: bench.model_path == "Qwen/Qwen3-1.7B")


def test_models_of_other_programs_are_in_the_list_and_used_in_their_folder(qtbot, answers, window, bench):
    answers.result("model", model=facts.model_facts(path="embedded"))
    answers.result("models", models=facts.catalog())
    answers.result("local_models", local_models=model_facts.local_models())
    window.go_to("model")
    page = window.page("model")
    page.models.scope.button("here").click()
    qtbot.waitUntil(lambda: len(names(page)) == 4)
    page.models.select("gemma3:4b")
    assert any("GGUF" in label.text() for label in page.models.details.findChildren(QLabel))
    assert page.models.details.action.isHidden()
    page.models.select(QWEN)
    click(qtbot, page.models.details.action)
    assert bench.model_path == model_facts.local_models()[0].folder


def test_a_token_is_asked_for_where_terms_must_be_accepted_and_never_kept(qtbot, answers, page, bench, burnish_home):
    page.models.select(QWEN)
    details = page.models.details
    assert details.token.isHidden()
    page.models.select(LLAMA)
    assert not details.token.isHidden()
    details.token.setText("hf_secret")
    queued = [one for one in model_facts.downloads() if one.name == LLAMA]
    answers.result("download", downloads=queued)
    click(qtbot, details.action)
    qtbot.waitUntil(page.queue.isVisible)
    assert answers.asked("download")[0]["token"] == "hf_secret"
    assert details.token.text() == ""
    line = page.queue.lines[LLAMA]  # its process ended, and with it the token
    assert line.token.isVisible()
    line.token.setText("hf_again")
    click(qtbot, line.go_on)
    qtbot.waitUntil(lambda: answers.asked("download")[-1]["token"] == "hf_again")
    assert line.token.text() == ""
    bench.save()
    kept = [file for file in Path(burnish_home).rglob("*") if file.is_file()]
    assert all(b"hf_secret" not in file.read_bytes() and b"hf_again" not in file.read_bytes() for file in kept)


def test_downloads_are_paused_gone_on_with_and_canceled(qtbot, answers, page, bench):
    answers.result("downloads", downloads=model_facts.downloads())
    page.downloads.ask()
    qtbot.waitUntil(lambda: len(page.queue.lines) == 5)
    running = page.queue.lines[QWEN]
    assert "34.2 MB/s" in running.detail.text()
    assert "left" in running.detail.text()
    click(qtbot, running.pause)
    click(qtbot, page.queue.lines["mistralai/Mistral-7B-Instruct-v0.3"].go_on)
    click(qtbot, page.queue.lines["HuggingFaceTB/SmolLM3-3B"].remove)
    qtbot.waitUntil(lambda: len(answers.asked("download")) == 3)
    assert [one["do"] for one in answers.asked("download")] == ["pause", "start", "cancel"]
    qtbot.waitUntil(lambda: not page.queue.isVisible())  # the stand-in's answers hold no download any more


@pytest.mark.full
def test_a_fetched_model_is_listed_and_used(qtbot, answers, page, bench):
    *_, done = model_facts.downloads()
    running = done.model_copy(update={"status": "running", "done": 1})
    answers.result("downloads", downloads=[running])
    page.downloads.ask()
    qtbot.waitUntil(lambda: len(page.queue.lines) == 1)
    asked = len(answers.asked("local_models"))
    answers.result("downloads", downloads=[done])
    qtbot.waitUntil(page.queue.lines[done.name].use.isVisible)  # it asks by itself while one runs
    qtbot.waitUntil(lambda: len(answers.asked("local_models")) == asked + 1)
    click(qtbot, page.queue.lines[done.name].use)
    assert bench.model_path == done.name


@pytest.mark.full
def test_a_command_that_fails_is_told(qtbot, answers, page):
    answers.failure("download", "The disk is full.", "Free 2 GiB.", 15)
    page.models.select(QWEN)
    click(qtbot, page.models.details.action)
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    assert page.shown_banner.what == "The disk is full."


@pytest.fixture
def trained(tmp_path):
    """A run that has an adapter, and one that has none."""
    folders = []
    for name in ("first", "second"):
        paths = RunPaths(tmp_path / name)
        paths.adapter.mkdir(parents=True)
        folders.append(str(paths.root))
    (tmp_path / "first" / "adapter" / "adapter_config.json").write_text("{}", encoding="utf-8")
    return folders


def test_an_adapter_that_is_still_being_read_is_not_chosen_after_a_new_one_was(held_window, held, bench, trained):
    bench.set_start(trained[0])
    page = held_window.page("model")
    (read,) = held.open("adapter")
    page.start.reset.click()
    held.answer("adapter", to=read, adapter=model_facts.adapter(path=trained[0]))
    assert bench.recipe.adapter.start == ""


def test_a_run_s_adapter_is_gone_on_from_with_its_model(qtbot, answers, page, bench, trained):
    answers.result("adapter", adapter=model_facts.adapter(path=trained[0]))
    answers.result("model", model=facts.model_facts(path=QWEN))
    page.runs_changed([summary("finished", 600, folder=folder) for folder in trained])
    page.start.menu.aboutToShow.emit()
    offered = [action for action in page.start.menu.actions() if not action.isSeparator()]
    assert len(offered) == 2  # the run with an adapter, and a folder
    offered[0].trigger()
    qtbot.waitUntil(lambda: bench.recipe.adapter.start == trained[0])
    assert bench.model_path == QWEN
    assert answers.asked("adapter")[0]["path"] == trained[0]
    assert "rank 16" in page.start.detail.text()
    assert "3b1f3b1f3b1f" in page.start.detail.text()
    qtbot.waitUntil(lambda: page.status == "done")
    assert bench.recipe.adapter.start == trained[0]
    click(qtbot, page.start.reset)
    assert bench.recipe.adapter.start == ""
    assert page.start.reset.isHidden()


def test_another_model_begins_with_a_new_adapter(qtbot, answers, page, bench, trained):
    answers.result("adapter", adapter=model_facts.adapter(path=trained[0]))
    page.take_drop([str(Path(trained[0]) / "adapter")])
    qtbot.waitUntil(lambda: bool(bench.recipe.adapter.start))
    page.choose("Qwen/Qwen3-1.7B")
    assert bench.recipe.adapter.start == ""


@pytest.mark.full
def test_an_adapter_of_a_model_that_is_not_here_says_so(qtbot, answers, page, bench, trained):
    answers.result("adapter", adapter=model_facts.adapter(path=trained[0], base_path=""))
    page.start.choose(trained[0])
    qtbot.waitUntil(lambda: bool(bench.recipe.adapter.start))
    assert bench.model_path == "embedded"
    assert "not found on this machine" in page.start.detail.text()
    page.choose("Qwen/Qwen3-1.7B")  # a copy of it that the person knows
    assert bench.recipe.adapter.start == trained[0]


def test_a_damaged_adapter_is_told_and_changes_nothing(qtbot, answers, page, bench, trained):
    answers.failure("adapter", "The adapter is damaged.", "Copy it again.", 12)
    page.start.choose(trained[0])
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    assert bench.recipe.adapter.start == ""


@pytest.mark.full
def test_downloads_that_go_on_are_told_to_the_window(qtbot, answers, page):
    answers.result("downloads", downloads=model_facts.downloads())
    with qtbot.waitSignal(page.activities_changed) as told:
        page.downloads.ask()
    going = [one.name for one in model_facts.downloads() if one.status in ("queued", "running")]
    assert [one.name for one in told.args[0]] == going
