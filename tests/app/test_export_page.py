import pytest
from app import page_facts as facts
from app.scenes import summary
from app.test_hardware_page import words
from app.test_try_out_page import run  # noqa: F401 a fixture
from PySide6.QtGui import QGuiApplication

pytestmark = pytest.mark.gui


@pytest.fixture
def show(answers, window, run):  # noqa: F811
    """Let the engine report a state of the run's export, and show the page."""

    def report(job):
        state = summary("finished", 600, folder=str(run), model="Qwen/Qwen3-0.6B")
        answers.result("runs", runs=[state.model_copy(update={"export": job})])
        answers.result("model", model=facts.model_facts())
        if window.shown_key != "export":
            window.go_to("export")
        page = window.page("export")
        page.ask_runs.emit()
        return page

    return report


def test_without_a_run_it_leads_to_training(window):
    window.go_to("export")
    page = window.page("export")
    assert "nothing trained to export yet" in words(page)
    assert not page.primary.isEnabled()


def test_sizes_and_the_recommendation_come_from_the_run_s_model(qtbot, show):
    page = show(None)
    qtbot.waitUntil(lambda: page.types._sizes["Q8_0"].text() == "609 MiB")
    assert "recommended" in page.types._words["Q4_K_M"].text()
    assert page.status == "ready"


def test_the_chosen_types_are_exported(qtbot, answers, show, run):  # noqa: F811
    page = show(None)
    page.types.choose(["Q4_K_M", "IQ4_NL"])
    page.name.setText("helper")
    answers.result("export", run=str(run))
    page.primary.click()
    qtbot.waitUntil(lambda: len(answers.asked("export")) == 1)
    request = answers.asked("export")[0]
    assert (request["run"], request["to"], request["name"]) == (str(run), "gguf", "helper")
    assert request["quants"] == ["Q4_K_M", "IQ4_NL"]
    qtbot.waitUntil(lambda: page.primary.text() == "Export")
    page.types.choose([])
    assert not page.primary.isEnabled()
    page.kinds.button(3).setChecked(True)  # an adapter has no types
    assert page.primary.isEnabled()
    assert not page.types.isVisible()


def test_a_run_that_trained_every_weight_offers_no_adapter(qtbot, show, run):  # noqa: F811
    page = show(None)
    adapter = page.kinds.button(3)
    adapter.setChecked(True)
    assert adapter.isVisible()
    assert not page._whole_hint.isVisible()
    (run / "adapter" / "adapter_model.safetensors").unlink()
    (run / "model").mkdir()
    (run / "model" / "model.safetensors").write_bytes(b"x")
    page.shown()
    assert not adapter.isVisible()
    assert "there is no adapter" in words(page)
    assert page.kind == "safetensors"
    assert page.primary.isEnabled()


def test_progress_is_followed_and_can_be_stopped(qtbot, answers, show):
    page = show(facts.job())
    qtbot.waitUntil(lambda: "Checking Q8_0 against the trained model  42 %" in words(page))
    assert page.status == "busy"
    assert not page.primary.isEnabled()
    page._busy.cancel.emit()
    qtbot.waitUntil(lambda: len(answers.asked("cancel_export")) == 1)
    show(facts.job("canceled"))
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    assert page.shown_banner.what == "The export was stopped."
    assert page.status == "ready"


def test_a_finished_export_shows_its_proof_and_its_files(qtbot, show, run):  # noqa: F811
    (run / "export" / "support-desk-Q8_0.gguf").write_bytes(b"GGUF")
    page = show(facts.job("finished", report=facts.report()))
    qtbot.waitUntil(lambda: page.status == "done")
    qtbot.waitUntil(lambda: "same most likely token in 99.1 % of 4,812 positions" in words(page))
    assert "Q8_0 and Q4_K_M are proven" in words(page)
    button = next(b for b in page.findChildren(type(page.primary)) if b.text() == "Copy for burnish")
    button.click()
    assert QGuiApplication.clipboard().text() == f'burnish chat "{run / "export" / "support-desk-Q8_0.gguf"}"'


def test_a_refused_file_is_told_apart(qtbot, show):
    page = show(facts.job("failed", message="IQ4_XS was refused.", report=facts.report(refused=True)))
    qtbot.waitUntil(lambda: page.status == "attention")
    qtbot.waitUntil(lambda: "IQ4_XS was refused. Its mean KL divergence" in words(page))
    assert "proven" in words(page)


def test_an_export_that_made_nothing_says_why(qtbot, show):
    page = show(facts.job("failed", message="The disk is full: 2 GiB are needed."))
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    assert page.shown_banner.what == "The disk is full: 2 GiB are needed."
    assert not page.fidelity.isVisible()


def test_a_refused_start_is_told_in_place(qtbot, answers, show):
    page = show(None)
    answers.failure("export", "An export of this run is going on.", "Wait for it.", 2)
    page.primary.click()
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    assert page.shown_banner.what == "An export of this run is going on."
    assert page.primary.isEnabled()
