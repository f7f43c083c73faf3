"""Scenes of what has extreme names: very long ones, Chinese, Arabic, and many at once; and of the guide's window."""

from dataclasses import replace

from app.facts import data_facts, model_facts
from app.facts import page_facts as facts
from app.facts.run_summaries import RUNS, summary
from app.page_scenes.screenshots import scene, settle

from burnish_app.state.time_left import Remaining
from burnish_app.wording.activity import activities_of
from burnish_engine.contract.facts.advice import FoundOnHub
from burnish_engine.contract.facts.data_report import FileStatus

LONG = "invoice-fields-from-scanned-letters-of-the-last-nineteen-years-second-attempt-with-a-lower-learning-rate"
CHINESE, ARABIC = "客服对话微调-第二次实验", "تجربة-ردود-خدمة-العملاء"


def runs_with_names():
    model = f"/home/ada/models/{LONG}"
    return [
        summary("running", folder="/runs/1", name=LONG, model=model),
        summary("finished", 600, folder="/runs/2", name=CHINESE, model="通义/Qwen3-0.6B"),
        summary("interrupted", 12_345, folder="/runs/3", name=ARABIC, total_steps=1_200_000),
        *RUNS[1:3],
    ]


@scene("start-names")
def start_names(window):
    window.page("start").runs_changed(runs_with_names())


@scene("runs-names")
def runs_names(window):
    """Runs and what is running, with such names."""
    runs = runs_with_names()
    window.page("runs").runs_changed(runs)
    going = activities_of([runs[0], summary("queued", 0, folder="/runs/q", name=CHINESE, waits_for=LONG)])
    window.activity.board.put("runs", [replace(one, left=Remaining.about(90_000.0)) for one in going])
    window.sidebar.activity.click()


@scene("model-names")
def model_names(window):
    page = window.page("model")
    path = f"/home/ada/模型/{LONG}/{CHINESE}"
    window.bench.set_model_path(path)
    window.client.answer("model", model=facts.model_facts(name=LONG, folder=path))
    window.client.answer("check_files", integrity=model_facts.integrity(checked=0))
    local = [
        one.model_copy(update={"name": name})
        for one, name in zip(model_facts.local_models(), (LONG, CHINESE, ARABIC), strict=True)
    ]
    hub = [
        FoundOnHub(name=f"someone/{LONG}-{end}", verdict="good", tokens_per_s=123_456.0, reason="LoRA fits.")
        for end in ("GPTQ", "AWQ")
    ]
    page.models._ranked, page.models._local, page.models._hub = facts.catalog(), local, hub
    page.models._merge()
    page.models.select(LONG)


@scene("model-none")
def model_none(window):
    """Words that no model of the list has."""
    page = window.page("model")
    page.models._ranked = facts.catalog()
    page.models._merge()
    page.models.search.setText("zebra")


@scene("data-names")
def data_names(window):
    """Many files with such names, and rows in Chinese and Arabic."""
    page, bench = window.page("data"), window.bench
    names = (LONG, CHINESE, ARABIC, *(f"part-{number:05d}-of-00009" for number in range(1, 5)))
    files = [f"/home/ada/data/{CHINESE if at else LONG}/{name}.jsonl" for at, name in enumerate(names)]
    bench.set_data_files(files)
    status = [FileStatus(file=file, entry=at, rows=10**at) for at, file in enumerate(files)]
    dataset = data_facts.dataset(report=data_facts.dataset_report(files=status))
    window.client.answer("inspect", dataset=dataset)
    cells = {
        "messages": "user: 我的包裹六天没有动静了，怎么办？  |  assistant: 原因：包裹在仓库等待海关文件。",
        "system_prompt": "أنت تجيب عن أسئلة خدمة الطرود.", "ticket": "4711",
    }  # fmt: skip
    window.client.answer("columns", columns=data_facts.chat_columns(columns=cells))
    window.client.answer("rows", rows=data_facts.row_page(cells=cells))
    page.rows.preview._soon.stop()
    page.rows.preview._show(data_facts.preview())


def _guide(window, words=""):
    window.help.open()
    guide = window.help.guide
    guide.resize(min(guide.width(), window.width() - 40), min(guide.height(), window.height() - 40))
    guide.show_place(guide.place)
    if words:
        guide.search.setText(words)
        guide._list_places()
    settle()
    window.grab_beside = guide


@scene("settings-guide")
def settings_guide(window):
    _guide(window)


@scene("settings-guidesearch")
def settings_guide_search(window):
    _guide(window, "memory plan")


@scene("settings-guidenothing")
def settings_guide_nothing(window):
    _guide(window, "zebra crossing")
