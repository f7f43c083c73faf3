"""A narrow window: rows of figures wrap, texts wrap, and nothing needs more width than there is."""

from itertools import pairwise

import pytest
from app.facts import data_facts, export_facts
from app.facts import machine_facts as machines
from app.facts import page_facts as facts
from app.facts.run_events import numbered
from app.facts.run_summaries import RUNS, compared, many_runs, summary, write_run
from app.facts.train_scenes import TRAIN_SCENES
from app.page_scenes.screenshots import settle
from app.page_scenes.several_scenes import a_duel, a_sweep, sweep_plan, verdicts
from PySide6.QtCore import QPoint
from PySide6.QtWidgets import QLabel, QPushButton, QScrollArea, QTableView

from burnish_app.engine.downloads_follower import DownloadsFollower
from burnish_app.page_list import PAGES
from burnish_app.widgets.basic.text import Value
from burnish_app.widgets.data.role_header import RoleHeader
from burnish_app.widgets.duel.verdict_card import DuelVerdictCard
from burnish_app.widgets.hardware.capacity_card import CapacityCard
from burnish_app.widgets.hardware.gpu_card import GpuCard
from burnish_app.widgets.hardware.interconnect_card import InterconnectCard
from burnish_app.widgets.hardware.live_view import LiveView
from burnish_app.widgets.hardware.run_hardware import RunHardware
from burnish_app.widgets.model.model_list import ModelList
from burnish_app.widgets.page.banner import Banner
from burnish_app.widgets.page.page import Page
from burnish_app.widgets.recipe.fit_card import FitCard
from burnish_app.widgets.recipe.recipe_form import RecipeForm
from burnish_app.widgets.runs.run_charts import RunCharts
from burnish_app.widgets.runs.run_figures import RunFigures
from burnish_app.widgets.runs.run_stages import RunStages
from burnish_app.wording.run_stages import run_stages
from burnish_app.wording.run_text import describe_run
from burnish_engine.contract.paths import user_data_dir
from burnish_engine.contract.run.events import PhaseChanged, PhaseProgress
from burnish_engine.contract.run.fold import EvaluationHistory, RunState, fold_all

from support.machines.hardware import history_of, recorded

pytestmark = pytest.mark.gui

CARD_PX = 470  # of a window 744 wide, less sidebar, margins and scroll bar
LONG = "It needs 46.4 GiB, and 21.9 GiB are free on the NVIDIA GeForce RTX 4090. " * 4


@pytest.fixture
def show(qtbot, theme):
    def do(widget, width=CARD_PX):
        qtbot.addWidget(widget)
        widget.resize(width, max(widget.heightForWidth(width), 100))
        with qtbot.waitExposed(widget):
            widget.show()
        qtbot.wait(20)
        return widget

    return do


def test_a_plan_that_does_not_fit_is_read_without_scrolling_sideways(show):
    card = FitCard()
    card.show_plan(facts.plan(fits=False, problems=[LONG]))
    show(card)
    assert card.minimumSizeHint().width() <= CARD_PX
    for value in card.findChildren(Value):
        assert value.geometry().right() < CARD_PX
        assert value.width() >= value.minimumSizeHint().width()


def test_the_figures_of_a_run_wrap(show):
    run, lines = TRAIN_SCENES["training"]
    figures, state = RunFigures(), fold_all(RunState(), lines)
    figures.show_status(describe_run(run, state))
    figures.draw(state, run)
    show(figures)
    assert figures.minimumSizeHint().width() <= CARD_PX
    assert len({value.y() for value in figures.findChildren(Value) if not value.isHidden()}) > 1
    figures.resize(1000, figures.heightForWidth(1000))
    assert len({value.y() for value in figures.findChildren(Value) if not value.isHidden()}) == 1


@pytest.mark.parametrize("scene", ["queued", "no_system_memory", "finished"])
def test_the_explanation_of_a_status_is_no_narrow_column(show, scene):
    run, lines = TRAIN_SCENES[scene]
    figures = RunFigures()
    figures.show_status(describe_run(run, fold_all(RunState(), lines)))
    show(figures)
    assert figures.minimumSizeHint().width() <= CARD_PX
    assert figures.detail.width() > CARD_PX / 2
    assert figures.headline.geometry().right() < CARD_PX


def test_the_stages_before_the_first_step_find_room(show):
    many = PhaseProgress(done=112_412, total=1_204_000)
    state = fold_all(RunState(), numbered([PhaseChanged(phase="preparing"), many]))
    stages = RunStages()
    stages.show_stages(run_stages(state, state.beginnings[-1].t + 3000))
    show(stages)
    assert stages.minimumSizeHint().width() <= CARD_PX


def test_the_buttons_of_a_banner_go_below_each_other_where_they_find_no_room(show):
    actions = [("Use the one that comes with Burnish", lambda: None), ("Leave it as it is for now", lambda: None)]
    banner = show(Banner("error", "There is no config.json.", "Choose a folder.", actions), 380)
    buttons = banner.findChildren(QPushButton)
    assert banner.minimumSizeHint().width() <= 380
    assert all(button.mapTo(banner, button.rect().bottomRight()).x() <= banner.width() for button in buttons)
    wide = show(Banner("error", "There is no config.json.", "Choose a folder.", actions), 1000)
    assert len({button.mapTo(wide, QPoint(0, 0)).y() for button in wide.findChildren(QPushButton)}) == 1


@pytest.mark.full
def test_the_live_view_of_the_hardware_needs_no_more_width_than_it_gets(show):
    view = LiveView()
    view.show_history(history_of(recorded()), [], lambda _alarm: True)
    show(view, 340)
    assert view.minimumSizeHint().width() <= 340


def test_the_note_of_a_foot_goes_above_its_buttons(qtbot, show, client, bench):
    page = Page(client, bench)
    for number in range(3):
        page.add_secondary(f"Another action {number}", lambda: None)
    page.set_primary("The main action", lambda: None)
    page.set_foot_note("It fits. 4.0 GiB of 21.9 GiB free, about 31 s.")
    show(page)
    note = page.foot.note
    assert note.width() > CARD_PX / 2
    assert note.geometry().bottom() < page.primary.y()
    page.resize(1200, 400)
    qtbot.waitUntil(lambda: note.geometry().bottom() > page.primary.y())


@pytest.mark.full
def test_charts_gpus_and_what_fits_find_room(show):
    machine = machines.machine(machines.gpu())
    card = CapacityCard()
    card.show_answer(machines.what_fits())
    for widget in (RunCharts(), GpuCard(machine.gpus[0], machine), card):
        show(widget)
        assert widget.minimumSizeHint().width() <= CARD_PX, widget
    assert not any(card.table.isColumnHidden(column) for column in (0, 2))
    card.resize(1100, 600)
    assert not any(card.table.isColumnHidden(column) for column in range(5))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("facts", [machines.pair(), machines.eight()], ids=["two", "eight"])
def test_the_graph_of_several_gpus_finds_room(show, facts):
    card = show(InterconnectCard(facts, machines.checkup(facts).settings))
    assert card.minimumSizeHint().width() <= CARD_PX
    places = [card.graph._place(number).toRect() for number in range(len(facts.gpus))]
    assert all(card.graph.rect().contains(place) for place in places)
    assert not any(one.intersects(other) for one, other in pairwise(places))


def test_what_a_run_took_finds_room(show):
    card = RunHardware()
    card.set_price(0.3)
    card.show_run(history_of(recorded()), EvaluationHistory())
    show(card)
    assert card.minimumSizeHint().width() <= CARD_PX


def test_many_wide_columns_find_room(show):
    header = RoleHeader(None)
    header.show_columns([name * 12 for name in ("question", "answer")])
    show(header)
    assert header.minimumSizeHint().width() <= CARD_PX


@pytest.mark.full
def test_the_form_s_labels_go_above_where_there_is_no_room_beside(qtbot, show):
    form = RecipeForm()
    form.row("memory.layers")
    recipe = facts.suggestion()
    form.show_suggestion(form.recipe(), {choice.key: choice.reason for choice in recipe.choices})
    show(form)
    assert form.minimumSizeHint().width() <= CARD_PX
    row = form.row("train.epochs")
    form.resize(320, 800)
    qtbot.waitUntil(lambda: row.editor.mapTo(row, QPoint(0, 0)).x() == 0)  # its label stands above it
    assert row.beside.geometry().right() < 320
    form.resize(1000, 800)
    qtbot.waitUntil(lambda: row.editor.mapTo(row, QPoint(0, 0)).x() > 0)


def fill_hardware(qtbot, answers, window):
    answers.result("machine", machine=machines.machine(machines.gpu()))
    answers.result("doctor", checkup=machines.checkup(machines.machine(machines.gpu())))
    answers.result("what_fits", what_fits=machines.what_fits())
    window.go_to("hardware")
    qtbot.waitUntil(lambda: window.page("hardware").fits.models.rowCount() > 0)


def fill_model(qtbot, answers, window):
    answers.result("model", model=facts.model_facts(folder=f"/home/ada/{'models/' * 20}", warnings=[LONG]))
    answers.result("models", models=facts.catalog())
    window.go_to("model")
    page = window.page("model")
    qtbot.waitUntil(lambda: window.bench.model is not None and page.models.models.rowCount() > 0)
    page.banner("error", LONG, LONG)


def fill_data(qtbot, answers, window):
    answers.result("inspect", dataset=data_facts.dataset(warnings=[LONG]))
    window.bench.set_data_files([f"/home/ada/{'data/' * 20}support.jsonl"])
    window.bench.set_validation_files([f"/home/ada/{'data/' * 20}{'held_out_' * 10}.jsonl"])
    window.go_to("data")
    qtbot.waitUntil(lambda: window.bench.dataset is not None)


def fill_recipe(qtbot, answers, window):
    answers.result("estimate", plan=facts.plan(fits=False, problems=[LONG]))
    window.go_to("recipe")
    qtbot.waitUntil(lambda: window.page("recipe").fit.verdict.text() == "It does not fit.")


def fill_train(qtbot, answers, window):
    run, lines = TRAIN_SCENES["failed"]
    window.go_to("train")
    page = window.page("train")
    window.bench.set_run(write_run(user_data_dir() / "run", run, lines).folder)
    page.runs_changed([run.model_copy(update={"folder": window.bench.run})])
    qtbot.waitUntil(lambda: page.events.seq == len(lines) - 1 and page.charts.isVisible())


def fill_try_out(qtbot, answers, window):
    """Show a run that continued from an adapter, of which three models answer."""
    run = user_data_dir() / "runs" / "further"
    for adapter in ("adapter", "start"):
        (run / adapter).mkdir(parents=True)
        (run / adapter / "adapter_model.safetensors").write_bytes(b"x")
    window.bench.set_run(str(run))
    window.go_to("try_out")
    assert window.page("try_out").middle.isVisible()
    window.page("try_out").sampling.fold.click()


def fill_export(qtbot, answers, window):
    folder = user_data_dir() / "run"
    (folder / "adapter").mkdir(parents=True)
    (folder / "adapter" / "adapter_model.safetensors").write_bytes(b"")
    (folder / "export").mkdir()
    (folder / "export" / f"support-{'desk-' * 20}Q8_0.gguf").write_bytes(b"")
    window.bench.set_run(str(folder))
    job = export_facts.job("failed", message="One file was refused.", report=export_facts.report(refused=True))
    answers.result("runs", runs=[summary("finished", folder=str(folder)).model_copy(update={"export": job})])
    window.go_to("export")
    qtbot.waitUntil(window.page("export").fidelity.isVisible)


def fill_runs(qtbot, answers, window):
    answers.result("runs", runs=RUNS)
    window.go_to("runs")
    qtbot.waitUntil(window.page("runs").table.isVisible)


def fill_compare(qtbot, answers, window):
    runs = many_runs(user_data_dir() / "runs")
    answers.result("runs", runs=runs)
    answers.result("compare", comparison=compared(runs[2:4]))
    window.bench.set_compared([run.folder for run in runs[2:4]])
    window.go_to("compare")
    qtbot.waitUntil(window.page("compare").view.differences.isVisible)


def fill_sweep(qtbot, answers, window):
    sweep, runs = a_sweep(user_data_dir() / "runs")
    answers.result("runs", runs=runs)
    answers.result("sweeps", sweeps=[sweep])
    answers.result("plan_sweep", sweep_plan=sweep_plan(unfit=1))
    window.bench.set_data_files(["/data/a.jsonl"])
    window.go_to("sweep")
    page = window.page("sweep")
    qtbot.waitUntil(lambda: page.results is not None and page.results.isVisible() and page.plan.plan is not None)


def fill_duel(qtbot, answers, window):
    answers.result("plan_duel", duels=[a_duel("planned", problems=[LONG])])
    window.bench.set_data_files(["/data/a.jsonl"])
    window.go_to("duel")
    qtbot.waitUntil(lambda: window.page("duel").planning.card.plan is not None)


def test_the_verdict_of_a_duel_finds_room(show):
    card = DuelVerdictCard()
    card.show_duel(a_duel("finished", folder="/d", verdicts=verdicts(), headline=LONG, caution=LONG))
    show(card)
    assert card.minimumSizeHint().width() <= CARD_PX


def fill_settings(qtbot, answers, window):
    window.go_to("settings")


def fill_start(qtbot, answers, window):
    answers.result("runs", runs=RUNS)
    window.go_to("start")
    qtbot.waitUntil(window.page("start").recent.isVisible)


FILL = {
    "start": fill_start,
    "hardware": fill_hardware,
    "model": fill_model,
    "data": fill_data,
    "recipe": fill_recipe,
    "train": fill_train,
    "try_out": fill_try_out,
    "export": fill_export,
    "runs": fill_runs,
    "compare": fill_compare,
    "sweep": fill_sweep,
    "duel": fill_duel,
    "settings": fill_settings,
}


@pytest.mark.full
@pytest.mark.parametrize("entry", PAGES, ids=lambda entry: entry.key)
def test_no_page_of_a_narrow_window_scrolls_sideways(qtbot, answers, window, entry):
    window.resize(744, 900)
    FILL[entry.key](qtbot, answers, window)
    settle()  # what was shown last is laid out
    page = window.page(entry.key)
    assert window.width() == 744
    assert page.findChild(QScrollArea).horizontalScrollBar().maximum() == 0
    for table in page.findChildren(QTableView):
        assert table.horizontalHeader().length() <= table.viewport().width()


def test_the_details_of_a_model_go_below_its_list(qapp, show, client, bench):
    view = show(ModelList(client, bench, DownloadsFollower(client)))
    view._ranked = facts.catalog()
    view._merge()
    view.resize(CARD_PX, 800)
    qapp.processEvents()
    assert view.details.mapTo(view, QPoint(0, 0)).y() > view.table.geometry().bottom()
    assert view.table.shown_columns() == [0, 2, 3, 4]
    view.resize(1000, 500)
    qapp.processEvents()
    assert view.details.mapTo(view, QPoint(0, 0)).y() < view.table.geometry().bottom()
    assert view.table.shown_columns() == list(range(5))
    assert view.table.columnWidth(0) > view.details.width() / 3


def test_a_banner_s_actions_go_below_its_words(show):
    banner = show(Banner("error", LONG, LONG, [("Start anyway", lambda: None)]))
    label, button = banner.findChildren(QLabel)[1], banner.findChild(QPushButton)
    assert button.mapTo(banner, QPoint(0, 0)).y() > label.mapTo(banner, QPoint(0, label.height())).y()
    banner.resize(1000, 200)
    assert button.mapTo(banner, QPoint(0, 0)).x() > label.mapTo(banner, QPoint(label.width(), 0)).x()
