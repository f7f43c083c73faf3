"""The gated RMSNorm: transformers' module in its own roundings, its gradient, refusals."""

import pytest
import torch

from burnish_kernels.gated_norm import reference
from burnish_kernels.gated_norm.op import backward, forward

O, Z = (torch.randn(5, 24, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
WEIGHT = torch.linspace(0.5, 1.5, 8)


@pytest.fixture(autouse=True)
def without_kernels(monkeypatch):
    """The path without a GPU; kernels have cases of their own."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_gives_the_bits_of_transformers_norm(dtype):
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5RMSNormGated

    norm = Qwen3_5RMSNormGated(8, eps=1e-6).to(dtype)
    norm.weight.data.copy_(WEIGHT)
    o, z = O.to(dtype), Z.to(dtype)
    wanted = norm(o.reshape(-1, 8), z.reshape(-1, 8)).detach().reshape(5, 24)
    assert torch.equal(forward(o, z, WEIGHT.to(dtype), eps=1e-6), wanted)


def test_the_gradients_are_those_of_autograd():
    leaves, dy = [O.double().requires_grad_(), Z.double().requires_grad_()], torch.randn(5, 24).double()
    wanted = torch.autograd.grad(reference.forward(*leaves, WEIGHT.double(), eps=1e-6), leaves, dy)
    found = backward(dy, O.double(), Z.double(), WEIGHT.double(), eps=1e-6)
    torch.testing.assert_close(found, wanted)


def test_results_may_take_the_place_of_the_inputs():
    dy = torch.randn(5, 24)
    wanted = backward(dy, O, Z, WEIGHT, eps=1e-6)
    o, z = O.clone(), Z.clone()
    backward(dy, o, z, WEIGHT, eps=1e-6, do_out=o, dz_out=z)
    assert torch.equal(o, wanted[0])
    assert torch.equal(z, wanted[1])


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"o_TJ": torch.zeros(5, 25)}, "heads of 8"),
        ({"z_TJ": torch.zeros(5, 16)}, "z must"),
        ({"weight_E": WEIGHT.double()}, "weight"),
        ({"out": torch.zeros(24, 5).t()}, "contiguous"),
    ],
)
def test_operands_that_do_not_fit_are_named(changes, named):
    with pytest.raises(ValueError, match=named):
        forward(**{"o_TJ": O, "z_TJ": Z, "weight_E": WEIGHT, "eps": 1e-6} | changes)
