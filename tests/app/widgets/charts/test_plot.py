"""The labels of a plot's horizontal axis."""

from itertools import pairwise

import pytest
from app.widgets.charts.test_chart import Charts
from PySide6.QtGui import QImage, QPainter

from burnish_app.look.tokens import DARK, LIGHT
from burnish_app.widgets.charts.lines import ChartLine
from burnish_engine.contract.recipe.recipe_reinforce import MOST_REWARDS


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("width_px", [300, 420, 700, 1400])
@pytest.mark.parametrize("steps", [40, 600, 20_000])
def test_the_last_step_has_its_label_and_no_label_covers_another(qtbot, width_px, steps):
    charts = Charts(qtbot, steps)
    charts.window.resize(width_px, 900)
    plot = charts.loss.drawing.plot

    def labels():
        picture = QImage(10, 10, QImage.Format.Format_RGB32)
        painter = QPainter(picture)
        drawn = plot.bottom.generateDrawSpecs(painter)[2]
        painter.end()
        return sorted((place.left(), place.right(), text) for place, _, text in drawn)

    def apart():
        assert abs(plot.view.width() - width_px) < 100
        assert all(before[1] <= after[0] for before, after in pairwise(labels()))

    qtbot.waitUntil(apart)
    assert labels()[0][0] >= 0
    assert labels()[-1][1] <= plot.bottom.width()
    assert labels()[-1][2].replace(",", "") == str(steps)


@pytest.mark.parametrize("colors", [LIGHT, DARK], ids=["light", "dark"])
def test_as_many_rewards_as_a_recipe_has_are_told_apart(colors):
    lines = [ChartLine("", place) for place in range(MOST_REWARDS)]
    assert len({(line.color(colors).name(), line.dash(colors)) for line in lines}) == MOST_REWARDS
