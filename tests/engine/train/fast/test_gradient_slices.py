"""Slices of a flat gradient: whole layers from the top, of about the same size; and where the backward pass is cut."""

from itertools import accumulate, pairwise
from types import SimpleNamespace

import pytest

from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES, MemoryPlan
from burnish_engine.train.base.exchange import GradientSlice
from burnish_engine.train.fast.gradient_slices import backward_cuts, gradient_slices

MATRICES = ("self_attn.q_proj.lora_A", "self_attn.q_proj.lora_B", "mlp.down_proj.lora_A")


def flat(layers, sizes=(100, 50, 30)):
    """Names of the segments of these layers, in order, and their layout."""
    ends = [0, *accumulate(size for _ in layers for size in sizes)]
    names = [f"base_model.model.model.layers.{layer}.{name}.weight" for layer in layers for name in MATRICES]
    return names, SimpleNamespace(starts=tuple(ends[:-1]), total=ends[-1])


@pytest.mark.parametrize("count", [2, 3, 4, 12, 29])
@pytest.mark.parametrize("most", [2, 3, 4])
def test_slices_are_whole_layers_from_the_top(count, most):
    names, layout = flat(range(count))
    slices = gradient_slices(names, layout, most)
    assert 2 <= len(slices) <= min(most, count)
    assert (slices[0].end, slices[-1].start, slices[-1].lowest) == (layout.total, 0, 0)
    assert all(lower.end == upper.start for upper, lower in pairwise(slices))
    assert all(part.start == layout.starts[len(MATRICES) * part.lowest] for part in slices)
    assert max(part.end - part.start for part in slices) < layout.total / most + 180, "one layer more at most"


def test_layers_without_an_adapter_are_passed_over():
    names, layout = flat([3, 7])
    assert gradient_slices(names, layout, 4) == (GradientSlice(7, 180, 360), GradientSlice(3, 0, 180))


@pytest.mark.parametrize(
    ("names", "most"),
    [
        (flat([0, 1])[0], 1),
        (flat([5])[0], 4),
        (flat([1, 0])[0], 4),
        ([*flat([0])[0], "base_model.model.lm_head.lora_A.weight", *flat([1])[0][1:]], 4),
    ],
)
def test_a_gradient_that_cannot_be_cut_stays_whole(names, most):
    """For want of slices or layers, out of the layers' order, or with a segment of no layer."""
    _, layout = flat([0] if len(names) == len(MATRICES) else [0, 1])
    assert gradient_slices(names, layout, most) == ()


def test_the_backward_pass_is_cut_above_the_lowest_slice_unless_copies_run_beside_it():
    names, layout = flat(range(4))
    slices = gradient_slices(names, layout, 4)
    for level in LEVEL_NAMES:
        cuts = backward_cuts(slices, MemoryPlan(layers=(level, *["products"] * 3), head_rows=64))
        assert cuts == (() if level in {"offloaded", "host", "input"} else (3, 2, 1))
    streamed = MemoryPlan(layers=("products",) * 4, head_rows=64, weights=("host", "card", "card", "card"))
    assert backward_cuts(slices, streamed) == ()
