"""Logits and the gradient of hidden states, with products in 16 bits and in INT8."""

import pytest
import torch

from burnish_engine.contract.recipe.eight_bit_use import EightBitUse
from burnish_engine.models.decoder.frozen.head import Head

CPU = torch.device("cpu")


def operands(rows=500, columns=96, tokens=21):
    random = torch.Generator().manual_seed(7)
    matrix, hidden, gradient = (
        torch.randn(*shape, generator=random).bfloat16()
        for shape in ((rows, columns), (tokens, columns), (tokens, rows))
    )
    hidden[:, 3] *= 30  # a column far above the others
    return matrix, hidden, gradient


@pytest.mark.parametrize("divisor", [1.0, 8.0])
def test_logits_of_int8_are_near_those_of_16_bits_and_their_gradient_is_the_same(divisor):
    matrix, hidden, gradient = operands()
    plain, rounded = (Head(matrix, CPU, divisor=divisor, in_int8=way) for way in (False, True))
    exact = hidden.double() / divisor @ matrix.double().t()
    errors = [((one.logits(hidden).double() - exact).norm() / exact.norm()).item() for one in (plain, rounded)]
    assert errors[0] < 0.004
    assert errors[0] < errors[1] < 0.025, "columns are rotated: without, one column alone takes most of the levels"
    assert torch.equal(plain.gradient(gradient), rounded.gradient(gradient))


@pytest.mark.parametrize(("products", "expected"), [("", False), ("int8", True), ("fp8", True), ("mxfp8", True)])
def test_logits_are_of_int8_beside_any_products_in_8_bits(products, expected):
    assert EightBitUse(products=products).logits_in_int8 == expected


@pytest.mark.gpu
@pytest.mark.parametrize("in_int8", [False, True])
def test_logits_have_the_same_bits_wherever_the_weights_are(in_int8):
    matrix, hidden, gradient = operands(151_936, 1024, 300)  # ten pieces of 32 MiB
    device = torch.device("cuda")
    here = Head(matrix.to(device), device, in_int8=in_int8)
    away = Head(matrix.pin_memory(), device, in_int8=in_int8)
    assert torch.equal(here.logits(hidden.to(device)), away.logits(hidden.to(device)))
    torch.testing.assert_close(
        here.gradient(gradient.to(device)), away.gradient(gradient.to(device)), rtol=2e-2, atol=2
    )
