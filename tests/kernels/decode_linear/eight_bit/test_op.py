"""Few tokens with weights in 8 bits: which products they are, what is refused, and that every code is decoded."""

import pytest
import torch

from burnish_kernels.decode_linear.config import NARROW
from burnish_kernels.decode_linear.eight_bit import op
from burnish_kernels.decode_linear.eight_bit.cases import random_rows
from burnish_kernels.decode_linear.eight_bit.config import choose
from burnish_kernels.eight_bit_linear.rows import CODES, INT8, EightBitRows
from burnish_kernels.lora_linear.stack import Stack, StackedAdapter

STACK = Stack(64, 128, (StackedAdapter(0, 32, 4, 1.0),))
X = torch.randn(2, 128).bfloat16()
ROWS = random_rows(64, 128, CODES, "cpu", 0)
A, SB = torch.randn(16, 128).bfloat16(), torch.randn(64, 16).bfloat16()
SB[32:] = 0


@pytest.mark.parametrize("codes", [CODES, INT8])
def test_the_result_is_the_sum_of_both_products(codes):
    weight, bias = random_rows(64, 128, codes, "cpu", 1), torch.randn(64).bfloat16()
    out = torch.empty(2, 80, dtype=torch.bfloat16)[:, :64]
    found = op.forward(X, weight, A, SB, STACK, bias_N=bias, out=out)
    wide = weight.codes.float() * weight.scale[:, None]
    wanted = X.float() @ wide.t() + X.float() @ A.float().t() @ SB.float().t() + bias.float()
    torch.testing.assert_close(found.float(), wanted, rtol=0.05, atol=0.2)
    assert found.data_ptr() == out.data_ptr()


@pytest.mark.parametrize("codes", [CODES, INT8])
def test_every_code_is_its_number(codes):
    """One input reads one column; E4M3 has 254 numbers, subnormal ones among them."""
    bits = torch.arange(256, dtype=torch.uint8)
    bits = bits[(bits & 0x7F) != 0x7F] if codes == CODES else bits
    weight = EightBitRows(torch.zeros(len(bits), 128, dtype=torch.uint8).view(codes), torch.ones(len(bits)))
    weight.codes.view(torch.uint8)[:, 5] = bits
    x, stack = torch.zeros(1, 128).half(), Stack(len(bits), 128)
    x[0, 5] = 1
    found = op.forward(x, weight, x.new_zeros(0, 128), x.new_zeros(len(bits), 0), stack)
    assert torch.equal(found[0].float(), bits.view(codes).float())


@pytest.mark.parametrize(
    ("x", "parts", "stack"),
    [
        (X.float(), [ROWS], STACK),
        (torch.zeros(9, 128).bfloat16(), [ROWS], STACK),
        (X, [ROWS, ROWS], STACK),
        (X, [torch.zeros(64, 128)], STACK),
        (X, [ROWS], Stack(64, 128, (StackedAdapter(16, 32, 4, 1.0),))),
    ],
    ids=["32 bits", "tokens", "parts", "no codes", "adapter"],
)
def test_what_it_is_not_for_is_said(x, parts, stack):
    assert op.is_possible(X, [ROWS], STACK)
    assert not op.is_possible(x, parts, stack)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x_BK": torch.zeros(9, 128).bfloat16()}, "not for this"),
        ({"x_BK": X[:, :64]}, "do not fit"),
        ({"weight": ROWS.at(slice(0, 32))}, "do not fit"),
        ({"sb_NR": SB.float()}, "side by side"),
        ({"weight": EightBitRows(ROWS.codes, ROWS.scale.double())}, "scales must be"),
    ],
)
def test_bad_arguments_are_named(change, words):
    with pytest.raises(ValueError, match=words):
        op.forward(**{"x_BK": X, "weight": ROWS, "a_RK": A, "sb_NR": SB, "stack": STACK} | change)


@pytest.mark.parametrize("shape", [(4096, 1024), (1024, 3072), (19456, 2560), (64, 64)])
def test_splits_never_exceed_what_the_inputs_have(shape):
    config = choose(*shape, processors=132)
    assert config.block_n % NARROW == 0
    assert 1 <= config.splits <= max(1, -(-shape[1] // config.block_k))
