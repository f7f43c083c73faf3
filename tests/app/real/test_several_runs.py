"""Sweep, comparison, trash and duel over the real engine, by clicks."""

import json
from pathlib import Path

import pytest
from app.measures.handler_budget import HandlerBudget
from app.real.studio import Studio, assert_light, end_runs, kill, make_tiny, tiny_recipe
from PySide6.QtWidgets import QPushButton

from burnish_app.wording.recipe_text import setting_term
from burnish_engine.contract.recipe.recipe_evaluation import EvaluationSection
from burnish_engine.duel.report.overview import list_duels

pytestmark = [pytest.mark.gui, pytest.mark.slow, pytest.mark.measured]
STEPS, ROWS = 4, 200


@pytest.fixture(scope="module")
def tiny(tmp_path_factory, shared_folder):
    """Folder of a tiny model and a small data file."""
    return make_tiny(tmp_path_factory.mktemp("tiny"), shared_folder, ROWS)


@pytest.fixture
def studio(qtbot, qapp, theme, collector, burnish_home):
    """The real studio, measured: no handler holds up the window, and nothing heavy is loaded."""
    budget = HandlerBudget(qapp)
    collector.freeze_and_start()
    made = Studio(qtbot, theme, collector, burnish_home)
    yield made
    for duel in list_duels():
        end_duel(duel)
    made.close()
    share, slowest = budget.used()
    assert_light()
    assert share < 2, slowest


def end_duel(duel):
    """Kill the processes of a duel."""
    folder = Path(duel.folder)
    kill(json.loads((folder / "owner.json").read_text(encoding="utf-8"))["pid"])
    end_runs(folder)


def draft(tiny):
    recipe = tiny_recipe(tiny, "tiny", STEPS)
    return recipe.model_copy(
        update={"evaluation": EvaluationSection(every=2, prompts=["hello?"], sample_tokens=3, sample_share=0)}
    )


def drawn_to_the_end(curves):
    """Return the number of runs whose held-out loss is drawn up to the last step."""
    return sum(curve.steps[-1:].tolist() == [STEPS] for curve in curves.charts.curves.held_out)


def press_in_banner(studio, page, text):
    studio.wait(lambda: page.shown_banner is not None)
    studio.press(next(one for one in page.shown_banner.findChildren(QPushButton) if one.text() == text))


@pytest.mark.full
def test_a_sweep_of_two_runs_is_queued_compared_deleted_and_restored(studio, tiny):
    window = studio.open()
    window.bench.set_recipe(draft(tiny))
    page = studio.visit(window, "sweep")
    row = page.settings.rows[0]
    row.name.setCurrentIndex(row.name.findData("adapter.rank"))
    studio.type_into(row.values, "2, 4")
    studio.wait(lambda: page.plan.plan is not None and len(page.plan.plan.runs) == 2)
    studio.press(page.primary)
    studio.wait(lambda: page.results is not None and len(page.results.rows) == 2)
    studio.wait(lambda: all(one.run.standing == "finished" for one in page.results.rows))
    assert sorted(one.values for one in page.results.rows) == [("2",), ("4",)]
    assert sorted(one.delta > 0 for one in page.results.rows) == [False, True]
    studio.wait(lambda: [len(curve) for curve in page.view.charts.curves.held_out] == [3, 3])
    studio.wait(page.view.differences.isVisible)
    model = page.view.differences.model
    assert setting_term("adapter.rank") in [model.index(place, 0).data() for place in range(model.rowCount())]
    folders = {one.run.folder for one in page.results.rows}

    runs = studio.visit(window, "runs")
    studio.wait(lambda: runs.order.rowCount() == 2)
    runs.table.selectAll()
    studio.press(runs.open)
    compare = window.page("compare")
    studio.wait(lambda: window.shown_key == "compare" and compare.open.isVisible())
    assert set(compare.view.folders) == folders
    assert compare.view.replies.isVisible()

    studio.visit(window, "runs")
    runs._select([next(iter(folders))])
    studio.press(runs.delete)
    studio.wait(lambda: runs.order.rowCount() == 1)
    press_in_banner(studio, runs, "Undo")
    studio.wait(lambda: runs.order.rowCount() == 2)


@pytest.mark.parametrize("to_the_end", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_duel_is_planned_stopped_resumed_and_judged_in_the_window(studio, tiny, to_the_end):
    window = studio.open()
    window.bench.set_recipe(draft(tiny))
    page = studio.visit(window, "duel")
    row = page.planning.second.settings.rows[0]
    row.name.setCurrentIndex(row.name.findData("adapter.rank"))
    studio.type_into(row.values, "8")
    studio.press(page.planning.rates.button("own"))
    studio.wait(lambda: page.planning.card.plan is not None and page.planning.card.plan.runs == (6, 6))
    assert [one.key for one in page.planning.card.plan.differences if one.kind == "compared"] == ["adapter.rank"]
    studio.press(page.primary)
    studio.wait(lambda: page.duel is not None and (page.duel.made or (page.duel.current and page.duel.current.step)))
    studio.press(page.stop)
    studio.wait(lambda: page.duel.status == "stopped")
    made = len(page.duel.made)
    assert made < 6
    studio.press(page.primary)
    studio.wait(lambda: len(page.duel.made) > made)
    studio.wait(lambda: drawn_to_the_end(page.curves) > made)
    if to_the_end:
        studio.wait(lambda: page.duel.status == "finished")
        assert page.verdict.isVisible()
        assert page.verdict.headline.text()
        loss = page.duel.verdicts[0]
        assert loss.low <= loss.difference <= loss.high
        assert len(loss.pairs) == 3
        studio.wait(lambda: drawn_to_the_end(page.curves) == 6)
