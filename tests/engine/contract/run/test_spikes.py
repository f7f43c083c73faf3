"""Which losses are spikes: the guard and the charts ask the same rule."""

import pytest

from burnish_engine.contract.run.spikes import KEPT, LEAST, is_spike

CALM = [2.0, 2.1] * 10
"""Losses with a median of 2.05 and deviations of 0.05, which are robustly 0.074."""


@pytest.mark.parametrize(
    ("loss", "losses", "spike"),
    [
        (3.0, CALM, False), (3.07, CALM, False), (3.08, CALM, True),  # half of the median, which is more than 1 nat
        (1.09, [0.1] * 20, False), (1.11, [0.1] * 20, True),  # 1 nat
        (6.9, [2.0, 3.0] * 10, False), (8.5, [2.0, 3.0] * 10, True),  # eight deviations of 0.74
        (9.0, CALM[: LEAST - 1], False), (9.0, CALM[:LEAST], True), (9.0, [2.0] * KEPT, True),
    ],
)  # fmt: skip
def test_a_spike_is_far_above_the_losses_before_it(loss, losses, spike):
    assert is_spike(loss, 100, losses, [100] * len(losses)) == spike


@pytest.mark.parametrize(("tokens", "spike"), [(49, False), (50, True), (100, True)])
def test_a_step_with_few_supervised_tokens_is_not_judged(tokens, spike):
    assert is_spike(9.0, tokens, CALM, [100] * len(CALM)) == spike
