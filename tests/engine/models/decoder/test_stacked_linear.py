"""One stack: its products with and without adapters, resident or quantized, and what is not wanted is not done."""

import pytest
import torch

from burnish_engine.models.decoder.frozen import matrix_weights
from burnish_engine.models.decoder.frozen.matrix_weights import QuantizedWeight, ResidentWeight
from burnish_engine.models.decoder.stacked_linear import AdaptedRows, StackedLinear
from burnish_kernels.decode_linear import op as decode_linear
from burnish_kernels.eight_bit_linear import op as eight_bit
from burnish_kernels.lora_linear import op as lora_linear
from burnish_kernels.lora_linear import reference
from burnish_kernels.nf4 import op as nf4

T, K, N = 11, 64, 48
ADAPTERS = (lora_linear.StackedAdapter(0, 16, 5, 2.0), lora_linear.StackedAdapter(24, 24, 16, 0.5))


@pytest.fixture
def parts():
    """Weight, bias, A and B of each adapter, and an input."""
    made = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=made) / 4

    a = [draw(one.rank, K) for one in ADAPTERS]
    b = [draw(one.rows, one.rank) for one in ADAPTERS]
    return draw(N, K), draw(N), a, b, draw(T, K)


def resident(parts, adapters=ADAPTERS):
    weight, bias, a, b, _ = parts
    stack = lora_linear.Stack(N, K, adapters)
    matrix = torch.zeros(stack.buffer_shape)
    matrix[:N, :K] = weight
    if adapters:
        stack.fill(matrix, a, b)
    return StackedLinear(stack, ResidentWeight(matrix), bias)


def test_a_stack_is_a_linear_layer_with_adapters(parts):
    weight, bias, a, b, x = parts
    linear = resident(parts)
    assert (linear.inputs, linear.outputs, linear.rank) == (K, N, 32)
    x_TE = linear.new_input(T, x).fill_(float("nan"))
    x_TE[:, :K] = x
    out = linear.forward(x_TE)
    torch.testing.assert_close(out, reference.lora_linear(x, weight, bias, a, b, ADAPTERS))
    torch.testing.assert_close(linear.adapted_input(x_TE)[:, :5], x @ a[0].t())
    assert not linear.adapted_input(x_TE)[:, 5:16].any()  # of a rank of 5 padded to 16


@pytest.mark.parametrize(
    "aligned", [True, False]
)  # adapters that begin within a tile are not for the few tokens' kernel
def test_replies_have_the_same_output_and_write_into_what_is_given(parts, monkeypatch, aligned):
    weight, bias, a, b, x = parts
    adapters = (lora_linear.StackedAdapter(32, 16, 5, 2.0),) if aligned else ADAPTERS
    known = resident((weight, bias, a[: len(adapters)], b[: len(adapters)], x), adapters)
    linear = StackedLinear(known.stack, known.frozen, bias, decodes=True)
    calls = []
    kept = decode_linear.forward
    monkeypatch.setattr(decode_linear, "forward", lambda *rest, **more: (calls.append(1), kept(*rest, **more))[1])
    monkeypatch.setattr(
        matrix_weights, "use_kernels", lambda _x: True
    )  # as on a GPU; the operation takes its reference
    x_TE, out = linear.new_input(T, x), torch.empty(T, N)
    x_TE[:, :K] = x
    found = linear.forward(x_TE, out)
    torch.testing.assert_close(found, reference.lora_linear(x, weight, bias, a, b, adapters))
    assert found.data_ptr() == out.data_ptr()
    assert bool(calls) == aligned


@pytest.mark.parametrize("kind", ["nf4", "mixed", "training"])
def test_replies_decode_nf4_inside_the_product(parts, monkeypatch, kind):
    """Rows in 16 bits beside it are unpacked, and so is everything that is differentiated."""
    weight, bias, a, b, x = parts
    stack = lora_linear.Stack(N, K, (lora_linear.StackedAdapter(32, 16, 5, 2.0),))
    whole = torch.zeros(stack.buffer_shape)
    stack.fill(whole, a[:1], b[:1])
    whole = whole.bfloat16()
    kept = [nf4.quantize(weight[:32]), weight[32:].bfloat16() if kind == "mixed" else nf4.quantize(weight[32:])]
    frozen = QuantizedWeight(kept, whole[N:, :K], whole[:N, K:], torch.full_like(whole, torch.nan))
    linear = StackedLinear(stack, frozen, bias.bfloat16(), decodes=kind != "training")
    monkeypatch.setattr(matrix_weights, "use_kernels", lambda _x: True)
    x_TE, out = linear.new_input(T, x.bfloat16()), torch.empty(T, N, dtype=torch.bfloat16)
    x_TE[:, :K] = x
    found = linear.forward(x_TE, out)
    assert frozen.scratch[:N, :K].isnan().all() == (kind == "nf4")
    unpacked = nf4.dequantize_stack(kept, torch.empty(N, K, dtype=torch.bfloat16), torch.bfloat16).float()
    wanted = reference.lora_linear(x, unpacked, bias, a[:1], b[:1], stack.adapters)
    torch.testing.assert_close(found.float(), wanted, rtol=0.05, atol=0.05)
    assert found.data_ptr() == out.data_ptr()


@pytest.mark.parametrize("tokens", [1, 8, 9])
def test_replies_decode_fp8_inside_the_product(parts, monkeypatch, tokens):
    """The weight is unpacked first for more than eight tokens."""
    weight, bias, a, b, x = parts
    stack = lora_linear.Stack(N, K, (lora_linear.StackedAdapter(32, 16, 5, 2.0),))
    whole = torch.zeros(stack.buffer_shape)
    stack.fill(whole, a[:1], b[:1])
    whole, rows = whole.bfloat16(), eight_bit.quantize_rows(weight)
    frozen = QuantizedWeight([rows], whole[N:, :K], whole[:N, K:], torch.full_like(whole, torch.nan))
    linear = StackedLinear(stack, frozen, bias.bfloat16(), decodes=True)
    monkeypatch.setattr(matrix_weights, "use_kernels", lambda _x: True)
    x_TE = linear.new_input(tokens, x.bfloat16())
    x_TE[:, :K] = x[:tokens]
    found = linear.forward(x_TE)
    assert frozen.scratch[:N, :K].isnan().all() == (tokens <= 8)
    wide = rows.codes.float() * rows.scale[:, None]
    wanted = reference.lora_linear(x[:tokens], wide, bias, a[:1], b[:1], stack.adapters)
    torch.testing.assert_close(found.float(), wanted, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("tokens", [1, 8])
def test_the_adapter_takes_part_in_the_rows_that_are_said(parts, tokens):
    known = resident(parts)
    x, kept = parts[-1][:tokens], torch.tensor([[1.0]] * (tokens // 2) + [[0.0]] * (tokens - tokens // 2))
    linear = StackedLinear(known.stack, known.frozen, known.bias_N, decodes=True, rows=AdaptedRows(kept))
    x_TE = linear.new_input(tokens, x)
    x_TE[:, :K] = x
    weight, bias, a, b, _ = parts
    tuned = reference.lora_linear(x, weight, bias, a, b, ADAPTERS)
    torch.testing.assert_close(linear.forward(x_TE), torch.where(kept > 0, tuned, x @ weight.t() + bias))


def test_gradients_are_those_of_autograd(parts):
    weight, bias, a, b, x = parts
    leaves = [x.clone().requires_grad_(), *(one.clone().requires_grad_() for one in (*a, *b))]
    y = reference.lora_linear(leaves[0], weight, bias, leaves[1:3], leaves[3:], ADAPTERS)
    dy = torch.randn(T, N, generator=torch.Generator().manual_seed(1))
    wanted = torch.autograd.grad(y, leaves, dy)

    linear = resident(parts)
    linear.gradients.a += [torch.zeros_like(one) for one in a]
    linear.gradients.b += [torch.zeros_like(one) for one in b]
    x_TE = linear.new_input(T, x)
    x_TE[:, :K] = x
    linear.forward(x_TE)
    dy_TE = linear.new_gradient(T, dy).fill_(float("nan"))
    dy_TE[:, :N] = dy
    torch.testing.assert_close(linear.input_gradient(dy_TE), wanted[0])
    linear.accumulate(dy_TE, x, linear.adapted_input(x_TE))
    for found, one in zip([*linear.gradients.a, *linear.gradients.b], wanted[1:], strict=True):
        torch.testing.assert_close(found, one)


def test_without_adapters_there_is_nothing_but_the_weight(parts):
    linear = resident(parts, ())
    x = parts[4]
    x_TE = linear.new_input(T, x)
    assert x_TE.shape == (T, K)
    x_TE.copy_(x)
    torch.testing.assert_close(linear.forward(x_TE), torch.nn.functional.linear(x, parts[0], parts[1]))
    dy = torch.ones(T, N)
    assert linear.input_gradient(dy, wanted=False) is None
    torch.testing.assert_close(linear.input_gradient(dy), dy @ parts[0])
    linear.accumulate(dy, x, x_TE[:, K:])  # adds nothing anywhere


def test_the_gradient_that_is_not_wanted_still_reaches_the_adapters(parts):
    linear = resident(parts)
    dy_TE = linear.new_gradient(T, parts[4]).fill_(1.0)
    assert linear.input_gradient(dy_TE, wanted=False) is None
    torch.testing.assert_close(dy_TE[:, N : N + 5], torch.ones(T, 16) @ (2.0 * parts[3][0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_quantized_rows_are_dequantized_beside_the_adapters(parts, dtype):
    """Some rows in NF4, some as they are; two stacks share one scratch matrix, whose corner is never read."""
    weight, _, a, b, x = parts
    stack = lora_linear.Stack(N, K, ADAPTERS)
    scratch = torch.full(stack.buffer_shape, torch.nan, dtype=dtype)
    whole = torch.zeros(stack.buffer_shape)
    stack.fill(whole, a, b)

    def quantized(weight):
        kept = [nf4.quantize(weight[:16]), weight[16:24].to(torch.bfloat16), nf4.quantize(weight[24:])]
        return QuantizedWeight(kept, whole[N:, :K].to(dtype), whole[:N, K:].to(dtype), scratch)

    def dequantized(weight):
        rows = [nf4.dequantize(nf4.quantize(part), dtype=dtype) for part in (weight[:16], weight[24:])]
        return torch.cat([rows[0], weight[16:24].to(torch.bfloat16).to(dtype), rows[1]])

    first, second = StackedLinear(stack, quantized(weight)), StackedLinear(stack, quantized(2 * weight))
    for linear, plain in ((first, weight), (second, 2 * weight), (first, weight)):
        buffer = linear.frozen.buffer()
        assert buffer is scratch
        assert torch.equal(buffer[:N, :K], dequantized(plain))
        assert torch.equal(buffer[N:, :K], whole[N:, :K].to(dtype))
        assert torch.equal(buffer[:N, K:], whole[:N, K:].to(dtype))
    x_TE = first.new_input(T, x.to(dtype))
    x_TE[:, :K] = x
    wanted = reference.lora_linear(x, dequantized(weight).float(), None, a, b, ADAPTERS)
    tolerance = {} if dtype == torch.float32 else {"rtol": 0.05, "atol": 0.05}
    torch.testing.assert_close(first.forward(x_TE).float(), wanted, **tolerance)
    dy_TE = first.new_gradient(T, x.to(dtype)).fill_(1.0)
    gradient = first.input_gradient(dy_TE)
    assert gradient.isfinite().all()
    assert dy_TE.isfinite().all()
