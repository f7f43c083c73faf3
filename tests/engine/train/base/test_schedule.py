"""The learning rate rises, holds its peak and falls as asked."""

import pytest

from burnish_engine.contract.recipe.recipe_train import TrainSection
from burnish_engine.train.base.schedule import learning_rate, warmup_steps


def curve(total, **settings):
    section = TrainSection(learning_rate=1.0, **settings)
    return [learning_rate(section, step, total) for step in range(1, total + 1)]


def test_cosine_peaks_after_warmup_and_ends_at_its_share():
    rates = curve(101, schedule="cosine", warmup_share=0.1, final_share=0.1)
    assert warmup_steps(TrainSection(warmup_share=0.1), 101) == 10
    assert rates[10] == 1.0
    assert max(rates) == 1.0
    assert rates[-1] == pytest.approx(0.1)
    assert rates[:10] == pytest.approx([step / 11 for step in range(1, 11)])  # neither from 0 nor to the peak itself
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[55] == pytest.approx(0.55, abs=1e-9)  # half way: the mean of peak and end


def test_linear_falls_evenly():
    rates = curve(11, schedule="linear", warmup_share=0.0, final_share=0.0)
    assert rates == pytest.approx([1.0 - n / 10 for n in range(11)])


def test_constant_stays():
    assert curve(5, schedule="constant", warmup_share=0.0) == [1.0] * 5


def test_wsd_holds_its_peak_and_falls_at_the_end():
    rates = curve(100, schedule="wsd", warmup_share=0.1, decay_share=0.2, final_share=0.1)
    assert rates[:10] == pytest.approx([step / 11 for step in range(1, 11)])
    assert rates[10:80] == [1.0] * 70
    assert rates[80:] == pytest.approx([1.0 - 0.9 * n / 20 for n in range(1, 21)])
    assert curve(100, schedule="wsd", warmup_share=0.5, decay_share=1.0) == pytest.approx(
        curve(100, schedule="linear", warmup_share=0.5)
    )


@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant", "wsd"])
@pytest.mark.parametrize("total", [1, 2, 3])
def test_tiny_runs_still_train(schedule, total):
    rates = curve(total, schedule=schedule, warmup_share=0.9)
    assert all(0 < rate <= 1.0 for rate in rates)
    assert 1.0 in rates
