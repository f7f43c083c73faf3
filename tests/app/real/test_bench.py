"""The bench and the export by picture over the real engine: a blind vote, a type chosen by its point, Ollama."""

import os
from pathlib import Path

import pytest
from app.real.studio import tiny_recipe
from PySide6.QtCore import Qt

from burnish_engine.contract.facts.votes import read_votes
from burnish_engine.contract.paths import RunPaths

from support.models import fake_ollama

pytestmark = [pytest.mark.gui, pytest.mark.slow, pytest.mark.measured]
STEPS = 60


@pytest.fixture
def ollama(tmp_path, monkeypatch):
    """A stand-in for Ollama on this machine; the folder of what it took."""
    fake_ollama.install(tmp_path / "bin", tmp_path / "kept")
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]]))
    return tmp_path / "kept"


@pytest.mark.full
def test_from_a_finished_run_to_a_vote_and_to_ollama(qtbot, ollama, studio, tiny):
    window = studio.open()
    folder = studio.start(window, tiny_recipe(tiny, "desk", STEPS, checkpoint_every=30))
    window.bench.set_run(folder)
    train = studio.visit(window, "train")
    studio.wait(window.sidebar.activity.isVisible)
    studio.wait(lambda: train.figures.headline.text() == "Finished")
    paths = RunPaths(Path(folder))
    vote_blindly(studio, window, paths)
    export_a_point(qtbot, studio, window)
    give_to_ollama(studio, window, ollama)


def vote_blindly(studio, window, paths):
    page = studio.visit(window, "try_out")
    studio.wait(lambda: page.questions.has_rows_of(window.bench.run))
    studio.press(page.questions.source.button("rows"))
    assert page.grid.wanted.text
    page.sampling.longest.setValue(12)
    studio.press(page.blind)
    studio.press(page.primary)
    studio.wait(page.vote.isVisible)
    assert page.left.who.isHidden()
    studio.press(page.vote.buttons[0])
    studio.wait(lambda: "so far" in page.vote.text)
    (vote,) = read_votes(paths)
    assert vote.best == page.left.answerer.key
    assert set(vote.shown) == {"base", "tuned"}
    assert all("first" in pane.state.text() for pane in page.grid.shown)
    runs = studio.visit(window, "runs")
    runs.table.selectRow(runs.model.row_of(window.bench.run))
    studio.wait(lambda: vote.best in runs.details.votes.text)


def export_a_point(qtbot, studio, window):
    page = studio.visit(window, "export")
    chart = page.sizes.chart
    studio.wait(lambda: chart.points)
    sizes = {point.quant: point for point in chart.points}
    assert not any(point.measured for point in chart.points)
    for quant in page.choices.types.chosen():
        if quant != "Q8_0":
            qtbot.mouseClick(chart, Qt.MouseButton.LeftButton, pos=chart.place_of(quant).toPoint())
    if "Q8_0" not in page.choices.types.chosen():
        qtbot.mouseClick(chart, Qt.MouseButton.LeftButton, pos=chart.place_of("Q8_0").toPoint())
    assert page.choices.types.chosen() == ["Q8_0"]
    studio.press(page.primary)
    studio.wait(lambda: any(one.page == "export" for one in window.activity.board.activities))
    studio.wait(lambda: page.status in ("done", "attention"))
    assert page.status == "done", page._job.message
    (made,) = [point for point in chart.points if point.measured]
    assert made.bytes == sizes["Q8_0"].bytes, "the size was exact before"
    assert made.tokens_per_s > 0


def give_to_ollama(studio, window, kept):
    page = window.page("export")
    buttons = [one for one in page.files.findChildren(type(page.primary)) if one.text() == "Add to Ollama"]
    studio.press(buttons[0])
    studio.wait(lambda: any(kept.iterdir()))
    assert [one.name for one in kept.iterdir()] == ["desk+q8_0"]
    studio.wait(lambda: not window.activity.board.activities)
