"""The gate of attention's output equals what transformers computes, and refuses what it cannot do."""

import pytest
import torch

from burnish_kernels.head_gate.op import backward, forward

X, BY_HEAD, BY_NUMBER = torch.zeros(3, 2, 4), torch.zeros(3, 2, 1), torch.zeros(3, 2, 4)


@pytest.mark.parametrize("gate", [torch.randn(5, 3, 1), torch.randn(5, 3, 16)[..., 8:]], ids=["heads", "numbers"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_a_rounded_sigmoid_times_the_heads(gate, dtype):
    leaves = [one.to(dtype).requires_grad_() for one in (torch.randn(5, 3, 8), gate)]
    y, dy = leaves[0] * torch.sigmoid(leaves[1]), torch.randn(5, 3, 8).to(dtype)
    wanted = torch.autograd.grad(y, leaves, dy)
    x, logits = (leaf.detach() for leaf in leaves)
    close = {"rtol": 2e-2, "atol": 1e-2} if dtype == torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(forward(x, logits), y.detach(), **close)
    found = backward(dy, x, logits, dx_out=dy)
    assert found[0] is dy
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, **close)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"x_TND": torch.zeros(3, 8)}, "x must be"),
        ({"x_TND": torch.zeros(3, 4, 4)[:, ::2]}, "heads of each token of x"),
        ({"gate_TNG": torch.zeros(3, 2, 3)}, "gate must be"),
        ({"gate_TNG": BY_HEAD.half()}, "gate must be torch.float32"),
        ({"out": torch.zeros(3, 1, 4)}, "out must be"),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        forward(**{"x_TND": X, "gate_TNG": BY_HEAD, **arguments})


def test_a_gradient_of_other_logits_is_refused():
    with pytest.raises(ValueError, match="same shape"):
        backward(X, X, BY_HEAD, dgate_out=BY_NUMBER)
