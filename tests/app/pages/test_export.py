import pytest
from app.facts import export_facts
from app.facts import page_facts as facts
from app.facts.run_summaries import summary
from app.pages.test_hardware import words
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QPushButton

from burnish_app.widgets.basic.text import Value
from burnish_engine.contract.facts.exports import GGUF_KINDS, ExportChoice

from support.runs.cards import make_card

pytestmark = pytest.mark.gui


@pytest.fixture
def show(answers, window, run):
    """Let the engine report a state of the run's export, and show the page."""

    def report(job):
        state = summary("finished", 600, folder=str(run), model="Qwen/Qwen3-0.6B")
        runs = [state.model_copy(update={"export": job})]
        answers.result("runs", runs=runs)
        answers.result("model", model=facts.model_facts())
        if window.shown_key != "export":
            window.go_to("export")
        page = window.page("export")
        page.runs_changed(runs)
        return page

    return report


@pytest.mark.full
def test_sizes_and_the_recommendation_come_from_the_run_s_model(qtbot, show):
    page = show(None)
    qtbot.waitUntil(lambda: page.choices.types.sizes["Q8_0"].text().endswith("0.64 GB"))
    assert "recommended" in page.choices.types.descriptions["Q4_K_M"].text()
    assert page.status == "ready"


def test_the_chosen_types_are_exported(qtbot, answers, show, run):
    page = show(None)
    page.choices.types.choose(["Q4_K_M", "IQ4_NL"])
    page.choices.name.setText("helper")
    answers.result("export", run=str(run))
    page.primary.click()
    qtbot.waitUntil(lambda: len(answers.asked("export")) == 1)
    request = answers.asked("export")[0]
    assert (request["run"], request["to"], request["name"]) == (str(run), "gguf", "helper")
    assert request["quants"] == ["Q4_K_M", "IQ4_NL"]
    qtbot.waitUntil(lambda: page.primary.text() == "Export")
    page.choices.types.choose([])
    assert not page.primary.isEnabled()
    page.choices.kinds.button(4).setChecked(True)  # an adapter has no types
    assert page.primary.isEnabled()
    assert not page.choices.types.isVisible()


def test_a_run_that_trained_every_weight_offers_no_adapter(qtbot, show, run):
    page = show(None)
    adapter = page.choices.kinds.button(4)
    adapter.setChecked(True)
    assert adapter.isVisible()
    assert not page.choices.no_adapter_hint.isVisible()
    assert page.choices.kinds.button(5).isVisible()
    (run / "adapter" / "adapter_model.safetensors").unlink()
    (run / "model").mkdir()
    (run / "model" / "model.safetensors").write_bytes(b"x")
    page.shown()
    assert not adapter.isVisible()
    assert "there is no adapter" in words(page)
    assert page.kind == "safetensors"
    assert page.primary.isEnabled()


@pytest.mark.full
def test_exports_that_do_not_work_say_why_and_cannot_be_chosen(show, run):
    refused = [ExportChoice(kind=kind, works=False, reason="No such family.") for kind in GGUF_KINDS]
    (run / "card.json").write_text(make_card(exports=refused).model_dump_json())
    page = show(None)
    page.shown()
    assert page.kind == "safetensors"
    assert "No such family." in words(page)
    assert [page.choices.kinds.button(number).isEnabled() for number in range(5)] == [False] * 3 + [True] * 2


def test_progress_is_followed_and_can_be_stopped(qtbot, answers, show):
    page = show(export_facts.job())
    qtbot.waitUntil(lambda: "Checking Q8_0  42 %" in words(page))
    assert page.status == "busy"
    assert not page.primary.isEnabled()
    page.progress.cancel.emit()
    qtbot.waitUntil(lambda: len(answers.asked("cancel_export")) == 1)
    show(export_facts.job("canceled"))
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    assert page.shown_banner.what == "The export was stopped."
    assert page.status == "ready"


@pytest.mark.full
def test_a_finished_export_shows_its_proof_and_its_files(qtbot, show, run):
    (run / "export" / "support-desk-Q8_0.gguf").write_bytes(b"GGUF")
    page = show(export_facts.job("finished", report=export_facts.report()))
    qtbot.waitUntil(lambda: page.status == "done")
    qtbot.waitUntil(lambda: "Safe to ship." in words(page))
    assert "4,812 positions" not in words(page), "what is right can be looked up"
    page.fidelity.details.button.click()
    assert "same most likely token in 99.1 % of 4,812 positions" in words(page)
    assert "Q8_0 and Q4_K_M are proven" in words(page)
    button = next(b for b in page.findChildren(type(page.primary)) if b.text() == "burnish command")
    button.click()
    assert QGuiApplication.clipboard().text() == f'burnish chat "{run / "export" / "support-desk-Q8_0.gguf"}"'


def test_a_finished_export_offers_what_to_do_and_further_files_on_request(qtbot, show, exported, run):
    actions = exported.fidelity.acts
    texts = [button.text() for button in actions.findChildren(QPushButton)]
    assert texts == ["Try it", "Open in LM Studio", "Add to Ollama", "Open the folder", "Copy command"]
    actions.findChildren(QPushButton)[-1].click()
    assert QGuiApplication.clipboard().text() == f'burnish chat "{run / "export" / "support-desk-Q8_0.gguf"}"'
    assert not exported.choices.isVisible()
    exported.primary.click()
    assert exported.choices.isVisible()
    assert exported.primary.text() == "Export"
    show(export_facts.job(started=99.0))
    show(export_facts.job("finished", report=export_facts.report(), started=99.0))
    qtbot.waitUntil(lambda: not exported.choices.isVisible() and exported.files.isVisible())


def test_a_refused_file_is_told_apart(qtbot, show):
    page = show(export_facts.job("failed", message="IQ4_XS was refused.", report=export_facts.report(refused=True)))
    qtbot.waitUntil(lambda: page.status == "attention")
    qtbot.waitUntil(lambda: "IQ4_XS was refused. Its predictions differ" in words(page))
    assert "proven" in words(page)


def test_an_export_that_made_nothing_says_why(qtbot, show):
    why = "The disk is full: 2 GiB are needed."
    page = show(export_facts.job("failed", message=why))
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    assert page.shown_banner.what == why
    assert not page.fidelity.isVisible()


def test_a_refused_start_is_told_in_place(qtbot, answers, show):
    page = show(None)
    why = "An export of this run is running."
    answers.failure("export", why, "Wait for it.", 2)
    page.primary.click()
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    assert page.shown_banner.what == why
    assert page.primary.isEnabled()


def recipe(run, text):
    (run / "recipe.toml").write_text(text, encoding="utf-8")


@pytest.mark.full
def test_the_choices_begin_as_the_run_s_own_recipe_says(qtbot, answers, window, show, run):
    recipe(run, '[export]\nquants = ["IQ4_NL"]\nimportance = false\nsize_limit_mb = 400.0\n')
    window.bench.set_run("")
    window.bench.set_run(str(run))
    page = show(None)
    choices = page.choices
    assert choices.types.chosen() == ["IQ4_NL"]
    assert not choices.importance.isChecked()
    assert choices.limit.text() == "400 MB"
    assert not choices.merge.isVisible(), "only a run on 4-bit weights has that choice"
    choices.importance.setChecked(True)
    choices.limit.setValue(0)
    assert choices.limit.text() == "as the target allows"
    page.primary.click()
    qtbot.waitUntil(lambda: len(answers.asked("export")) == 1)
    request = answers.asked("export")[0]
    assert (request["importance"], request["size_limit_mb"], request["merge_onto"]) == (True, 0.0, None)


@pytest.mark.full
def test_a_run_on_4_bit_weights_says_what_its_adapter_is_added_to(qtbot, answers, window, show, run):
    recipe(run, '[model]\nquantize = "nf4"\n[export]\nmerge_onto = "dequantized"\n')
    window.bench.set_run("")
    window.bench.set_run(str(run))
    page = show(None)
    qtbot.waitUntil(page.choices.merge.isVisible)
    assert page.choices.merge.currentText() == "the 4-bit weights it trained on"
    page.choices.merge.setCurrentIndex(0)
    page.primary.click()
    qtbot.waitUntil(lambda: len(answers.asked("export")) == 1)
    assert answers.asked("export")[0]["merge_onto"] == "base"


@pytest.mark.full
def test_what_it_takes_is_told_before(qtbot, answers, show, run):
    answers.result("forecast", forecast=export_facts.forecast())
    page = show(None)
    qtbot.waitUntil(lambda: "Takes 2.15 GB of disk (442 GB free), 1.5 GiB of memory" in words(page))
    assert "about 12 min" in words(page)
    assert page.choices.types.sizes["Q8_0"].toolTip() == "639,446,688 bytes"
    answers.result("forecast", forecast=export_facts.forecast(disk_free_bytes=2**20))
    page.choices.types.boxes["Q4_0"].setChecked(True)
    qtbot.waitUntil(lambda: "too little disk space" in words(page))
    assert answers.asked("forecast")[-1]["quants"] == page.choices.types.chosen()
    asked = len(answers.asked("forecast"))
    page.choices.kinds.button(3).setChecked(True)
    assert "Takes" not in words(page), "it is of GGUF files"
    qtbot.wait(700)
    assert len(answers.asked("forecast")) == asked


@pytest.mark.full
def test_types_below_four_bits_come_with_a_warning(show):
    page = show(None)
    page.choices.types.choose(["Q2_K"])
    assert "Below four bits much is lost" in words(page)
    page.choices.types.choose(["Q8_0"])
    assert "Below four bits" not in words(page)


@pytest.mark.full
def test_the_stages_show_where_it_is(qtbot, show):
    page = show(export_facts.job(what="Making Q4_K_M", share=0.7))
    qtbot.waitUntil(lambda: "●\nMaking Q4_K_M" in words(page))
    shown = words(page)
    assert "✓\nChecking Q8_0" in shown
    assert "✓\nWeighing what the training rows use" in shown
    assert "○\nChecking Q4_K_M" in shown


def test_the_gain_kept_and_the_file_to_take_are_told(qtbot, show, run):
    why = "Best for a laptop with 16 GiB: support-desk-Q4_K_M.gguf. Q4_K_M keeps 96% of the gain at 0.40 GB."
    page = show(
        export_facts.job("finished", report=export_facts.report(), suggested="support-desk-Q4_K_M.gguf", why=why)
    )
    qtbot.waitUntil(lambda: "Best for a laptop" in words(page))
    figures = [value.text for value in page.fidelity.findChildren(Value)]
    assert figures[:2] == ["96.3 %", "0.40"], "those of the file to take"
    assert len(figures) == 3
    page.fidelity.details.button.click()
    shown = words(page)
    assert "Q4_K_M keeps 96 % of the gain at 0.40 GB." in shown
    assert "Best for a laptop with 16 GiB: support-desk-Q4_K_M.gguf.\n" in shown
    assert "lowered the held-out loss from 2.610 to 1.186" in shown
    assert "importance matrix of 16,384 tokens" in shown


def test_hand_over_folders_come_with_what_to_do(qtbot, show, run):
    (run / "export" / "ollama-Q8_0").mkdir()
    (run / "export" / "ollama-Q8_0" / "Modelfile").write_text("FROM x", encoding="utf-8")
    (run / "export" / "lmstudio").mkdir()
    page = show(export_facts.job("finished", to="ollama", report=export_facts.report()))
    qtbot.waitUntil(lambda: "LM Studio's models folder" in words(page))
    button = next(b for b in page.findChildren(type(page.primary)) if b.text() == "Ollama command")
    button.click()
    copied = QGuiApplication.clipboard().text()
    assert copied.startswith("ollama create ")
    assert str(run / "export" / "ollama-Q8_0" / "Modelfile") in copied


@pytest.mark.full
def test_a_point_of_the_chart_chooses_a_type_and_the_list_follows(qtbot, answers, show, run):
    answers.result("forecast", forecast=export_facts.forecast())
    page = show(None)
    qtbot.waitUntil(lambda: len(page.sizes.chart.points) > 0)
    chart = page.sizes.chart
    chosen = page.choices.types.chosen()
    assert chart.chosen == set(chosen)
    chart.toggled.emit("Q2_K")
    assert page.choices.types.chosen() == [*chosen, "Q2_K"]
    assert page.choices.types.boxes["Q2_K"].isVisible(), "a rare type is shown once it is chosen"
    assert "Q2_K" in chart.chosen
    page.choices.kinds.button(4).setChecked(True)
    assert not page.sizes.isVisible(), "an adapter has no types"


def test_a_choice_that_changes_no_file_does_not_take_the_question_back(held_window, held, run):
    held_window.go_to("export")
    page = held_window.page("export")
    for _time in range(2):
        page._forecast_timer.timeout.emit()
    assert len(held.open("forecast")) == len(held.requests("forecast")) == 1
    assert not held.requests("cancel")


@pytest.mark.full
def test_until_types_are_predicted_the_chart_keeps_its_place(qtbot, held_window, held, run):
    held_window.go_to("export")
    page = held_window.page("export")
    page._forecast_timer.timeout.emit()
    qtbot.wait(50)
    place = page.choices.y()
    assert page.sizes.isVisible()
    assert page.sizes.chart.accessibleDescription()
    held.answer("forecast", forecast=export_facts.forecast())
    qtbot.wait(50)
    assert abs(page.choices.y() - place) < 60, "what is below does not jump away"


@pytest.mark.full
def test_what_was_measured_is_filled_in(qtbot, answers, show, run):
    answers.result("forecast", forecast=export_facts.forecast())
    page = show(export_facts.job("finished", report=export_facts.report()))
    qtbot.waitUntil(lambda: len(page.sizes.chart.points) > 2)
    measured = {point.quant for point in page.sizes.chart.points if point.measured}
    assert measured == {"Q8_0", "Q4_K_M"}


GIVERS = {"ollama": "Add to Ollama", "lm_studio": "Open in LM Studio"}


def giver(page, program):
    """The first button that gives a file to a program; None where there is none."""
    buttons = page.findChildren(type(page.primary))
    return next((button for button in buttons if button.text() == GIVERS[program]), None)


def give(page, program):
    """Press the first button of a program."""
    giver(page, program).click()


@pytest.fixture
def exported(qtbot, answers, show, run):
    """The page with a finished file, on a machine with Ollama and LM Studio."""
    (run / "export" / "support-desk-Q8_0.gguf").write_bytes(b"GGUF")
    answers.result("programs", programs=["ollama", "lm_studio"])
    page = show(export_facts.job("finished", report=export_facts.report()))
    qtbot.waitUntil(lambda: giver(page, "ollama") is not None)
    return page


@pytest.mark.full
def test_programs_that_are_not_installed_are_not_offered(qtbot, answers, show, run):
    (run / "export" / "support-desk-Q8_0.gguf").write_bytes(b"GGUF")
    answers.result("programs", programs=[])
    page = show(export_facts.job("finished", report=export_facts.report()))
    qtbot.waitUntil(lambda: len(answers.asked("programs")) == 1)
    qtbot.waitUntil(page.files.isVisible)
    assert [giver(page, program) for program in GIVERS] == [None, None]


def test_a_file_goes_to_ollama_with_one_press(qtbot, answers, exported, run):
    answers.result("hand_over", detail="support-desk:q8_0")
    give(exported, "ollama")
    qtbot.waitUntil(lambda: "ollama run support-desk:q8_0" in words(exported.files))
    (request,) = answers.asked("hand_over")
    assert (request["run"], request["file"]) == (str(run), "support-desk-Q8_0.gguf")
    assert request["program"] == "ollama"


def test_why_a_program_did_not_take_it_is_said_at_the_file(qtbot, answers, exported):
    answers.failure("hand_over", "Ollama did not take it: is it running?", "Start it.", 1)
    give(exported, "ollama")
    qtbot.waitUntil(lambda: "is it running? Start it." in words(exported.files))


@pytest.mark.full
def test_while_a_program_takes_it_that_is_an_activity_which_can_be_stopped(qtbot, answers, window, exported):
    answers.set("hand_over", {"hold": True})
    give(exported, "ollama")
    (going,) = window.activity.board.activities
    assert (going.page, going.share) == ("export", None)
    assert not going.outlives
    qtbot.waitUntil(lambda: len(answers.asked("hand_over")) == 1)
    going.stop()
    qtbot.waitUntil(lambda: not window.activity.board.activities)
    assert "is taking it" not in words(exported.files)


@pytest.mark.full
def test_lm_studio_is_opened_once_it_has_the_file(qtbot, answers, exported, monkeypatch):
    opened = []
    monkeypatch.setattr("burnish_app.pages.export.QDesktopServices.openUrl", opened.append)
    answers.result("hand_over", detail="burnish/support-desk")
    give(exported, "lm_studio")
    qtbot.waitUntil(lambda: "burnish/support-desk" in words(exported.files))
    assert [url.scheme() for url in opened] == ["lmstudio"]
