"""The short convolution with SiLU: transformers' operator, documents that know nothing of each other, steps, refusals."""

import pytest
import torch
from torch.nn import functional

from burnish_kernels.conv_silu.op import backward, forward, step

START = torch.tensor([0, 0, 0, 3, 4, 4], dtype=torch.int32)
X, WEIGHT = torch.randn(6, 8, generator=torch.Generator().manual_seed(0)), torch.randn(8, 4)


@pytest.fixture(autouse=True)
def reference(monkeypatch):
    """The path without a GPU; kernels have cases of their own."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_document_gives_the_bits_of_a_padded_convolution(dtype):
    x, weight = X.to(dtype), WEIGHT.to(dtype)
    wanted = functional.silu(functional.conv1d(x.t()[None], weight[:, None], padding=3, groups=8)[0, :, :6]).t()
    torch.testing.assert_close(forward(x, weight, torch.zeros(6, dtype=torch.int32)), wanted)


def test_the_gradient_is_that_of_autograd():
    leaf, dy = X.clone().requires_grad_(), torch.randn(6, 8)
    (wanted,) = torch.autograd.grad(forward_by_autograd(leaf), leaf, dy)
    torch.testing.assert_close(backward(dy, X, WEIGHT, START), wanted)


def forward_by_autograd(x):
    from burnish_kernels.conv_silu import reference

    return reference.forward(x, WEIGHT, START)


def test_packed_documents_are_those_alone_bit_for_bit():
    dy = torch.randn(6, 8)
    together = forward(X, WEIGHT, START), backward(dy, X, WEIGHT, START)
    for own in (slice(0, 3), slice(3, 4), slice(4, 6)):
        edge = torch.zeros(own.stop - own.start, dtype=torch.int32)
        alone = forward(X[own], WEIGHT, edge), backward(dy[own], X[own], WEIGHT, edge)
        assert all(torch.equal(one[own], other) for one, other in zip(together, alone, strict=True))


def test_steps_give_what_a_whole_document_gives():
    wanted, earlier = forward(X, WEIGHT, torch.zeros(6, dtype=torch.int32)), torch.zeros(1, 3, 8)
    found = torch.cat([step(X[token : token + 1], earlier, WEIGHT) for token in range(6)])
    torch.testing.assert_close(found, wanted)
    assert torch.equal(earlier[0], X[3:])


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"x_TH": torch.zeros(6)}, "x must"),
        ({"weight_HL": torch.zeros(8, 5)}, "taps"),
        ({"weight_HL": torch.zeros(4, 8).t()}, "contiguous"),
        ({"start_T": START.long()}, "start"),
        ({"out": torch.zeros(6, 9)}, "out"),
        ({"out": torch.zeros(8, 6).t()}, "contiguous"),
    ],
)
def test_operands_that_do_not_fit_are_named(changes, named):
    with pytest.raises(ValueError, match=named):
        forward(**{"x_TH": X, "weight_HL": WEIGHT, "start_T": START} | changes)


def test_earlier_inputs_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="earlier"):
        step(X, torch.zeros(6, 4, 8), WEIGHT)
