"""MXFP8: powers of two, zeros and overflow, MXFP4 expanded exactly, one payload both ways, refusals."""

import os

import pytest
import torch

from burnish_kernels.eight_bit_linear.op import CODES, transpose_codes
from burnish_kernels.moe_unpack.reference import mxfp4_values
from burnish_kernels.mxfp8_linear import op, reference
from burnish_kernels.mxfp8_linear.op import (
    MOST_PLACES,
    MxRows,
    MxWeight,
    encode_rows,
    expand_mxfp4,
    mxfp8_linear,
    powers,
    quantize_rows,
    quantize_weight,
    weight_scale,
)


@pytest.fixture(params=["kernel", "reference"], autouse=True)
def way(request, monkeypatch):
    """Both ways of every operation: its kernels, interpreted, and its reference."""
    if request.param == "reference":
        monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    elif os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("the interpreter is on only where TRITON_INTERPRET=1")


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def bytes_drawn(*shape, low=0, high=256, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high, shape, dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize(
    ("largest", "exponent"),
    [(448, 127), (449, 128), (896, 128), (1.75, 119), (1.76, 120), (2.0**-133, 1), (0, 127)],
)
def test_a_blocks_power_is_the_smallest_with_which_nothing_saturates(largest, exponent):
    x = torch.zeros(1, 64)
    x[0, 40] = largest
    found = quantize_rows(x)
    assert found.scale.tolist() == [[127, exponent]]
    weight = quantize_weight(torch.cat((x, torch.zeros(31, 64))))
    assert weight.scale.tolist() == [[127, exponent]]
    assert torch.equal(weight.codes[:1].float(), found.codes.float())


def test_values_are_off_by_half_a_unit_at_most():
    x = drawn(9, 96) * torch.exp2(torch.arange(96) // 32 * 10.0)
    found = quantize_rows(x)
    decoded = reference.decode_rows(found.codes, found.scale)
    floor = reference.power(found.scale).repeat_interleave(32, dim=1) * 2**-10
    assert ((decoded - x).abs() <= torch.maximum(x.abs() / 16, floor)).all()


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_a_value_that_is_not_finite_reaches_the_product_of_its_row_alone(value):
    x = drawn(3, 64)
    x[1, 50] = value
    y = mxfp8_linear(quantize_rows(x), quantize_weight(drawn(32, 64)))
    assert not y[1].isfinite().any()
    assert y[[0, 2]].isfinite().all()


@pytest.mark.quick_cases(1)
def test_one_payload_serves_both_directions():
    weight = quantize_weight(drawn(64, 96) * torch.exp2(torch.arange(96) // 32 * 3.0))
    dense = reference.decode_weight(weight.codes, weight.scale, torch.float64)
    turned = MxWeight(transpose_codes(weight.codes, torch.empty(96, 64, dtype=CODES)), weight.scale.t())
    assert torch.equal(reference.decode_weight(turned.codes, turned.scale, torch.float64), dense.t())
    x, dy = quantize_rows(drawn(5, 96, seed=1)), quantize_rows(drawn(5, 64, seed=2))
    y, dx = mxfp8_linear(x, weight, dtype=torch.float16), mxfp8_linear(dy, turned, dtype=torch.float16)
    exact = reference.decode_rows(x.codes, x.scale, torch.float64) @ dense.t()
    torch.testing.assert_close(y.double(), exact, rtol=2e-3, atol=2e-3)
    exact = reference.decode_rows(dy.codes, dy.scale, torch.float64) @ dense
    torch.testing.assert_close(dx.double(), exact, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("at_once", [1, 32 * 96, 1 << 24])
def test_a_weight_has_the_same_codes_however_much_is_quantized_at_once(monkeypatch, at_once):
    weight = drawn(160, 96) * torch.exp2(torch.arange(160) // 32 * 3.0)[:, None]
    codes, scale = reference.quantize_weight(weight)
    monkeypatch.setattr(op, "CHUNK", at_once)
    found = quantize_weight(weight)
    found.check()
    assert torch.equal(found.codes.float(), codes.float())
    assert torch.equal(found.scale, scale)
    assert torch.equal(weight_scale(weight), scale)


@pytest.mark.parametrize("rows", [slice(0, 64), slice(40, 41), slice(31, 63)])
def test_some_rows_of_a_weight_have_the_codes_that_they_have_in_it(rows):
    weight = (drawn(64, 96) * torch.exp2(torch.arange(64) // 32 * 3.0)[:, None]).bfloat16()
    whole = quantize_weight(weight)
    assert torch.equal(powers(whole.scale), reference.power(whole.scale))
    found = encode_rows(weight[rows], powers(whole.scale), rows.start)
    assert torch.equal(found.float(), whole.codes[rows].float())


@pytest.mark.parametrize("first", [0, 3, 100, 252 - MOST_PLACES])
def test_mxfp4_is_expanded_with_the_same_values(first):
    blocks, scales = bytes_drawn(64, 3, 16), bytes_drawn(64, 3, low=first, high=first + MOST_PLACES + 1, seed=1)
    scales[5, 0], scales[6, 0] = first, first + MOST_PLACES
    weight = expand_mxfp4(blocks, scales)
    weight.check()
    exact = mxfp4_values(blocks, scales).double()
    assert torch.equal(reference.decode_weight(weight.codes, weight.scale, torch.float64), exact)


def test_mxfp4_whose_scales_are_too_far_apart_is_refused_unless_the_block_is_zero():
    blocks, scales = bytes_drawn(32, 1, 16), torch.full((32, 1), 120, dtype=torch.uint8)
    scales[7] = 120 - MOST_PLACES - 1
    with pytest.raises(ValueError, match="places apart"):
        expand_mxfp4(blocks, scales)
    blocks[7] = 0x80  # zero, and minus zero
    weight = expand_mxfp4(blocks, scales)
    exact = mxfp4_values(blocks, scales).double()
    assert torch.equal(reference.decode_weight(weight.codes, weight.scale, torch.float64), exact)


def test_no_rows_are_no_error():
    x = quantize_rows(torch.zeros(0, 64))
    assert mxfp8_linear(x, quantize_weight(drawn(32, 64))).shape == (0, 32)


X, WEIGHT = (
    MxRows(torch.zeros(2, 64).to(CODES), torch.zeros(2, 2, dtype=torch.uint8)),
    quantize_weight(torch.ones(32, 64)),
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x": MxRows(X.codes.half(), X.scale)}, "codes must be"),
        ({"x": MxRows(X.codes[:, :48], X.scale)}, "multiple of 32"),
        ({"x": MxRows(X.codes, X.scale[:, :1])}, "scales must be"),
        ({"x": MxRows(X.codes, X.scale.t())}, "scales must be"),
        ({"x": MxRows(X.codes, X.scale.int())}, "scales must be"),
        ({"x": MxRows(X.codes[:, :32], X.scale[:, :1].contiguous())}, "weight must be"),
        ({"weight": MxWeight(WEIGHT.codes[:16], WEIGHT.scale)}, "multiple of 32 rows"),
        ({"weight": MxWeight(WEIGHT.codes, WEIGHT.scale[:, :1])}, "scales must be"),
        ({"dtype": torch.float32}, "out must be"),
        ({"out": torch.zeros(2, 33).half()}, "out must be"),
        ({"narrow_TR": torch.zeros(2, 16).bfloat16()}, "needs both"),
        ({"narrow_TR": torch.zeros(2, 16), "adapter_NR": torch.zeros(32, 16)}, "narrow must be"),
    ],
)
def test_what_does_not_fit_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        mxfp8_linear(**{"x": X, "weight": WEIGHT, **changes})


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (lambda: quantize_rows(torch.zeros(2, 40)), "multiple of 32"),
        (lambda: quantize_rows(torch.zeros(64, 2).t()), "x must be"),
        (lambda: quantize_rows(torch.zeros(2, 64), out=MxRows(X.codes[:1], X.scale[:1])), "out must be"),
        (lambda: quantize_weight(torch.zeros(40, 64)), "32 x 32"),
        (lambda: weight_scale(torch.zeros(32, 40)), "32 x 32"),
        (lambda: op.new_weight(0, 32, "cpu"), "32 x 32"),
        (lambda: expand_mxfp4(bytes_drawn(32, 2, 16), bytes_drawn(32, 1)), "blocks must be"),
        (lambda: expand_mxfp4(bytes_drawn(33, 1, 16), bytes_drawn(33, 1)), "scales must be"),
    ],
)
def test_rows_and_weights_that_do_not_fit_are_refused(run, words):
    with pytest.raises(ValueError, match=words):
        run()
