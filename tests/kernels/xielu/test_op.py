"""xIELU equals transformers' activation, writes where it is told to, and refuses what it cannot do."""

import pytest
import torch
from transformers.activations import XIELUActivation

from burnish_kernels.xielu.op import backward, forward
from burnish_kernels.xielu.reference import constants

X, CONSTANTS = torch.zeros(2, 4), torch.tensor([0.8, 1.1, 0.5, -1e-6])


def made(dtype=torch.float32, alpha_p=0.7, alpha_n=1.9):
    """Transformers' activation with parameters unlike its first ones, and our constants of it."""
    theirs = XIELUActivation(dtype=dtype)
    with torch.no_grad():
        theirs.alpha_p.fill_(alpha_p)
        theirs.alpha_n.fill_(alpha_n)
        theirs.beta.fill_(0.4)
    return theirs, constants(*(one.detach() for one in (theirs.alpha_p, theirs.alpha_n, theirs.beta, theirs.eps)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"x_TI": torch.zeros(8)}, "T, I"),
        ({"x_TI": torch.zeros(4, 2).t()}, "contiguous"),
        ({"constants_4": torch.zeros(3)}, "constants"),
        ({"constants_4": torch.zeros(4, dtype=torch.bfloat16)}, "constants"),
        ({"out": torch.zeros(2, 8)}, "out"),
        ({"out": torch.zeros(2, 4, dtype=torch.float16)}, "out"),
        ({"dact_TI": torch.zeros(3, 4)}, "dact"),
        ({"act_out": torch.zeros(2, 8)}, "act_out"),
    ],
)
def test_bad_arguments_are_named(change, words):
    operands = {"x_TI": X, "constants_4": CONSTANTS}
    with pytest.raises(ValueError, match=words):
        if change.keys() & {"dact_TI", "act_out"}:
            backward(**{"dact_TI": X, **operands, **change})
        else:
            forward(**operands | change)


def test_no_rows_is_no_error():
    assert backward(forward(X[:0], CONSTANTS), X[:0], CONSTANTS).shape == (0, 4)


def test_result_and_gradient_are_transformers():
    theirs, ours = made()
    x = torch.cat([torch.linspace(-9, 9, 40), torch.tensor([0.0, -0.0, -5e-7, -2e-6, 1e-7])])[None].requires_grad_()
    dact = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(forward(x.detach(), ours), theirs(x).detach())
    (exact,) = torch.autograd.grad(theirs(x), x, dact)
    torch.testing.assert_close(backward(dact, x.detach(), ours), exact)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_constants_are_rounded_as_transformers_rounds_them(dtype):
    theirs, ours = made(dtype)
    # x = 1 gives square + beta, and far below 0 each x gives exponential times (-1 - x), and beta times x.
    above, below = torch.tensor([[1.0]], dtype=dtype), torch.tensor([[-128.0]], dtype=dtype)
    assert torch.equal(forward(above, ours), theirs(above).detach())
    torch.testing.assert_close(forward(below, ours), theirs(below).detach())
    assert ours.dtype == torch.float32
    assert torch.equal(ours, ours.to(dtype).float())


def test_extreme_inputs_stay_finite():
    x = torch.tensor([[-1e4, -100.0, 1e4]])
    assert forward(x, CONSTANTS).isfinite().all()
    assert backward(torch.ones_like(x), x, CONSTANTS).isfinite().all()


def test_results_are_written_into_the_views_given():
    x, dact = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(1)).unbind()
    act, gradient = forward(x, CONSTANTS), backward(dact, x, CONSTANTS)
    wide = torch.full((3, 12), 7.0)
    assert forward(x, CONSTANTS, out=wide[:, :8]).data_ptr() == wide.data_ptr()
    assert torch.equal(wide[:, :8], act)
    assert (wide[:, 8:] == 7).all()
    read, upstream = x.clone(), dact.clone()
    assert backward(upstream, read, CONSTANTS, out=read, act_out=upstream) is read
    assert torch.equal(read, gradient)
    assert torch.equal(upstream, act)
