"""The activation with adapter products: its plan fits and fills devices, its bits repeat, bad arguments are named."""

import itertools
import os

import pytest
import torch

from burnish_kernels.swiglu.adapted import op, tiles
from burnish_kernels.swiglu.adapted.op import OuterProduct

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
GATE_UP, DACT, FACTOR, SUMS = torch.zeros(3, 16), torch.zeros(3, 8), torch.zeros(3, 16), torch.zeros(5, 8)
kernels = pytest.mark.skipif(
    DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1", reason="needs a GPU or TRITON_INTERPRET=1"
)


@pytest.mark.parametrize("tokens", [4096, 16384])
@pytest.mark.parametrize("size", [1536, 3072, 8192, 9728, 14336])
@pytest.mark.parametrize("ranks", [(16, 16, 16), (64, 64, 64), (16, 0, 0)])
def test_the_grid_fills_a_large_device(tokens, size, ranks):
    plan = tiles.backward_plan(tokens, size, 2, ranks)
    programs = plan.splits * -(size // -plan.tile.C)
    # Of eight warps each: two or three fill a multiprocessor.
    assert 2 * 132 <= programs <= tiles.PROGRAMS


@pytest.mark.parametrize(
    ("tokens", "size"), itertools.product((1, 31, 32, 129, 4099, 16384), (8, 600, 3072, 28672, 100_000))
)
def test_every_part_has_tokens_and_every_token_a_part(tokens, size):
    for width in (4, 2):
        plan = tiles.backward_plan(tokens, size, width, (64, 16, 16))
        assert plan.tokens % plan.tile.T == 0
        assert (plan.splits - 1) * plan.tokens < tokens <= plan.splits * plan.tokens


@pytest.mark.parametrize(
    ("ranks", "dtype", "can"),
    [
        ((16, 16, 16), torch.bfloat16, True),
        ((64, 64, 64), torch.float32, True),
        ((0, 16, 0), torch.float16, True),
        ((80, 16, 16), torch.bfloat16, False),
        ((0, 0, 0), torch.bfloat16, False),
        ((), torch.bfloat16, False),
        ((16, 16, 16), torch.float64, False),
        ((16, 16, 16), torch.int32, False),
    ],
)
def test_which_adapters_are_done_at_once(ranks, dtype, can):
    assert tiles.can_fuse(ranks, dtype) is can


def test_few_tokens_do_not_fill_a_device_with_whole_rows():
    assert tiles.fills(16384)
    assert not tiles.fills(2048)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"activation": "relu"}, "relu"),
        ({"dact_TI": torch.zeros(3, 16)}, "dact"),
        ({"out": torch.zeros(3, 8)}, "out"),
        ({"act": OuterProduct(FACTOR[:2], SUMS)}, "factor of act"),
        ({"gate": OuterProduct(FACTOR.half(), SUMS)}, "factor of gate"),
        ({"up": OuterProduct(torch.zeros(16, 3).t(), SUMS)}, "factor of up"),
        ({"up": OuterProduct(FACTOR, torch.zeros(17, 8))}, "sums of up"),
        ({"act": OuterProduct(FACTOR, torch.zeros(5, 16))}, "sums of act"),
        ({"act": OuterProduct(FACTOR, SUMS.half())}, "fp32"),
    ],
)
def test_bad_arguments_of_the_gradient_are_named(change, words):
    given = {"dact_TI": DACT, "gate_up_TJ": GATE_UP, "activation": "silu", "act": OuterProduct(FACTOR, SUMS)}
    with pytest.raises(ValueError, match=words):
        op.backward_adapted(**{**given, **change})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"activation": "relu"}, "relu"),
        ({"out": torch.zeros(3, 16)}, "out"),
        ({"a_RI": torch.zeros(16, 16)}, "a must be"),
        ({"a_RI": torch.zeros(8, 16).t()}, "a must be"),
        ({"xa_out": torch.zeros(3, 8)}, "xa_out"),
        ({"xa_out": torch.zeros(3, 16).half()}, "xa_out"),
    ],
)
def test_bad_arguments_are_named(change, words):
    given = {"gate_up_TJ": GATE_UP, "a_RI": torch.zeros(16, 8), "activation": "silu"}
    given |= {"out": torch.zeros(3, 8), "xa_out": torch.zeros(3, 16)}
    with pytest.raises(ValueError, match=words):
        op.forward_adapted(**{**given, **change})


@pytest.mark.full
@kernels
def test_ranks_that_do_not_fit_are_refused():
    wide, dact, gate_up = (torch.zeros(3, width, device=DEVICE) for width in (80, 8, 16))
    with pytest.raises(ValueError, match="80"):
        op.backward_adapted(dact, gate_up, activation="silu", act=OuterProduct(wide, torch.zeros(80, 8, device=DEVICE)))
    with pytest.raises(ValueError, match="not done"):
        op.backward_adapted(dact, gate_up, activation="silu")
    with pytest.raises(ValueError, match="80"):
        op.forward_adapted(gate_up, wide.new_zeros(80, 8), activation="silu", out=dact, xa_out=wide)


def test_no_rows_is_no_error():
    nothing, sums = (torch.zeros(0, width, device=DEVICE) for width in (8, 16)), torch.ones(5, 8, device=DEVICE)
    dact, wide = nothing
    op.backward_adapted(dact, wide, activation="silu", act=OuterProduct(wide, sums))
    assert (sums == 1).all()
    op.forward_adapted(wide, sums, activation="silu", out=dact, xa_out=dact[:, :5])


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_same_inputs_give_the_same_bits(dtype):
    generator = torch.Generator().manual_seed(0)
    rows, size = (16384, 3072) if DEVICE == "cuda" else (300, 72)

    def draw(width):
        return torch.randn(rows, width, generator=generator).to(DEVICE, dtype)

    gate_up, dact, factors = draw(2 * size), draw(size), [draw(16) for _ in range(3)]

    def run():
        sums = [torch.ones(16, size, device=DEVICE) for _ in range(3)]
        outers = [OuterProduct(*pair) for pair in zip(factors, sums, strict=True)]
        found = op.backward_adapted(dact, gate_up, activation="silu", act=outers[0], gate=outers[1], up=outers[2])
        act, xa = torch.empty_like(dact), torch.empty_like(factors[0])
        op.forward_adapted(gate_up, dact[:16], activation="silu", out=act, xa_out=xa)
        return [found, act, xa, *sums]

    first = run()
    for _ in range(2):
        assert all(torch.equal(*pair) for pair in zip(first, run(), strict=True))
