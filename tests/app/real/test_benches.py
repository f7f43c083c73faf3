"""A benchmark that a terminal started, in the list of the real studio: from any page, with time left, until it ends."""

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.gui, pytest.mark.slow, pytest.mark.measured]
STEP = "bench step --shape smollm2-135m --device cpu --layers 1 --tokens 64 --precision fp32 --steps 6000"


@pytest.fixture
def terminal():
    """Starts benchmarks as a terminal does."""
    started = []

    def start():
        command = [sys.executable, "-P", "-m", "burnish_engine.cli.main", *STEP.split()]
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.full
def test_a_benchmark_is_seen_from_any_page_and_stopped_or_gone_when_it_dies(studio, terminal):
    window = studio.open()
    button, board = window.sidebar.activity, window.activity.board
    stopped = terminal()
    studio.visit(window, "runs")  # it looks often
    studio.wait(lambda: any(one.left is not None for one in board.activities))
    (bench,) = board.activities
    assert "smollm2-135m" in bench.name
    assert 0 < bench.share < 1
    studio.visit(window, "settings")
    studio.press(button)
    (row,) = window.activity.panel.rows.values()
    assert bench.progress in row.text.text()
    studio.press(row.stop_button)
    studio.wait(lambda: stopped.poll() is not None)
    studio.visit(window, "runs")
    studio.wait(lambda: not button.isVisible())
    killed = terminal()
    studio.wait(button.isVisible)
    killed.kill()
    studio.wait(lambda: not button.isVisible())
