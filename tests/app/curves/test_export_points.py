"""Files of an export as points: predicted before they are made, measured after."""

import pytest
from app.facts import export_facts as facts

from burnish_app.curves.export_points import axis_ranges, export_points, limit_text, point_text, shows_gain
from burnish_engine.contract.recipe.recipe_export import TargetSection

LAPTOP = TargetSection()


def by_type(points):
    return {point.quant: point for point in points}


def test_a_measured_file_takes_the_place_of_its_prediction():
    points = by_type(export_points(facts.forecast(), facts.report()))
    assert {quant for quant, point in points.items() if point.measured} == {"Q8_0", "Q4_K_M"}
    assert points["Q4_K_M"].gain_kept == 0.963
    assert not points["Q6_K"].measured


def test_points_are_in_the_order_of_their_sizes_without_the_twin_of_f16():
    points = export_points(facts.forecast(), None)
    assert [point.bytes for point in points] == sorted(point.bytes for point in points)
    assert "BF16" not in by_type(points)


def test_a_refused_file_is_told_apart():
    refused = by_type(export_points(None, facts.report(refused=True)))["IQ4_XS"]
    assert not refused.passed
    assert "refused" in point_text(refused)


def test_what_is_predicted_says_so():
    points = by_type(export_points(facts.forecast(), facts.report()))
    assert "predicted" in point_text(points["Q6_K"])
    assert "measured" in point_text(points["Q8_0"])
    assert "26.3 tokens/s" not in point_text(points["Q6_K"])


def test_without_a_gain_the_divergence_is_the_height():
    points = export_points(facts.forecast(types=facts.type_forecasts(gain=0.0)), None)
    assert not shows_gain(points)
    (_, (low, high)) = axis_ranges(points, 0)
    heights = [point.height(by_gain=False) for point in points]
    assert low < min(heights) <= max(heights) < high
    assert by_type(points)["Q8_0"].height(by_gain=False) > by_type(points)["Q2_K"].height(by_gain=False)


@pytest.mark.parametrize(
    ("limit", "words"),
    [(0, ""), (600_000_000, "Dashed"), (90_000_000_000, "every one"), (1_000_000, "none larger")],
)
def test_the_target_s_line_is_drawn_or_told(limit, words):
    points = export_points(facts.forecast(), None)
    text = limit_text(points, limit, LAPTOP)
    assert words in text
    assert bool(text) == bool(words)
    if text:
        assert "16 GiB" in text
