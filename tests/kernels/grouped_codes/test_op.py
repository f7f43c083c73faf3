"""Experts' weights as codes of E4M3: their scales, MXFP4 kept exactly, products near those in 16 bits, and refusals."""

import pytest
import torch

from burnish_kernels.eight_bit_linear.op import CODES, quantize_rows
from burnish_kernels.eight_bit_linear.rows import EightBitRows
from burnish_kernels.grouped_codes.op import CodedExperts, expert_scales, grouped_codes, unpack_codes
from burnish_kernels.grouped_linear.op import grouped_linear
from burnish_kernels.moe_sort.op import sort_by_expert
from burnish_kernels.moe_unpack.cases import random_stack
from burnish_kernels.moe_unpack.op import Mxfp4Experts, unpack_group

IDS = torch.tensor([[0, 2], [1, 2], [2, 0], [0, 1]], dtype=torch.int32)
ORDER = sort_by_expert(IDS, 3, tile_rows=4)


@pytest.fixture(autouse=True)
def reference(monkeypatch):
    """The path without a GPU; kernels have cases of their own."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def draw(*size, seed=0):
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", ["dense", "nf4", "nf4-double"])
def test_an_experts_largest_weight_is_the_largest_code(kind):
    weight = draw(3, 32, 64) * torch.tensor([1.0, 1e-3, 1e4])[:, None, None]
    if kind != "dense":
        weight = random_stack(kind, 3, 32, 64, "cpu")
    codes = unpack_codes(weight, expert_scales(weight), 0, 3).float()
    assert codes.abs().amax(dim=(1, 2)).tolist() == [448.0] * 3


def test_an_expert_of_zeros_has_codes_of_zeros():
    weight = draw(3, 8, 64)
    weight[1] = 0
    scale = expert_scales(weight)
    assert scale[1] == 1
    assert not unpack_codes(weight, scale, 1, 1).float().any()


@pytest.mark.parametrize(("below", "exact"), [(0, True), (14, True), (16, False)])
def test_mxfp4_is_kept_exactly_down_to_fourteen_powers_of_two_below_the_largest(below, exact):
    blocks = torch.arange(16, dtype=torch.uint8).repeat(1, 1, 2, 1)  # low nibbles count up, high ones are 0
    stack = Mxfp4Experts(blocks, torch.tensor([[[120, 120 - below]]], dtype=torch.uint8))
    scale = expert_scales(stack)
    codes = unpack_codes(stack, scale, 0, 1)
    assert torch.equal(codes.float() * scale, unpack_group(stack, 0, 1, dtype=torch.float32)) == exact


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("kind", ["dense", "nf4-double", "mxfp4"])
def test_products_are_near_those_in_sixteen_bits(kind, transposed):
    """Two operands of three bits of mantissa: 3 to 4 %; MXFP4's weights are exact, so half of it is left."""
    weight = draw(3, 96, 64).bfloat16() if kind == "dense" else random_stack(kind, 3, 96, 64, "cpu")
    scale, outputs = expert_scales(weight), 64 if transposed else 96
    by_token = not transposed
    x = draw(4 if by_token else 8, 96 if transposed else 64, seed=1).bfloat16()
    narrow, adapter, bias = draw(8, 5).bfloat16(), draw(3, outputs, 5).bfloat16(), draw(3, outputs).bfloat16()
    words = {"by_token": by_token, "transposed": transposed}
    words |= {"narrow_PR": narrow, "adapter_ENR": adapter, "bias_EN": bias}
    wanted = grouped_linear(x, weight, ORDER, **words).float()
    found = grouped_codes(quantize_rows(x), weight, scale, ORDER, **words).float()
    error = float((found - wanted).norm() / wanted.norm())
    assert error < (0.035 if kind == "mxfp4" else 0.05)
    assert error > 0.005  # codes were multiplied
    rest = grouped_linear(torch.zeros_like(x), weight, ORDER, **words).float()
    alone = grouped_codes(quantize_rows(torch.zeros_like(x)), weight, scale, ORDER, **words).float()
    assert (alone - rest).norm() < 2**-7 * rest.norm()  # adapter and bias are not rounded to codes


@pytest.mark.parametrize("transposed", [False, True])
def test_codes_that_are_kept_give_the_bits_of_those_made_for_a_product(transposed):
    weight = draw(3, 96, 64).bfloat16()
    scale = expert_scales(weight)
    kept = CodedExperts(unpack_codes(weight, scale, 0, 3), scale)
    assert expert_scales(kept) is scale
    x = quantize_rows(draw(8, 96 if transposed else 64, seed=1).bfloat16())
    made, found = (grouped_codes(x, one, scale, ORDER, by_token=False, transposed=transposed) for one in (weight, kept))
    assert torch.equal(found, made)


def test_transposed_codes_are_the_same_codes():
    weight = random_stack("nf4", 3, 32, 64, "cpu")
    scale = expert_scales(weight)
    turned = unpack_codes(weight, scale, 1, 2, transposed=True)
    assert torch.equal(turned.float(), unpack_codes(weight, scale, 1, 2).float().transpose(1, 2))


def test_a_row_that_is_no_number_spoils_its_own_results_alone():
    weight, x = draw(3, 32, 64).bfloat16(), draw(4, 64, seed=1).bfloat16()
    x[1, 7] = torch.inf
    found = grouped_codes(quantize_rows(x), weight, expert_scales(weight), ORDER, by_token=True)
    spoiled = ~found.isfinite().all(dim=1)
    assert torch.equal(spoiled, ORDER.order // 2 == 1)


X, WEIGHT = quantize_rows(draw(4, 64).bfloat16()), draw(3, 32, 64).bfloat16()
SCALE = expert_scales(WEIGHT)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"x": quantize_rows(draw(3, 64).bfloat16())}, "x must"),
        ({"x": EightBitRows(torch.zeros(4, 64, dtype=torch.int8), torch.ones(4))}, "x must"),
        ({"weight": WEIGHT[0]}, "weights"),
        ({"weight": WEIGHT.transpose(1, 2).contiguous().transpose(1, 2)}, "weights"),
        ({"weight": WEIGHT[:2]}, "2 experts"),
        ({"scale_E": SCALE[:2]}, "scales"),
        ({"narrow_PR": torch.zeros(8, 2)}, "both"),
        ({"narrow_PR": torch.zeros(8, 2), "adapter_ENR": torch.zeros(3, 32, 2)}, "narrow"),
        ({"narrow_PR": torch.zeros(8, 2).bfloat16(), "adapter_ENR": torch.zeros(3, 2, 32)}, "adapter"),
        ({"bias_EN": torch.zeros(3, 16)}, "bias"),
        ({"out": torch.zeros(8, 32)}, "out"),
    ],
)
def test_what_does_not_fit_is_named(changes, named):
    given = {"x": X, "weight": WEIGHT, "scale_E": SCALE, "order": ORDER, "by_token": True}
    with pytest.raises(ValueError, match=named):
        grouped_codes(**given | changes)


def test_a_group_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="experts 2 to 4"):
        unpack_codes(WEIGHT, SCALE, 2, 2)
    with pytest.raises(ValueError, match="out"):
        unpack_codes(WEIGHT, SCALE, 0, 2, out=torch.empty(2, 64, 32, dtype=CODES))
