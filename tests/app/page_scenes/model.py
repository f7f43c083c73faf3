"""Scenes of Model."""

from app.facts import data_facts, model_facts
from app.facts import page_facts as facts
from app.page_scenes.screenshots import scene


def _models(page, local=(), hub=()):
    page.models._ranked, page.models._local, page.models._hub = facts.catalog(), list(local), list(hub)
    page.models._merge()
    page._list_models()
    page.models.select("meta-llama/Llama-3.2-1B-Instruct")


def _choose(window):
    page = window.page("model")
    window.bench.set_model_path("Qwen/Qwen3-0.6B")
    window.client.answer("model", model=facts.model_facts())
    window.client.answer("check_files", integrity=model_facts.integrity())
    return page


@scene("model-busy")
def model_busy(window):
    page = window.page("model")
    page.downloads.ask()
    window.client.answer("downloads", downloads=model_facts.downloads())
    _models(page)


@scene("model-done")
def model_done(window):
    page = _choose(window)
    window.bench.set_data_files([data_facts.DATA_FILE])
    window.bench.set_dataset(data_facts.dataset())
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
    window.client.answer("adapter", adapter=model_facts.adapter())
    _models(page, model_facts.local_models())


@scene("model-failed")
def model_failed(window):
    page = window.page("model")
    window.bench.set_model_path("D:\\models\\mine")
    _models(page)
    what = "There is no config.json in D:\\models\\mine."
    window.client.fail("model", what, "Choose the folder that holds it.")
