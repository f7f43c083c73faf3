"""Scenes of Hardware, Model, Data, Recipe, Try it and Export, from constructed facts."""

import tempfile
from pathlib import Path

from app import machine_facts as machines
from app import page_facts as facts
from app.scenes import summary
from app.screenshots import scene, settle
from PySide6.QtWidgets import QScrollArea

from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.recipe.memory_plan import MemoryPlan
from burnish_engine.contract.recipe.recipe_export import ExportSection
from burnish_engine.contract.serve.messages import Failure, Progress, Result
from burnish_engine.contract.serve.replies import Reply

from support.hardware import made_up


def result(**fields):
    return Result(id="x", **fields)


def failure(what, remedy="", code=1):
    return Failure(id="x", what=what, remedy=remedy, exit_code=code)


# Hardware


@scene("hardware-busy")
def hardware_busy(window):
    window.page("hardware").shown()


def _hardware(window, checkup, what_fits=None):
    page = window.page("hardware")
    page._fits_found(result(what_fits=what_fits or machines.what_fits()))
    page._checked(result(checkup=checkup))
    page._checking.hide()
    page.checkup_file.unlink()
    page._check_button.setEnabled(True)
    page.set_status("done" if checkup.ready else "attention")


@scene("hardware-done")
def hardware_done(window):
    note = "This machine goes to sleep after 30 idle minutes, which interrupts a run."
    _hardware(window, machines.checkup(machines.machine(machines.gpu()), notes=[note]))


@scene("hardware-pair")
def hardware_pair(window):
    _hardware(window, machines.checkup(machines.pair()))


@scene("hardware-eight")
def hardware_eight(window):
    _hardware(window, machines.checkup(machines.eight()))
    _live(window, made_up(8, name="NVIDIA H100 80GB HBM3", total=80 * machines.GIB))


@scene("hardware-live")
def hardware_live(window):
    _hardware(window, machines.checkup(machines.machine(machines.gpu())))
    _live(window, made_up())
    window.sidebar.hardware.click()


@scene("hardware-alarm")
def hardware_alarm(window):
    _hardware(window, machines.checkup(machines.machine(machines.gpu())))
    run = summary("running")
    run = run.model_copy(update={"state": run.state.model_copy(update={"device": "cuda-0"})})
    window.hardware.runs_changed([run])
    _live(window, made_up(filled=40))
    window.sidebar.hardware.click()


def _live(window, lines):
    for line in lines:
        window.hardware.monitor._received(line)


@scene("hardware-cpu")
def hardware_cpu(window):
    _hardware(window, machines.checkup(machines.machine()), machines.what_fits_on_a_processor())


@scene("hardware-fits")
def hardware_fits(window):
    _hardware(window, machines.checkup(machines.machine(machines.gpu())))
    page = window.page("hardware")
    settle()
    page.findChild(QScrollArea).ensureWidgetVisible(page._fits)


@scene("hardware-fitsnone")
def hardware_fits_none(window):
    _hardware(window, machines.checkup(machines.machine(machines.gpu())), machines.what_fits_nowhere())
    page = window.page("hardware")
    settle()
    page.findChild(QScrollArea).ensureWidgetVisible(page._fits)


@scene("hardware-fitsbusy")
def hardware_fits_busy(window):
    page = window.page("hardware")
    page._found(result(machine=machines.machine(machines.gpu())))
    page._fits.set_progress("Qwen3 4B Instruct 2507", 2, 7)


@scene("hardware-failed")
def hardware_failed(window):
    problem = "The NVIDIA driver (525.60) is older than CUDA 12.8 needs (570). Update it, then check again."
    _hardware(window, machines.checkup(machines.machine(machines.gpu()), ready=False, problems=[problem]))


# Model


def _catalog(page):
    page.catalog._found(page.catalog._asked, result(models=facts.catalog()))
    page.catalog.table.selectRow(2)


@scene("model-busy")
def model_busy(window):
    page = window.page("model")
    _catalog(page)
    page.catalog.table.selectRow(1)
    page.catalog._act()
    page.catalog._progress.set_progress("Fetching Qwen3 0.6B", 512 * 2**20, 1200 * 2**20)


@scene("model-done")
def model_done(window):
    page = window.page("model")
    window.bench.set_model_path("Qwen/Qwen3-0.6B")
    window.bench.set_model(facts.model_facts())
    page._busy.hide()
    _catalog(page)
    page.local.show_models(facts.local_models())


@scene("model-failed")
def model_failed(window):
    page = window.page("model")
    _catalog(page)
    page._inspect_failed(
        page._request, failure("There is no config.json in D:\\models\\mine.", "Choose the folder that holds it.")
    )


# Data


@scene("data-empty")
def data_empty(window):
    window.bench.set_data_files([])


@scene("data-busy")
def data_busy(window):
    window.bench.set_data_files(["/home/ada/data/support.jsonl"])
    page = window.page("data")
    page._inspection._on_progress(
        page._inspection._request, Progress(id="x", what="Reading rows", done=41_200, total=0)
    )


@scene("data-done")
def data_done(window):
    window.bench.set_data_files(["/home/ada/data/support.jsonl"])
    page = window.page("data")
    page._table_of = window.bench.data_files
    page._table_found(page._table_of, result(columns=facts.file_columns(file="support.jsonl")))
    page._inspection._on_result(
        page._inspection._request, window.bench.dataset_inputs(), result(dataset=facts.dataset())
    )


@scene("data-preferences")
def data_preferences(window):
    """Preference pairs that were recognized, with what is odd about them."""
    bench, page = window.bench, window.page("data")
    bench.set_data_files(["/home/ada/data/preferred.jsonl"])
    for _inspection in range(2):  # the first one recognizes pairs, and the page chooses their usual objective
        page._inspection._on_result(page._inspection._request, bench.dataset_inputs(), result(dataset=facts.pairs()))
        settle()


@scene("data-mixed")
def data_mixed(window):
    """Two files with weights, changes in force, tokens shown; further down the page."""
    bench, page = window.bench, window.page("data")
    bench.set_data_files(["/home/ada/data/support.jsonl", "/home/ada/data/faq.jsonl"])
    bench.change_data(weights=[1.0, 0.5], duplicates="drop", overlong="split")
    page._inspection._on_result(
        page._inspection._request, window.bench.dataset_inputs(), result(dataset=facts.dataset())
    )
    page.findings._toggle()
    pieces = [(text, learned) for text, learned in facts.tokens()]
    page.rows.tokens.setChecked(True)
    page.rows.view.show_pieces(pieces, tokens=True)
    settle()
    page.findChild(QScrollArea).ensureWidgetVisible(page.rows)


@scene("data-question")
def data_question(window):
    window.bench.set_data_files(["/home/ada/data/faq.csv"])
    page = window.page("data")
    page._inspection._failed(page._inspection._request, failure("It can be read in 2 ways.", "", 11))
    page._columns_found(page._columns_request, result(columns=facts.file_columns()))


@scene("data-failed")
def data_failed(window):
    window.bench.set_data_files(["/home/ada/data/notes.csv"])
    page = window.page("data")
    what = "notes.csv has the columns id, date and body; none of the known shapes fits them."
    page._inspection._failed(page._inspection._request, failure(what, "Name the text column `text`."))


# Recipe


def _recipe(window, plan, *, edit=True):
    window.bench.set_data_files(["/home/ada/data/support.jsonl"])
    window.bench.set_dataset(facts.dataset())
    page = window.page("recipe")
    page.clear_banner()
    page.shown()
    page.suggestions.cancel()
    page._suggested_now(facts.suggestion())
    settle(2)
    page._planned(facts.plan())
    for preset, seconds in (("quick", 9.0), ("balanced", 31.0), ("best", 68.0)):
        page.settings.presets.show_plan(preset, facts.plan(seconds=seconds))
    if edit:
        page.form.row("train.epochs")._editor.setText("5")
        page.form.row("train.epochs")._on_edited()
        row = page.form.row("train.micro_batch_tokens")
        row._editor.stepBy(1)
        plan = plan.model_copy(
            update={"memory_bytes": plan.memory_bytes + 430 * 2**20, "tokens_per_s": plan.tokens_per_s * 1.08}
        )
    page.plans.drop()
    page._planned(plan)
    page.plans.drop()
    settle(20)
    return page


@scene("recipe-empty")
def recipe_empty(window):
    window.page("recipe").shown()


@scene("recipe-busy")
def recipe_busy(window):
    window.bench.set_data_files(["/home/ada/data/support.jsonl"])
    window.page("recipe").clear_banner()
    window.page("recipe").shown()


@scene("recipe-done")
def recipe_done(window):
    _recipe(window, facts.plan())


@scene("recipe-advanced")
def recipe_advanced(window):
    page = _recipe(window, facts.plan())
    page.form.row("train.weight_decay")
    row = page.form.row("train.warmup_share")
    row._editor.setText("2")
    row._on_edited()
    row._editor.setFocus()
    settle()
    page.findChild(QScrollArea).ensureWidgetVisible(row)


@scene("recipe-preferences")
def recipe_preferences(window):
    """A recipe that learns from preference pairs, and its settings on them."""
    page = _recipe(window, facts.plan(), edit=False)
    window.bench.set_objective("dpo", "preference")
    page.shown()
    row = page.form.row("preference.beta")
    settle()
    page.findChild(QScrollArea).ensureWidgetVisible(row)


@scene("recipe-optimizer")
def recipe_optimizer(window):
    """The sections on optimizer, guard and stopping early."""
    page = _recipe(window, facts.plan())
    optimizer = page.form.row("train.optimizer")
    optimizer._editor.setCurrentText("Lion")
    for key, text in (("evaluation.every", "50"), ("evaluation.patience", "3")):
        row = page.form.row(key)
        row._editor.setText(text)
        row._on_edited()
    page.form.row("guard.action")._editor.setCurrentText("say so and go on")
    page.form.row("masking.kind")._editor.setCurrentText("Magma")
    settle()
    page.findChild(QScrollArea).ensureWidgetVisible(optimizer)


@scene("recipe-search")
def recipe_search(window):
    page = _recipe(window, facts.plan())
    page.form.search.setText("checkpoint")
    page.form.search.setFocus()
    settle(12)
    page.findChild(QScrollArea).ensureWidgetVisible(page.form.folds["Training"])


@scene("recipe-offers")
def recipe_offers(window):
    """A mixture of experts on two cards, with layers streamed from system memory."""
    page = _recipe(window, facts.plan(), edit=False)
    spec = DecoderSpec(**{**facts.model_facts().spec.model_dump(), "num_experts": 128, "experts_per_token": 8})
    window.bench.set_model(facts.model_facts(spec=spec))
    page._machine = machines.pair()
    memory = MemoryPlan(layers=("products",) * 4, head_rows=2048, weights=("card", "host", "host", "host"))
    page._planned(facts.plan(memory_plan=memory))
    page.form.row("devices.strategy")._editor.setCurrentIndex(1)
    page._planned(facts.plan(memory_plan=memory, tokens_per_s=34_000.0, seconds=17.0))
    settle(12)
    page.findChild(QScrollArea).ensureWidgetVisible(page.form._offered)


@scene("recipe-all")
def recipe_all(window):
    """The lower end of the form."""
    page = _recipe(window, facts.plan(), edit=False)
    settle(20)
    bar = page.findChild(QScrollArea).verticalScrollBar()
    bar.setValue(bar.maximum())


@scene("recipe-toml")
def recipe_toml(window):
    _recipe(window, facts.plan())._show_as("toml")


@scene("recipe-failed")
def recipe_failed(window):
    page = _recipe(window, facts.plan(fits=False), edit=False)
    page._start_failed(failure("It does not fit: 46.4 GiB are needed, 21.9 GiB are free.", "Set train.recompute.", 10))


# Try it


def _run_folder(exported=()):
    folder = Path(tempfile.mkdtemp()) / "20261121-1012-support-desk"
    (folder / "adapter").mkdir(parents=True)
    (folder / "adapter" / "adapter_model.safetensors").write_bytes(b"")
    (folder / "export").mkdir()
    for name in exported:
        (folder / "export" / name).write_bytes(b"")
    return str(folder)


QUESTION = "My parcel has not moved for six days. What can I do?"
BASE = (
    "I'm sorry to hear that your parcel has not moved for six days. There are several things that you could try. "
    "First, you could try to contact the company that"
)
TUNED = (
    "Cause: It waits at the depot for a customs paper.\nFix: Send the invoice to the carrier and ask for a trace.\n"
    "Check: The status changes within one working day."
)


@scene("try_out-empty")
def try_out_empty(window):
    window.page("try_out").shown()


def _ask(window):
    window.bench.set_run(_run_folder())
    page = window.page("try_out")
    page.shown()
    page.prompt.setPlainText(QUESTION)
    page.send()
    return page


@scene("try_out-busy")
def try_out_busy(window):
    page = _ask(window)
    page.left.stream(BASE)
    page.left._flush()


@scene("try_out-done")
def try_out_done(window):
    page = _ask(window)
    page._answered(
        next(iter(page._open)),
        page.left,
        result(reply=Reply(text=BASE, stopped=False, tokens=120, seconds=2.1, name="Qwen3 0.6B")),
    )
    page._answered(
        next(iter(page._open)),
        page.right,
        result(reply=Reply(text=TUNED, stopped=True, tokens=44, seconds=0.9, name="Qwen3 0.6B + support-desk")),
    )
    page._toggle_options()


@scene("try_out-failed")
def try_out_failed(window):
    page = _ask(window)
    for name, pane in list(page._open.items()):
        page._failed(name, pane, failure("It needs 3.1 GiB, 0.8 GiB are free.", "Free memory."))


# Export


def _export(window, job, exported=()):
    folder = _run_folder(exported)
    window.bench.set_run(folder)
    page = window.page("export")
    page.shown()
    window.bench.set_model(facts.model_facts())
    page.runs_changed(
        [summary("finished", 600, folder=folder).model_copy(update={"model": "Qwen/Qwen3-0.6B", "export": job})]
    )
    return page


@scene("export-empty")
def export_empty(window):
    window.page("export").shown()


@scene("export-ready")
def export_ready(window):
    page = _export(window, None)
    page.choices.show_run(ExportSection(quants=["Q8_0", "Q4_K_M"], merge_onto="dequantized"), quantized=True)
    page.choices.show_forecast(facts.forecast())


@scene("export-busy")
def export_busy(window):
    _export(window, facts.job())


@scene("export-done")
def export_done(window):
    names = ("support-desk-Q8_0.gguf", "support-desk-Q4_K_M.gguf")
    why = "Best for a laptop with 16 GiB: support-desk-Q8_0.gguf. Q8_0 keeps 100% of the gain at 0.64 GB."
    _export(window, facts.job("finished", report=facts.report(), suggested=names[0], why=why), names)


@scene("export-failed")
def export_failed(window):
    _export(window, facts.job("failed", message="One file was refused.", report=facts.report(refused=True)))
