"""Scenes of Hardware, Model, Data, Recipe, Try it and Export, from constructed facts."""

import tempfile
from pathlib import Path

from app import machine_facts as machines
from app import model_facts
from app import page_facts as facts
from app.scenes import summary
from app.screenshots import scene, settle
from PySide6.QtCore import QPointF
from PySide6.QtWidgets import QScrollArea

from burnish_app.state.questions import Question
from burnish_app.widgets.export.exported_files import Outcome
from burnish_app.wording.export_stages import handed_over_text
from burnish_engine.contract.facts.data_report import FileStatus
from burnish_engine.contract.facts.facts import DecoderSpec
from burnish_engine.contract.facts.votes import VoteCount
from burnish_engine.contract.recipe.memory_plan import MemoryPlan
from burnish_engine.contract.recipe.recipe_export import ExportSection
from burnish_engine.contract.serve.messages import Failure, Progress, Result
from burnish_engine.contract.serve.model_requests import ChatMessage
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


def _models(page, local=(), hub=()):
    page.models._ranked, page.models._local, page.models._hub = facts.catalog(), list(local), list(hub)
    page.models._merge()
    page._list_models()
    page.models.select("meta-llama/Llama-3.2-1B-Instruct")


def _choose(window):
    page = window.page("model")
    window.bench.set_model_path("Qwen/Qwen3-0.6B")
    window.bench.set_model(facts.model_facts())
    page._check = "check"
    page._checked("check", "Qwen/Qwen3-0.6B", model_facts.integrity())
    return page


@scene("model-busy")
def model_busy(window):
    page = window.page("model")
    page.downloads._answered(result(downloads=model_facts.downloads()))
    _models(page)


@scene("model-done")
def model_done(window):
    page = _choose(window)
    window.bench.set_data_files([facts.DATA_FILE])
    window.bench.set_dataset(facts.dataset())
    _models(page, model_facts.local_models())


@scene("model-hub")
def model_hub(window):
    page = _choose(window)
    page.models.search.setText("qwen coder")
    page.models._searched = "qwen coder"
    page.models.scope.choose("hub")
    _models(page, hub=model_facts.hub_models())
    page.models.table.selectRow(0)


@scene("model-adapter")
def model_adapter(window):
    page = _choose(window)
    window.bench.set_start(model_facts.adapter().path)
    page.start._request = "adapter"
    page.start._found("adapter", result(adapter=model_facts.adapter()))
    _models(page, model_facts.local_models())


@scene("model-failed")
def model_failed(window):
    page = window.page("model")
    _models(page)
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


def _inspected(window, dataset, *files, row=0):
    """Show data with its rows, one of them rendered."""
    bench, page = window.bench, window.page("data")
    bench.set_data_files(list(files) or [facts.DATA_FILE])
    page._inspection._on_result(page._inspection._request, bench.dataset_inputs(), result(dataset=dataset))
    _table(page, facts.chat_columns())
    page.rows.table.setCurrentIndex(page.rows.rows.index(row, 0))
    _rendered(page)
    return page


def _table(page, columns, **rows):
    page.rows.pages._columns_here(page.rows.pages._asked, result(columns=columns))
    page.rows.pages._page_here(page.rows.pages._reading, 0, result(rows=facts.row_page(**rows)))


def _rendered(page):
    page.rows.preview._soon.stop()
    page.rows.preview._show(facts.preview())


@scene("data-done")
def data_done(window):
    _inspected(window, facts.dataset(), row=2)


@scene("data-lower")
def data_lower(window):
    """Further down the page: findings and figures."""
    page = _inspected(window, facts.dataset())
    settle()
    page.findChild(QScrollArea).ensureWidgetVisible(page.lengths)


@scene("data-end")
def data_end(window):
    """The end of the page: a template that slips a message in."""
    adds = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    report = facts.dataset_report()
    template = report.template.model_copy(update={"adds": adds})
    page = _inspected(window, facts.dataset(report=report.model_copy(update={"template": template})))
    settle()
    page.findChild(QScrollArea).ensureWidgetVisible(page.template)


@scene("data-finding")
def data_finding(window):
    """The rows of a finding, by themselves."""
    page = _inspected(window, facts.dataset())
    settle()
    finding = facts.dataset_report().findings[0]
    page._open_rows(finding.first, finding.rows, finding.says)
    page.rows.pages._places_here(page.rows.pages._reading, result(rows=facts.row_page(43, 9, 52)))
    _rendered(page)


@scene("data-bad")
def data_bad(window):
    """One of three files cannot be read; the others are shown."""
    bad, faq = "/home/ada/data/old.jsonl", "/home/ada/data/faq.csv"
    problem = "old.jsonl is not valid JSON at line 3, column 41: Expecting value."
    remedy = 'Correct that line, or remove it. Or set data.broken_rows = "drop" to go on without such rows.'
    status = [
        FileStatus(file=facts.DATA_FILE, entry=0, rows=1204),
        FileStatus(file=bad, entry=1, problem=problem, remedy=remedy),
        FileStatus(file=faq, entry=2, rows=310),
    ]
    _inspected(window, facts.dataset(report=facts.dataset_report(files=status)), facts.DATA_FILE, bad, faq)


@scene("data-preferences")
def data_preferences(window):
    """Preference pairs that were recognized, with what is odd about them."""
    bench, page = window.bench, window.page("data")
    bench.set_data_files(["/home/ada/data/preferred.jsonl"])
    for _inspection in range(2):  # the first one recognizes pairs, and the page chooses their usual objective
        page._inspection._on_result(page._inspection._request, bench.dataset_inputs(), result(dataset=facts.pairs()))
        settle()
    cells = {
        "prompt": "My parcel has not moved for six days. What can I do?", "rejected": "No idea, sorry.",
        "chosen": "Cause: It waits at the depot for a customs paper. Fix: Send the invoice to the carrier.",
    }  # fmt: skip
    says = {"columns": {name: name for name in cells}, "confidence": 0.99, "says": "preference pairs"}
    reading = facts.ColumnReading(shape="preference", **says)
    _table(page, facts.file_columns(columns=cells, readings=[reading], question=""), cells=cells)
    _rendered(page)


@scene("data-mixed")
def data_mixed(window):
    """Two files with weights, changes in force, all choices open; further down the page."""
    bench, page = window.bench, window.page("data")
    bench.set_data_files([facts.DATA_FILE, "/home/ada/data/faq.jsonl"])
    bench.change_data(weights=[1.0, 0.5], duplicates="drop", overlong="split")
    page._inspection._on_result(
        page._inspection._request, window.bench.dataset_inputs(), result(dataset=facts.dataset())
    )
    _table(page, facts.chat_columns())
    page.rows.preview.tokens.setChecked(True)
    _rendered(page)
    page.findings._toggle()
    settle()
    page.findChild(QScrollArea).ensureWidgetVisible(page.findings)


@scene("data-question")
def data_question(window):
    window.bench.set_data_files(["/home/ada/data/faq.csv"])
    page = window.page("data")
    page._inspection._failed(page._inspection._request, failure("It can be read in 2 ways.", "", 11))
    columns = facts.file_columns()
    _table(page, columns, total=310, cells=columns.columns)


@scene("data-drop")
def data_drop(window):
    """Files are dragged over the window, and there are others already."""
    _inspected(window, facts.dataset())
    window._drop_overlay.cover(choice=True)
    window._drop_overlay.point_at(QPointF(window.width() * 0.75, 200))


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


def _reply(page, pane, text, tokens, seconds, first, name, waited=""):
    request = next(request for request, asked in page.answering.open.items() if asked is pane)
    page.answering._answered(
        request,
        result(
            reply=Reply(
                text=text, stopped=tokens < 100, tokens=tokens, seconds=seconds, name=name, first_token_s=first,
                waited=waited,
            )
        ),
    )  # fmt: skip


def _both(page):
    _reply(page, page.left, BASE, 120, 2.1, 0.31, "Qwen3 0.6B")
    _reply(page, page.right, TUNED, 44, 0.9, 0.12, "Qwen3 0.6B + support-desk")


@scene("try_out-done")
def try_out_done(window):
    page = _ask(window)
    _both(page)
    page._toggle_sampling()


@scene("try_out-three")
def try_out_three(window):
    """Three models answer a held-out row, whose wanted reply stands beside them."""
    names = ("support-desk-Q8_0.gguf", "support-desk-Q4_K_M.gguf")
    window.bench.set_run(_run_folder(names))
    page = window.page("try_out")
    page.shown()
    rows = [
        Question((ChatMessage(role="user", content=text),), TUNED) for text in (QUESTION, "It broke.", "Where is it?")
    ]
    page.questions.show_rows(window.bench.run, rows)
    page.questions.source.button("rows").click()
    page.count.button("3").click()
    page.middle.choose("tuned")
    page.right.choose(names[1])
    page.send()
    _reply(page, page.left, BASE, 120, 2.1, 0.31, "Qwen3 0.6B")
    _reply(page, page.middle, TUNED, 44, 0.9, 0.12, "Qwen3 0.6B + support-desk")
    _reply(page, page.right, TUNED, 43, 1.4, 0.2, names[1], "they do not fit into memory together")


@scene("try_out-blind")
def try_out_blind(window):
    """A blind vote: replies are there, who wrote them is not said."""
    window.bench.set_run(_run_folder())
    page = window.page("try_out")
    page.shown()
    page.blind.setChecked(True)
    page.prompt.setPlainText(QUESTION)
    page.send()
    _both(page)


@scene("try_out-voted")
def try_out_voted(window):
    try_out_blind(window)
    page = window.page("try_out")
    page._vote(0)
    page._voted(result(votes=VoteCount(votes=8, wins={"tuned": 5, "base": 1}, equal=2)))


@scene("try_out-failed")
def try_out_failed(window):
    page = _ask(window)
    for name in list(page.answering.open):
        page.answering.fail(name, failure("It needs 3.1 GiB, 0.8 GiB are free.", "Free memory."))


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
    page._forecast_found(page._forecast_request, result(forecast=facts.forecast()))


@scene("export-limit")
def export_limit(window):
    """A target that holds only the smaller files, and a training that gained nothing that was measured."""
    page = _export(window, None)
    page.choices.types.choose(["Q4_K_M"])
    known = {"types": facts.type_forecasts(gain=0.0), "target_bytes": 600_000_000}
    page._forecast_found(page._forecast_request, result(forecast=facts.forecast(**known)))
    page.sizes.chart._go_to(4)


@scene("export-busy")
def export_busy(window):
    _export(window, facts.job())


@scene("export-done")
def export_done(window):
    names = ("support-desk-Q8_0.gguf", "support-desk-Q4_K_M.gguf")
    why = "Best for a laptop with 16 GiB: support-desk-Q8_0.gguf. Q8_0 keeps 100% of the gain at 0.64 GB."
    page = _export(window, facts.job("finished", report=facts.report(), suggested=names[0], why=why), names)
    page._forecast_found(page._forecast_request, result(forecast=facts.forecast()))


@scene("export-programs")
def export_programs(window):
    """Finished files on a machine with Ollama and LM Studio, one of them handed over."""
    export_done(window)
    page = window.page("export")
    page.files.offer(["ollama", "lm_studio"])
    name = "support-desk-Q4_K_M.gguf"
    page.files.show_outcome(name, Outcome(handed_over_text("ollama", "support-desk:q4_k_m"), "success"))
    settle()
    page.findChild(QScrollArea).ensureWidgetVisible(page.files)


@scene("export-failed")
def export_failed(window):
    _export(window, facts.job("failed", message="One file was refused.", report=facts.report(refused=True)))
