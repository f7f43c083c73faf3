"""Fused or one after the other: the feed-forward gives the same outputs and gradients."""

import os

import pytest
import torch

from burnish_engine.models.decoder import fused_mlp
from burnish_engine.models.decoder.frozen.matrix_weights import ResidentWeight
from burnish_engine.models.decoder.stacked_linear import AdapterGradients, StackedLinear
from burnish_kernels.lora_linear.op import Dropout, Stack, StackedAdapter
from burnish_kernels.swiglu import op as swiglu
from burnish_kernels.swiglu.adapted import op as adapted

TOKENS, HIDDEN, WIDE = 45, 32, 72
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
kernels = pytest.mark.skipif(
    DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1", reason="needs a GPU or TRITON_INTERPRET=1"
)
GATE, UP, BOTH = (
    StackedAdapter(0, WIDE, 5, 2.0),
    StackedAdapter(WIDE, WIDE, 20, 0.5),
    StackedAdapter(0, 2 * WIDE, 5, 2.0),
)
DOWN = StackedAdapter(0, HIDDEN, 7, 1.5)


def linear(generator, outputs, inputs, *adapters, bias=False):
    stack = Stack(outputs, inputs, adapters)
    matrix = torch.randn(stack.buffer_shape, generator=generator) / 8
    a = [torch.randn(one.rank, inputs, generator=generator) / 8 for one in adapters]
    stack.fill(matrix, a, [torch.randn(one.rows, one.rank, generator=generator) / 8 for one in adapters])
    vector = torch.randn(outputs, generator=generator).to(DEVICE) if bias else None
    made = StackedLinear(stack, ResidentWeight(matrix.to(DEVICE)), vector)
    made.gradients = AdapterGradients(
        [torch.ones(one.rank, inputs, device=DEVICE) for one in adapters],
        [torch.ones(one.rows, one.rank, device=DEVICE) for one in adapters],
    )
    return made


def differentiate(gate_up_adapters, down_adapters, *, fuse, drop=None):
    """Output, gradient of the input and of all adapters; and what was fused."""
    generator = torch.Generator().manual_seed(0)
    gate_up = linear(generator, 2 * WIDE, HIDDEN, *gate_up_adapters)
    down = linear(generator, HIDDEN, WIDE, *down_adapters, bias=True)
    down.drop = drop
    x, dy = gate_up.new_input(TOKENS, gate_up.frozen.buffer()), down.new_gradient(TOKENS, down.frozen.buffer())
    for tensor, width in ((x, HIDDEN), (dy, HIDDEN)):
        tensor[:, :width] = torch.randn(TOKENS, width, generator=generator).to(DEVICE)
    stacked = gate_up.forward(x)
    activated = down.new_input(TOKENS, x)
    out = torch.full((TOKENS, HIDDEN), torch.nan, device=DEVICE)
    fused = [fuse and fused_mlp.forward(down, stacked, activated, activation="silu", out=out)]
    if not fused[0]:
        assert out.isnan().all()
        swiglu.forward(stacked, activation="silu", out=activated[:, :WIDE])
        out = down.forward(activated)
    dact, dstacked = down.input_gradient(dy), gate_up.new_gradient(TOKENS, x)
    into, xa = dstacked[:, : 2 * WIDE], gate_up.adapted_input(x)
    fused.append(fuse and fused_mlp.backward(down, gate_up, dy, dact, stacked, xa, activation="silu", out=into))
    if not fused[1]:
        swiglu.backward(dact, stacked, activation="silu", out=into)
    down.accumulate(dy, None if fused[1] else activated[:, :WIDE], down.adapted_input(activated))
    dx = gate_up.input_gradient(dstacked)
    gate_up.accumulate(dstacked, x[:, :HIDDEN], None if fused[1] else xa)
    lists = (gate_up.gradients.a, gate_up.gradients.b, down.gradients.a, down.gradients.b)
    return [out, dx, *(one for gradients in lists for one in gradients)], fused


@pytest.mark.quick_cases(1)
@kernels
@pytest.mark.parametrize(
    ("gate_up", "down"),
    [((GATE, UP), (DOWN,)), ((GATE,), ()), ((UP,), (DOWN,)), ((), (DOWN,)), ((BOTH,), (DOWN,)), ((BOTH,), ())],
)
def test_both_ways_agree(gate_up, down, monkeypatch):
    monkeypatch.setattr(adapted, "fills", lambda tokens: True)
    found, fused = differentiate(gate_up, down, fuse=True)
    assert fused == [bool(down), True]
    for ours, theirs in zip(found, differentiate(gate_up, down, fuse=False)[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.full
@kernels
def test_what_the_kernels_do_not_do_is_left_alone(monkeypatch):
    assert differentiate((GATE,), (DOWN,), fuse=True)[1] == [False, True]  # too few tokens for whole rows
    monkeypatch.setattr(adapted, "fills", lambda tokens: True)
    drop = Dropout(0.5, torch.zeros(1, dtype=torch.int64, device=DEVICE), 0)
    assert differentiate((GATE,), (DOWN,), fuse=True, drop=drop)[1] == [False, False]
    assert differentiate((GATE,), (StackedAdapter(0, HIDDEN, 65, 1.0),), fuse=True)[1] == [False, False]
    assert differentiate((StackedAdapter(8, WIDE, 5, 1.0),), (), fuse=True)[1] == [False, False]  # half gate, half up
    assert differentiate((), (), fuse=True)[1] == [False, False]


@pytest.mark.skipif(DEVICE == "cuda" or os.environ.get("TRITON_INTERPRET") == "1", reason="has kernels")
def test_without_kernels_nothing_is_fused(monkeypatch):
    monkeypatch.setattr(adapted, "fills", lambda tokens: True)
    assert differentiate((GATE, UP), (DOWN,), fuse=True)[1] == [False, False]
