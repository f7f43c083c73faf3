"""Whatever comes late, is refused or is taken back: nothing starts but what is shown, and only by a press.

Pages alone and whole windows, an engine that answers when it likes, a person who clicks and types at random.
"""

import itertools
import random

import pytest
from app.facts import data_facts, export_facts, machine_facts
from app.facts import page_facts as facts
from app.facts.run_summaries import summary
from app.page_scenes.several_scenes import a_duel
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication

from burnish_app.pages.data import DataPage
from burnish_app.pages.duel import DuelPage
from burnish_app.pages.export import ExportPage
from burnish_app.pages.model import ModelPage
from burnish_app.pages.recipe import RecipePage
from burnish_app.pages.runs import RunsPage
from burnish_app.pages.sweep import SweepPage
from burnish_app.pages.train import TrainPage
from burnish_app.pages.try_out import TryOutPage
from burnish_app.state.run_folder import run_name
from burnish_engine.contract.facts.sweeps import SweepPlan, SweepRunPlan
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_export import TargetSection
from burnish_engine.contract.recipe.recipe_file import parse_recipe
from burnish_engine.contract.recipe.sweep import SweepSetting

pytestmark = pytest.mark.gui

STARTS = ("start", "start_sweep", "start_duel", "resume_duel", "stop_duel", "export", "resume", "command", "delete")
"""Methods that start, stop or delete something."""
MOVES = 70
FILES = ("/data/support.jsonl", "/data/other.jsonl")
UNFIT = 10


def a_recipe(draw):
    """A recipe as a suggestion or a copy of a run would bring it."""
    return Recipe.model_validate(
        {
            "train": {"epochs": draw.choice([1.0, 2.0, 3.0]), "learning_rate": draw.choice([1e-4, 5e-4, 1e-3])},
            "adapter": {"rank": draw.choice([8, 16, 32, 64])},
        }
    )


class Rush:
    """An engine that answers in any order, and a person who does anything in between.

    Args:
        page: page that is shown.
        held: client of the page.
        bench: workbench.
        runs: folders of runs that can be chosen.
        seed: seed of all choices.
    """

    def __init__(self, page, held, bench, runs, seed):
        self.page, self.held, self.bench, self.runs = page, held, bench, runs
        self.draw = random.Random(seed)
        self.pressed = 0

    def answer(self):
        """Answer, refuse or give up one open request, whichever."""
        opened = [request for request in self.held.asked if self.held.is_open(request["id"])]
        if not opened:
            return
        request = self.draw.choice(opened)
        method, name = request["method"], request["id"]
        chance = self.draw.random() if method != "chat" else 0.0
        if chance < 0.15:
            self.held.fail(method, "It did not work.", exit_code=self.draw.choice([1, UNFIT]), to=name)
        elif chance < 0.25 or method == "cancel":
            self.held.give_up(method, to=name)
        else:
            self.held.answer(method, to=name, **self._result(request))

    def _result(self, request):
        draw = self.draw
        match request["method"]:
            case "suggest":
                return {"suggestion": facts.suggestion(a_recipe(draw))}
            case "estimate":
                return {"plan": facts.plan(fits=draw.random() < 0.7)}
            case "machine":
                return {"machine": machine_facts.machine()}
            case "model":
                return {"model": facts.model_facts(path=request["path"])}
            case "inspect":
                return {"dataset": data_facts.dataset()}
            case "forecast":
                return {"forecast": export_facts.forecast()}
            case "plan_sweep":
                return {"sweep_plan": _planned(request, fits=draw.random() < 0.8)}
            case "plan_duel":
                return {"duels": [a_duel("planned").model_copy(update={"message": str(_duel_of(request))})]}
            case "duels":
                kinds = draw.sample(["running", "stopped", "finished"], draw.randint(0, 3))
                return {"duels": [a_duel(kind, folder=f"/duels/{kind}") for kind in kinds]}
            case "start" | "start_duel":
                return {"run": draw.choice(self.runs)}
            case _:
                return {}

    def move(self):
        """Do one thing, and let what follows happen."""
        for _ in range(self.draw.randint(0, 5)):
            self.draw.choice([self.answer] * 4 + [self.wait, self.wait, self.choose, self.edit, self.look_away])()
        asked = len(self.held.asked)
        if self.draw.random() < 0.7:  # else the press comes before what follows from the last answer
            QApplication.processEvents()
        assert not self._begun(asked), "only a press starts something"
        self.press()

    def wait(self):
        """Let the time pass that edits have to rest."""
        for timer in self.page.findChildren(QTimer):
            if timer.isActive() and timer.isSingleShot():
                timer.stop()
                timer.timeout.emit()

    def choose(self):
        """Choose something else on another page, or let the list of runs come."""
        bench, draw = self.bench, self.draw
        draw.choice(
            [
                lambda: bench.set_data_files(draw.sample(FILES, draw.randint(0, 2))),
                lambda: bench.set_target(TargetSection(kind=draw.choice(["laptop", "phone", "server"]))),
                lambda: bench.set_model_path(draw.choice(["embedded", "Qwen/Qwen3-0.6B"])),
                lambda: bench.set_run(draw.choice(self.runs)),
                lambda: bench.draft_copy(a_recipe(draw), "first"),
                lambda: bench.set_choosing(is_choosing=draw.random() < 0.3),
                lambda: bench.set_duelists(self.runs[:2]),
                lambda: self.page.runs_changed(self.list_runs()),
            ]
        )()

    def list_runs(self):
        kinds = ("running", "paused", "stopped", "failed", "finished", "queued", "interrupted")
        found = [summary(self.draw.choice(kinds), folder=folder, name=run_name(folder)) for folder in self.runs]
        if self.draw.random() < 0.3:
            found[0] = found[0].model_copy(update={"export": export_facts.job("running")})
        return self.draw.sample(found, self.draw.randint(0, len(found)))

    def edit(self):
        """Type or choose something on the page, where it has a place for that."""
        page, draw = self.page, self.draw
        if isinstance(page, RecipePage):
            editor = page.form.row("adapter.rank").editor
            editor.setText(draw.choice(["8", "24", "999999", "", "x"]))
        elif isinstance(page, SweepPage):
            page.settings.rows[0].values.setText(draw.choice(["1e-4, 2e-4", "0.001", "quick", "5e-4"]))
        elif isinstance(page, DuelPage):
            page.planning.seeds.setValue(draw.choice([3, 4, 5]))
            if page.former.isVisible() and draw.random() < 0.5:
                page.show_duel(draw.choice(["", "/duels/stopped", "/duels/finished"]))
        elif isinstance(page, ExportPage):
            page.choices.types.choose(draw.sample(["Q8_0", "Q4_0", "F16"], draw.randint(0, 2)))
        elif isinstance(page, RunsPage):
            page._select([draw.choice(self.runs)])
        elif isinstance(page, TryOutPage):
            page.prompt.setPlainText(draw.choice(["", "Why?"]))

    def look_away(self):
        """Go to another page and come back."""
        self.page.hide()
        self.page.leave()
        self.page.show()
        self.page.shown()

    def press(self):
        """Press one of the buttons that can be pressed, and compare what begins with what was shown."""
        page = self.page
        buttons = [page.primary, *page.foot.findChildren(type(page.primary))] if page.primary is not None else []
        if page.shown_banner is not None:
            buttons += page.shown_banner.findChildren(type(page.primary))
        can = [button for button in buttons if button.isVisible() and button.isEnabled()]
        safe = [button for button in can if not button.text().startswith(("Import", "Export ...", "Delete", "Show"))]
        if not safe:
            return
        before, asked = self.shown(), len(self.held.asked)
        self.draw.choice(safe).click()
        for request in self._begun(asked):
            self.pressed += 1
            assert self.named(request) == before[request["method"]]

    def _begun(self, asked):
        return [request for request in self.held.asked[asked:] if request["method"] in STARTS]

    def shown(self):
        """Texts of the page on what a press would start, by method."""
        page = self.page
        if isinstance(page, RecipePage):
            return {"start": None if page.settings.busy.isVisible() else page.settings.recipe()}
        if isinstance(page, SweepPage):
            plan = page.plan.plan  # which says what it was made of
            is_shown = plan is not None and not page.plan.busy.isVisible()
            return {"start_sweep": (plan.settings, plan.device) if is_shown else None}
        if isinstance(page, DuelPage):
            plan, duel = page.planning.card.plan, page.duel
            folder = duel.folder if duel is not None else None
            is_shown = plan is not None and page.planning.isVisible() and not page.planning.card.busy.isVisible()
            return {"start_duel": plan.message if is_shown else None, "resume_duel": folder, "stop_duel": folder}
        name = page.name_label.text()
        if isinstance(page, ExportPage):
            return {"export": (name, tuple(page.choices.types.chosen()))}
        if isinstance(page, RunsPage):
            name = run_name(page.selected.folder) if page.selected is not None else None
        return {"resume": name, "command": name}

    def named(self, request):
        """The same of a request."""
        match request["method"]:
            case "start":
                return parse_recipe(request["recipe"])
            case "start_sweep":
                return _settings(request), request["recipe"]
            case "start_duel":
                return str(_duel_of(request))
            case "resume_duel" | "stop_duel":
                return request["folder"]
            case "export":
                return run_name(request["run"]), tuple(request["quants"])
            case _:
                return run_name(request["run"])


def _settings(request):
    return [SweepSetting.model_validate(one) for one in request["settings"]]


def _planned(request, *, fits):
    settings = _settings(request)
    runs = [
        SweepRunPlan(
            name=str(values), values=list(values), seconds=60.0, memory_bytes=1, disk_bytes=1, fits=fits,
            problem="" if fits else "It does not fit.",
        )
        for values in itertools.product(*(one.values for one in settings))
    ]  # fmt: skip
    return SweepPlan(settings=settings, runs=runs, device=request["recipe"], disk_free_bytes=1)


def _duel_of(request):
    return request["seeds"], [(side["name"], side["recipe"]) for side in request["sides"]]


@pytest.fixture
def folders(tmp_path, run, other_run):
    return [str(run), str(other_run)]


STARTING = (RecipePage, SweepPage, DuelPage, ExportPage, TrainPage, RunsPage)
PAGES = (*STARTING, ModelPage, DataPage, TryOutPage)
SEEDS = 6


@pytest.fixture
def rush(qtbot, held, bench, folders):
    """Shows a page, and returns how many of all presses began something."""
    bench.set_data_files([FILES[0]])

    def do(kind, seed):
        page = kind(held, bench)
        qtbot.addWidget(page)
        page.resize(1000, 800)
        page.show()
        page.shown()
        made = Rush(page, held, bench, folders, seed)
        for _ in range(MOVES):
            made.move()
        page.closing()
        return made.pressed

    return do


@pytest.mark.quick_cases(len(PAGES))
@pytest.mark.parametrize(
    ("kind", "seed"), [pytest.param(kind, seed, id=f"{kind.key}-{seed}") for kind in PAGES for seed in range(SEEDS)]
)
def test_nothing_starts_but_what_is_shown(rush, kind, seed):
    rush(kind, seed)


@pytest.mark.full
@pytest.mark.parametrize("kind", STARTING, ids=lambda kind: kind.key)
def test_the_presses_above_do_start_something(rush, kind):
    """Otherwise that nothing wrong starts would say nothing."""
    assert any(rush(kind, seed) for seed in range(SEEDS))


@pytest.mark.full
@pytest.mark.parametrize("seed", range(3))
def test_in_a_window_nothing_starts_but_what_is_shown(held_window, held, bench, folders, seed):
    held_window.runs_poller.stop()
    bench.set_data_files([FILES[0]])
    keys = [kind.key for kind in PAGES]

    class WindowRush(Rush):
        def look_away(self):
            """Go to another page, which the next press is on."""
            held_window.go_to(self.draw.choice(keys))

        def move(self):
            self.page = held_window.page(held_window.shown_key)
            super().move()

        def press(self):
            """Press where the person is now: what was pressed before may have led on."""
            self.page = held_window.page(held_window.shown_key)
            super().press()

    held_window.go_to("recipe")
    made = WindowRush(held_window.page("recipe"), held, bench, folders, seed)
    for _ in range(3 * MOVES):
        made.move()
    assert made.pressed
