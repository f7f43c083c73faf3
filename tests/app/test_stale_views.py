"""After something else changed, each page shows the new state: another run, an edit, a replaced file, a deleted run."""

import os

import pytest
from app.facts import data_facts, export_facts
from app.facts import machine_facts as machines
from app.facts import page_facts as facts
from app.facts.run_summaries import RUNS, summary, write_run
from app.facts.train_scenes import TRAIN_SCENES
from app.pages.test_hardware import words

from burnish_app.widgets.export.type_choices import TypeChoices

from support.machines.hardware import history_of, made_up

pytestmark = pytest.mark.gui


def open_page(window, key):
    window.go_to(key)
    window.runs_poller.stop()
    return window.page(key)


def test_sizes_known_to_the_byte_outlast_predictions_that_come_later(qtbot, theme):
    types = TypeChoices()
    qtbot.addWidget(types)
    types.show_exact_sizes({"Q8_0": 639_446_688})
    types.show_sizes({"Q8_0": 640_000_000, "Q4_0": 350_000_000}, "Q4_0")
    assert types.sizes["Q8_0"].toolTip() == "639,446,688 bytes"
    assert types.sizes["Q4_0"].text().endswith("0.35 GB")
    types.forget_sizes()
    assert {types.sizes[quant].text() for quant in ("Q8_0", "Q4_0")} == {"–"}


def test_export_forgets_sizes_and_forecast_of_another_run(held_window, held, bench, run, other_run):
    page = open_page(held_window, "export")
    page.runs_changed([summary("finished", 600, folder=str(run), model="a/b")])
    held.answer("model", model=facts.model_facts())
    assert page.choices.types.sizes["Q8_0"].text() != "–"
    page._forecast_timer.timeout.emit()
    held.answer("forecast", forecast=export_facts.forecast())
    assert "Takes" in words(page)
    page.choices.types.choose(["Q4_0"])
    page._forecast_timer.timeout.emit()
    (late,) = held.open("forecast")
    page.banner("error", "The export failed.")
    bench.set_run(str(other_run))
    assert page.choices.isVisible()
    assert "Takes" not in words(page)
    assert page.shown_banner is None
    held.answer("forecast", to=late, forecast=export_facts.forecast())
    assert page.choices.types.sizes["Q8_0"].text() == "–"
    assert "Takes" not in words(page)


def test_export_recommends_for_the_target_that_is_chosen_now(qtbot, window, bench, run):
    page = open_page(window, "export")
    page._model = facts.model_facts(path="elsewhere")
    page._show_sizes()
    before = page.choices.types.recommended
    bench.set_target(bench.target.model_copy(update={"kind": "phone", "ram_gib": 2.0}))
    small = page.choices.types.recommended
    bench.set_target(bench.target.model_copy(update={"kind": "server", "ram_gib": 256.0}))
    assert len({before, small, page.choices.types.recommended}) > 1
    page._model = facts.model_facts(path=bench.model_path)
    export = bench.recipe.export.model_copy(update={"quants": ["Q5_K_M"]})
    bench.set_suggestion(facts.suggestion(bench.recipe.model_copy(update={"export": export})))
    assert page.choices.types.recommended == "Q5_K_M"


def test_try_it_offers_a_file_once_it_is_exported(window, run):
    page = open_page(window, "try_out")

    def can_answer(key):
        items = [page.left.who.itemData(number) for number in range(page.left.who.count())]
        return next(one.able for one in items if one.key == key)

    assert not can_answer("exported")
    (run / "export" / "desk-Q8_0.gguf").write_bytes(b"GGUF")
    (run / "export" / "fidelity.json").write_text("{}")
    window.runs_poller.updated.emit(RUNS)
    assert can_answer("exported")
    (run / "adapter" / "adapter_model.safetensors").unlink()
    window.runs_poller.updated.emit(RUNS)
    assert not can_answer("tuned")


@pytest.mark.full
def test_model_looks_again_at_one_that_was_chosen_before(qtbot, answers, window, bench):
    answers.result("models", models=facts.catalog())
    answers.result("model", model=facts.model_facts(path="embedded", name="SmolLM2 135M"))
    page = open_page(window, "model")
    qtbot.waitUntil(lambda: page.status == "done")
    window.go_to("data")
    bench.set_model_path("/some/other")
    bench.set_model_path("embedded")
    window.go_to("model")
    qtbot.waitUntil(lambda: page.status == "done")
    assert bench.model is not None


def test_model_takes_back_what_it_said_of_a_model_that_is_not_chosen_any_more(qtbot, answers, window, bench):
    answers.result("models", models=facts.catalog())
    answers.failure("model", "There is no config.json there.", "Choose another.", 12)
    page = open_page(window, "model")
    qtbot.waitUntil(lambda: page.shown_banner is not None)
    window.go_to("recipe")
    bench.set_model_path("/some/other")
    assert page.shown_banner is None


@pytest.mark.full
def test_data_looks_again_at_a_file_that_was_replaced(qtbot, answers, window, bench, tmp_path):
    data = tmp_path / "support.jsonl"
    data.write_text("{}\n", encoding="utf-8")
    answers.result("inspect", dataset=data_facts.dataset())
    page = open_page(window, "data")
    window.take([str(data)])
    qtbot.waitUntil(lambda: page.status == "done")
    page.shown()
    assert not page._inspection.busy
    data.write_text("{}\n{}\n", encoding="utf-8")
    os.utime(data, ns=(1, 1))
    found = data_facts.dataset()
    report = found.report.model_copy(update={"training_rows": 77})
    answers.result("inspect", dataset=found.model_copy(update={"train_rows": 77, "report": report}))
    page.shown()
    qtbot.waitUntil(lambda: bench.dataset is not None and bench.dataset.train_rows == 77)
    qtbot.waitUntil(lambda: "77 rows to learn from" in words(page))


def test_data_does_not_keep_what_was_found_for_other_settings(held_window, held, bench, tmp_path):
    open_page(held_window, "data")
    bench.set_data_files([str(tmp_path / "a.jsonl")])
    (name,) = held.open("inspect")
    held_window.go_to("runs")  # nobody looks again while the page is hidden
    bench.change_data(max_length=64)
    held.answer("inspect", to=name, dataset=data_facts.dataset())
    assert bench.dataset is None


def test_hardware_shows_the_machine_as_it_is_now_and_no_verdict_on_another(qtbot, answers, window):
    before, after = machines.machine(machines.gpu()), machines.machine()
    answers.result("machine", machine=before)
    answers.result("doctor", checkup=machines.checkup(before, notes=["It sleeps after 30 minutes."]))
    answers.result("what_fits", what_fits=machines.what_fits())
    page = open_page(window, "hardware")
    qtbot.waitUntil(lambda: page.status == "done" and "21.9 GiB free of 24.0 GiB" in words(page))
    qtbot.waitUntil(lambda: len(answers.asked("what_fits")) == 1 and page.fits.table.isVisible())
    answers.result("machine", machine=after)
    answers.result("doctor", checkup=machines.checkup(after))
    page.shown()
    qtbot.waitUntil(lambda: len(answers.asked("doctor")) == 2 and page.status == "done")
    qtbot.waitUntil(lambda: "Training works here, slowly" in words(page))
    assert "21.9 GiB free of 24.0 GiB" not in words(page)
    assert "It sleeps after 30 minutes." not in words(page)
    qtbot.waitUntil(lambda: len(answers.asked("what_fits")) == 2)


def test_export_offers_what_another_run_asks_for_and_proves_nothing_of_the_former(window, bench, run, other_run):
    page = open_page(window, "export")
    page._forecast_timer.stop()
    page._take_job(export_facts.job("finished", report=export_facts.report()))
    assert page.fidelity.isVisible()
    assert page.choices.types.chosen() != ["Q6_K"]
    bench.set_run(str(other_run))
    assert not page.fidelity.isVisible()
    assert page.status == "ready"
    assert page.choices.types.chosen() == ["Q6_K"]
    page._take_job(export_facts.job(share=0.1))
    page._advanced(str(run), export_facts.job(share=0.9))  # the former run's export, delivered late
    assert page.job.share == 0.1


def test_train_shows_nothing_of_the_run_that_was_shown_before(qtbot, window, bench, tmp_path, other_run):
    page = open_page(window, "train")
    former = write_run(tmp_path / "run", *TRAIN_SCENES["training"])
    bench.set_run(former.folder)
    qtbot.waitUntil(lambda: page.events.step == 240)
    late = page.events
    page._hardware_came(former.folder, history_of(made_up(seconds=3)))
    page.banner("error", "The run failed.")
    bench.set_run(str(other_run))
    assert page.shown_banner is None
    assert len(page.events.steps) == 0
    assert len(page._samples) == 0
    page._advanced(former.folder, late)  # read before the person continued, delivered after
    assert len(page.events.steps) == 0
    assert page._stopping.patience == 4


@pytest.mark.full
def test_recipe_shows_what_was_changed_elsewhere(qtbot, answers, window, bench):
    page = open_page(window, "recipe")
    adapter = bench.recipe.adapter.model_copy(update={"rank": 48})
    bench.set_recipe(bench.recipe.model_copy(update={"adapter": adapter}))
    assert page.form.row("adapter.rank").value() == 48
    assert page.plans.timer.isActive()


@pytest.mark.full
def test_recipe_shows_what_was_changed_while_another_page_was_shown(qtbot, answers, window, bench):
    page = open_page(window, "recipe")
    window.go_to("runs")
    bench.change_data(max_length=321)
    window.go_to("recipe")
    assert page.form.row("data.max_length").value() == 321


def test_recipe_takes_no_plan_of_what_was_changed_on_another_page(held_window, held, bench):
    page = open_page(held_window, "recipe")
    page.plans.ask()
    name = held.open("estimate")[-1]
    held_window.go_to("runs")
    bench.change_data(max_length=64)
    held.answer("estimate", to=name, plan=facts.plan())
    assert bench.plan is None


@pytest.mark.full
def test_recipe_marks_a_prediction_that_is_out_of_date(window, bench):
    page = open_page(window, "recipe")
    window.go_to("runs")
    page.fit.show_invalid()
    assert "updating" not in page.fit._state.text()
    bench.change_data(max_length=77)
    assert "updating" in page.fit._state.text()


def test_recipe_takes_no_suggestion_for_what_was_chosen_before(held_window, held, bench):
    bench.set_data_files(["/data/first.jsonl"])
    open_page(held_window, "recipe")
    (name,) = held.open("suggest")
    held_window.go_to("runs")
    bench.set_data_files(["/data/second.jsonl"])
    held.answer("suggest", to=name, suggestion=facts.suggestion())
    assert bench.suggestion is None
    held_window.go_to("recipe")
    held.answer("suggest", suggestion=facts.suggestion())
    assert bench.suggestion is not None
    assert held.requests("suggest")[-1]["data"] == ["/data/second.jsonl"]


@pytest.mark.full
def test_train_shows_nothing_of_a_run_that_was_deleted(window, bench):
    page = open_page(window, "train")
    bench.set_run(RUNS[0].folder)
    page.runs_changed(RUNS)
    page.set_foot_note("Asked.")
    bench.set_run("")
    assert not page.nothing.isHidden()
    assert page.foot.note.text() == ""
    assert page.summary is None


@pytest.mark.full
def test_runs_lists_no_run_that_was_deleted(window):
    page = open_page(window, "runs")
    window.runs_poller.updated.emit(RUNS)
    window.runs_poller.updated.emit(RUNS[:2])
    assert page.model.rowCount() == 2
    window.runs_poller.updated.emit([])
    assert page.selected is None
    assert not page.nothing.isHidden()
