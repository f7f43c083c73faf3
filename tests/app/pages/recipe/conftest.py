"""The page Recipe with a suggestion and its plan."""

import pytest
from app.facts import data_facts
from app.facts import page_facts as facts


@pytest.fixture
def page(qtbot, answers, window, bench):
    answers.result("suggest", suggestion=facts.suggestion())
    answers.result("estimate", plan=facts.plan())
    answers.result("inspect", dataset=data_facts.dataset())
    bench.set_data_files(["/data/support.jsonl"])
    window.go_to("recipe")
    page = window.page("recipe")
    qtbot.waitUntil(lambda: bench.suggestion is not None)
    qtbot.waitUntil(lambda: bench.plan is not None)
    return page
