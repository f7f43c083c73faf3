"""The gated activation equals transformers' functions, writes where it is told to, and refuses what it cannot do."""

import pytest
import torch
from transformers.activations import ACT2FN

from burnish_kernels.swiglu import reference
from burnish_kernels.swiglu.op import ACTIVATIONS, backward, forward

GATE_UP, DACT = torch.zeros(2, 8), torch.zeros(2, 4)
THEIR_NAMES = {"silu": "silu", "gelu_tanh": "gelu_pytorch_tanh", "gelu": "gelu"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"activation": "relu"}, "relu"),
        ({"gate_up_TJ": torch.zeros(2, 7)}, "T, 2I"),
        ({"gate_up_TJ": torch.zeros(2, 0)}, "T, 2I"),
        ({"gate_up_TJ": torch.zeros(8)}, "T, 2I"),
        ({"gate_up_TJ": torch.zeros(8, 2).t()}, "contiguous"),
        ({"out": torch.zeros(2, 8)}, "out"),
        ({"out": torch.zeros(2, 4, dtype=torch.float16)}, "out"),
        ({"out": torch.zeros(4, 2).t()}, "each row of out"),
    ],
)
def test_bad_arguments_are_named(change, words):
    with pytest.raises(ValueError, match=words):
        forward(**{"gate_up_TJ": GATE_UP, "activation": "silu", **change})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"activation": "tanh"}, "tanh"),
        ({"dact_TI": torch.zeros(2, 8)}, "dact"),
        ({"dact_TI": torch.zeros(3, 4)}, "dact"),
        ({"out": torch.zeros(2, 4)}, "out"),
        ({"act_out": torch.zeros(2, 8)}, "act_out"),
        ({"act_out": torch.zeros(2, 4, dtype=torch.bfloat16)}, "act_out"),
    ],
)
def test_bad_arguments_of_the_gradient_are_named(change, words):
    with pytest.raises(ValueError, match=words):
        backward(**{"dact_TI": DACT, "gate_up_TJ": GATE_UP, "activation": "silu", **change})


def test_no_rows_is_no_error():
    act = forward(GATE_UP[:0], activation="silu")
    assert backward(act, GATE_UP[:0], activation="silu").shape == (0, 8)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_equals_transformers(activation):
    torch.manual_seed(0)
    gate, up = (3 * torch.randn(2, 5, 24)).unbind()
    theirs = ACT2FN[THEIR_NAMES[activation]](gate) * up
    torch.testing.assert_close(forward(torch.cat((gate, up), dim=1), activation=activation), theirs)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_written_out_gradient_is_that_of_autograd(activation):
    torch.manual_seed(1)
    gate_up = (4 * torch.randn(5, 14, dtype=torch.float64)).requires_grad_()
    dact = torch.randn(5, 7, dtype=torch.float64)
    (exact,) = torch.autograd.grad(reference.forward(gate_up, activation=activation), gate_up, dact)
    found = torch.cat(reference.backward(dact, gate_up.detach(), activation=activation), dim=1)
    torch.testing.assert_close(found, exact)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_extreme_gates_stay_finite(activation):
    gate = torch.tensor([[-1e4, -100.0, -20.0, -0.0, 0.0, 1e-20, 100.0, 1e4]])
    gate_up = torch.cat((gate, torch.ones_like(gate)), dim=1)
    act = forward(gate_up, activation=activation)
    torch.testing.assert_close(act, gate.clamp(min=0), atol=1e-6, rtol=1e-6)
    gradient = backward(torch.ones_like(gate), gate_up, activation=activation)[:, :8]
    exact = torch.tensor([[0.0, 0.0, 0.0, 0.5, 0.5, 0.5, 1.0, 1.0]])
    torch.testing.assert_close(gradient, exact, atol=1e-6, rtol=1e-6)


@pytest.mark.full
def test_results_are_written_into_the_views_given():
    torch.manual_seed(3)
    gate_up, dact = torch.randn(3, 16), torch.randn(3, 8)
    act, gradient = forward(gate_up, activation="silu"), backward(dact, gate_up, activation="silu")
    wide = torch.full((3, 12), 7.0)
    assert forward(gate_up, activation="silu", out=wide[:, :8]).data_ptr() == wide.data_ptr()
    assert torch.equal(wide[:, :8], act)
    assert (wide[:, 8:] == 7).all()

    stacked, upstream = gate_up.clone(), dact.clone()
    assert backward(upstream, stacked, activation="silu", out=stacked, act_out=upstream) is stacked
    assert torch.equal(stacked, gradient)
    assert torch.equal(upstream, act)
