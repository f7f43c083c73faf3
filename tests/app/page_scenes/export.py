"""Scenes of Export."""

from app.facts import export_facts
from app.facts import page_facts as facts
from app.facts.run_summaries import summary
from app.page_scenes.answers import run_folder
from app.page_scenes.screenshots import scene, settle
from PySide6.QtWidgets import QScrollArea

from burnish_app.state.example_run import open_example
from burnish_app.widgets.export.exported_files import Outcome
from burnish_app.wording.export_stages import handed_over_text
from burnish_engine.contract.paths import RunPaths
from burnish_engine.contract.recipe.recipe_export import ExportSection
from burnish_engine.contract.run.state import RunStateFile
from burnish_engine.contract.serve.replies import ExportJob, RunSummary


def _export(window, job, exported=()):
    folder = run_folder(exported)
    window.bench.set_run(folder)
    page = window.page("export")
    page.shown()
    window.bench.set_model(facts.model_facts())
    page.runs_changed(
        [summary("finished", 600, folder=folder).model_copy(update={"model": "Qwen/Qwen3-0.6B", "export": job})]
    )
    return page


def _forecast(window, **known):
    """Let the forecast come that the page asks for once the choices rest."""
    window.page("export")._forecast_timer.timeout.emit()
    window.client.answer("forecast", forecast=export_facts.forecast(**known))


@scene("export-empty")
def export_empty(window):
    window.page("export").shown()


@scene("export-ready")
def export_ready(window):
    page = _export(window, None)
    page.choices.show_run(ExportSection(quants=["Q8_0", "Q4_K_M"], merge_onto="dequantized"), quantized=True)
    _forecast(window)


@scene("export-limit")
def export_limit(window):
    """A target that holds only the smaller files, and a training that gained nothing that was measured."""
    page = _export(window, None)
    page.choices.types.choose(["Q4_K_M"])
    known = {"types": export_facts.type_forecasts(gain=0.0), "target_bytes": 600_000_000}
    _forecast(window, **known)
    page.sizes.chart._go_to(4)


@scene("export-example")
def export_example(window):
    """The example that ships: its file is proven, and not written yet."""
    folder = open_example()
    job = ExportJob.model_validate_json(RunPaths(folder).export_job.read_text(encoding="utf-8"))
    window.bench.set_run(str(folder))
    page = window.page("export")
    page.shown()
    state = RunStateFile.model_validate_json(RunPaths(folder).state.read_text(encoding="utf-8"))
    page.runs_changed([RunSummary(folder=str(folder), state=state, standing="finished", model="embedded", export=job)])


@scene("export-busy")
def export_busy(window):
    _export(window, export_facts.job())


@scene("export-done")
def export_done(window):
    names = ("support-desk-Q8_0.gguf", "support-desk-Q4_K_M.gguf")
    why = "Best for a laptop with 16 GiB: support-desk-Q8_0.gguf. Q8_0 keeps 100% of the gain at 0.64 GB."
    _export(window, export_facts.job("finished", report=export_facts.report(), suggested=names[0], why=why), names)


@scene("export-more")
def export_more(window):
    """Finished files, and the choices of further ones below them."""
    export_done(window)
    window.page("export").primary.click()
    _forecast(window)


@scene("export-programs")
def export_programs(window):
    """Finished files on a machine with Ollama and LM Studio, one of them handed over."""
    export_done(window)
    page = window.page("export")
    page.shown()
    window.client.answer("programs", programs=["ollama", "lm_studio"])
    name = "support-desk-Q4_K_M.gguf"
    page.files.show_outcome(name, Outcome(handed_over_text("ollama", "support-desk:q4_k_m"), "success"))
    settle()
    page.findChild(QScrollArea).ensureWidgetVisible(page.files)


@scene("export-failed")
def export_failed(window):
    _export(
        window, export_facts.job("failed", message="One file was refused.", report=export_facts.report(refused=True))
    )
