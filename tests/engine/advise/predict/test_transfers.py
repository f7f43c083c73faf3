"""Copies to host memory and back beside the layers' work: what is hidden, and what is waited for."""

import numpy as np
import pytest

from burnish_engine.advise.predict.transfers import (
    AHEAD,
    BOTH_WAYS_SHARE,
    IN_FLIGHT,
    PIECE_BYTES,
    SLOTS,
    backward_seconds,
    forward_seconds,
)
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES
from burnish_engine.models.host_memory import offloader, streamed_matrix, weight_ring


def forward(compute, copies):
    return forward_seconds(np.full((1, len(copies)), compute), np.array([copies], dtype=float))[0]


def backward(compute, copies, ahead=2):
    made = np.array([copies], dtype=float)
    return backward_seconds(np.full((1, len(copies)), compute), made, np.full((1, len(copies)), ahead))[0]


def layers(*copies):
    """One tensor a layer."""
    return [(copy,) for copy in copies]


def test_without_copies_only_the_layers_count():
    assert forward(2.0, layers(0, 0, 0)) == backward(2.0, layers(0, 0, 0)) == 6.0


def test_a_link_that_keeps_up_costs_nothing_but_the_last_and_the_first():
    assert forward(2.0, layers(1.5, 1.5, 0)) == 6.0
    assert forward(2.0, layers(1.5, 1.5, 1.5)) == 6.0 + 1.5
    assert backward(2.0, layers(1.5, 1.5, 0)) == 6.0
    assert backward(2.0, layers(1.5, 1.5, 1.5)) == 6.0 + 1.5


def test_a_slow_link_sets_the_pace():
    many = layers(*[3.0] * 50)
    assert forward(1.0, many) == 1.0 + 50 * 3.0
    assert backward(1.0, many) == 50 * 3.0 + 1.0


def test_two_tensors_may_be_on_their_way_before_the_device_waits():
    # After layers 0 and 1 copies are under way until 11 and 21; the third waits for the first of them.
    slow = layers(10.0, 10.0, 10.0, 0, 0, 0, 0)
    assert forward(1.0, slow) == max(11.0 + 4.0, 31.0)
    assert forward(1.0, layers(10.0, 10.0, 0, 0, 0, 0, 0)) == 21.0


def test_what_is_asked_for_earlier_arrives_earlier():
    lowest = layers(5.0, 0, 0, 0)
    # Layers 3 and 2 need 2 s each; the lowest is asked for when layer 2 begins, or layer 1.
    assert backward(2.0, lowest, ahead=2) == 2.0 + 5.0 + 2.0
    assert backward(2.0, lowest, ahead=1) == 4.0 + 5.0 + 2.0


def test_by_turns_is_better_than_one_after_the_other():
    by_turns = [(4.0,) if layer % 2 == 0 else (0.0,) for layer in range(20)]
    in_a_row = [(4.0,)] * 10 + [(0.0,)] * 10
    assert forward(2.0, by_turns) < forward(2.0, in_a_row) + 1e-9
    assert backward(2.0, by_turns) < backward(2.0, in_a_row)


def test_plans_do_not_touch_each_other():
    rng = np.random.default_rng(0)
    compute, copies = rng.random((5, 12)), rng.random((5, 12, 2)) * rng.integers(0, 2, (5, 12, 2))
    ahead = rng.integers(1, 3, (5, 12))
    weights = rng.random((5, 12)) * rng.integers(0, 2, (5, 12))
    rows = [slice(row, row + 1) for row in range(5)]
    alone = [backward_seconds(compute[row], copies[row], ahead[row], weights[row])[0] for row in rows]
    assert backward_seconds(compute, copies, ahead, weights) == pytest.approx(alone)
    alone = [forward_seconds(compute[row], copies[row], weights[row])[0] for row in rows]
    assert forward_seconds(compute, copies, weights) == pytest.approx(alone)


def with_weights(way, compute, weights, copies=0.0):
    """Time of a pass whose layers' weights come from host memory; copies: of one tensor of each layer beside them."""
    given, moved = np.array([weights], dtype=float), np.full((1, len(weights), 1), copies)
    computes = np.full(given.shape, compute)
    if way == "forward":
        return forward_seconds(computes, moved, given)[0]
    return backward_seconds(computes, moved, np.ones(given.shape, int), given)[0]


def test_weights_on_the_device_cost_nothing():
    for way in ("forward", "backward"):
        assert with_weights(way, 2.0, [0, 0, 0, 0]) == 8.0


def test_a_link_that_keeps_up_hides_weights_but_for_the_first():
    assert with_weights("forward", 2.0, [2, 2, 2, 2, 2]) == 2.0 + 5 * 2.0
    assert with_weights("forward", 2.0, [0, 1, 0, 1, 0]) == 5 * 2.0
    assert with_weights("backward", 2.0, [2, 2, 2, 2, 2]) == 5 * 2.0  # the upper two are still there


def test_a_link_that_is_too_slow_for_weights_sets_the_pace():
    assert with_weights("forward", 1.0, [3.0] * 50) == 50 * 3.0 + 1.0
    # The first of 48 copies begins when the top layer has computed; the lowest layer computes after the last.
    assert with_weights("backward", 1.0, [3.0] * 50) == 1.0 + 48 * 3.0 + 1.0


def test_a_slot_is_free_when_its_layer_has_computed():
    # Layers 0 and 1 arrive at 1 and 2. Layer 2 takes the slot of layer 0, which computes until 11; then 21, 22, ...
    assert with_weights("forward", 10.0, [1, 1, 1]) == 1.0 + 30.0
    assert with_weights("forward", 10.0, [1, 1, 15]) == 11.0 + 15.0 + 10.0


def test_weights_and_activations_slow_each_other_down_forward():
    alone = with_weights("forward", 3.0, [3.0] * 20)
    found = with_weights("forward", 3.0, [3.0] * 20, copies=2.9)
    delay = 2.9 / BOTH_WAYS_SHARE - 2.9
    assert alone + 18 * delay < found < alone + 20 * delay + 2.9
    # Nothing arrives any more when the upper layers' tensors leave.
    few = forward_seconds(np.full((1, 4), 9.0), np.full((1, 4, 1), 2.0), np.array([[1.0, 1.0, 0.0, 0.0]]))[0]
    assert few == pytest.approx(1.0 + 4 * 9.0 + 2.0)


def test_weights_and_activations_share_the_link_backward():
    alone = with_weights("backward", 3.0, [3.0] * 20)
    assert with_weights("backward", 3.0, [3.0] * 20, copies=3.0) > alone + 15 * 3.0


def test_weights_come_no_earlier_than_activations_that_were_asked_for_with_them():
    # When layer 3 has computed, 2 s of layer 0's tensor are asked for with 4 s of layer 1's weights: layer 1 waits 6 s.
    weights, copies = np.array([[0.0, 4.0, 1.0, 1.0]]), np.array([[[2.0], [0.0], [0.0], [0.0]]])
    found = backward_seconds(np.full((1, 4), 1.0), copies, np.full((1, 4), 2), weights)[0]
    assert found == pytest.approx(1.0 + 6.0 + 2 * 1.0)


def test_the_limits_are_those_of_the_engine():
    assert weight_ring.SLOTS == SLOTS
    assert streamed_matrix.PIECE_BYTES == PIECE_BYTES
    assert offloader._IN_FLIGHT == IN_FLIGHT
    assert dict(zip(LEVEL_NAMES, AHEAD, strict=True))["host"] == offloader._AHEAD
    assert dict(zip(LEVEL_NAMES, AHEAD, strict=True))["offloaded"] == offloader._FURTHER_AHEAD["gate_up_TJ"]
