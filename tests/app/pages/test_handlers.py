"""No handler of the pages holds up the window: filling each with large but real answers stays within the budget."""

from importlib import import_module

import pytest
from app.facts import data_facts
from app.facts import machine_facts as machines
from app.facts import page_facts as facts
from app.measures.handler_budget import assert_within_budget

from burnish_app.page_list import PAGES
from burnish_app.state.preferences import Preferences
from burnish_app.state.workbench import Workbench
from burnish_app.window import Window

pytestmark = [pytest.mark.gui, pytest.mark.measured]

VISITED = ("hardware", "model", "data", "recipe", "try_out", "export")


@pytest.fixture
def large(answers):
    """The engine's answers, large ones."""
    answers.result("machine", machine=machines.pair())
    answers.result("doctor", checkup=machines.checkup(machines.pair()))
    answers.result("what_fits", what_fits=machines.what_fits())
    answers.result("model", model=facts.model_facts())
    answers.result("models", models=facts.catalog() * 6)
    long_row = [("word " * 4000, False), ("learned " * 4000, True)]
    answers.result("inspect", dataset=data_facts.dataset(example=long_row))
    answers.result("suggest", suggestion=facts.suggestion())
    answers.result("estimate", plan=facts.plan())
    answers.result("runs", runs=[])


@pytest.mark.full
def test_pages_stay_within_the_budget(qtbot, qapp, large, make_client, theme, burnish_home):
    for entry in PAGES:  # measured by the start-up and end-to-end tests
        import_module(entry.module)

    def visit_all(_attempt):
        bench = Workbench()
        window = Window(make_client(), bench, Preferences(), theme)
        qtbot.addWidget(window)
        window.show()
        window.begin()
        bench.set_data_files(["/data/a.jsonl"])
        for key in VISITED:
            window.go_to(key)
            qtbot.wait(400)
        form = window.page("recipe").form
        window.go_to("recipe")
        form.all_settings.open()
        for fold in form.folds.values():
            fold.button.click()
            qtbot.wait(60)
        form.search.setText("weight")
        qtbot.wait(200)
        form.search.clear()
        window.page("recipe").settings.view.button("toml").click()
        window.page("recipe").toml.text.appendPlainText("# a comment")
        qtbot.wait(400)
        assert bench.dataset is not None
        window.close()

    assert_within_budget(qapp, visit_all)
