"""RMSNorm equals transformers' modules, writes where it is told to, and refuses what it cannot compute."""

import pytest
import torch
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from burnish_kernels.rms_norm import reference
from burnish_kernels.rms_norm.op import MAX_HIDDEN, backward, forward

X, W = torch.zeros(2, 4), torch.ones(4)
BAD_FORWARD = [
    ({"x_TH": torch.zeros(2, 3, 4)}, "T, H"),
    ({"x_TH": torch.zeros(1, MAX_HIDDEN + 1)}, "T, H"),
    ({"x_TH": torch.zeros(4, 2).t()}, "contiguous"),
    ({"x_TH": torch.zeros(2, 4, dtype=torch.int32)}, "x must be|weight must be"),
    ({"weight_H": torch.ones(3)}, "weight"),
    ({"weight_H": torch.ones(4, dtype=torch.float16)}, "weight"),
    ({"weight_H": torch.ones(8)[::2]}, "weight"),
    ({"residual_TH": torch.zeros(2, 3)}, "residual"),
    ({"residual_TH": torch.zeros(2, 4, dtype=torch.float16)}, "residual"),
    ({"out": torch.zeros(1, 4)}, "out"),
    ({"out": torch.zeros(2, 8)[:, ::2]}, "each row of out"),
    ({"sum_out": torch.zeros(2, 4)}, "without a residual"),
    ({"residual_TH": X, "sum_out": torch.zeros(2, 5)}, "sum_out"),
]
BAD_BACKWARD = [
    ({"dy_TH": torch.zeros(2, 3)}, "dy"),
    ({"inverse_T": torch.ones(3)}, "inverse"),
    ({"inverse_T": torch.ones(2, dtype=torch.float16)}, "inverse"),
    ({"dsum_TH": torch.zeros(2, 4, dtype=torch.float16)}, "dsum"),
    ({"out": torch.zeros(3, 4)}, "out"),
    ({"y_out": torch.zeros(4, 2).t()}, "y_out"),
]


@pytest.mark.parametrize(("change", "words"), BAD_FORWARD)
def test_bad_arguments_are_named(change, words):
    with pytest.raises(ValueError, match=words):
        forward(**{"x_TH": X, "weight_H": W, "eps": 1e-5, **change})


@pytest.mark.parametrize(("change", "words"), BAD_BACKWARD)
def test_bad_arguments_of_the_gradient_are_named(change, words):
    with pytest.raises(ValueError, match=words):
        backward(**{"dy_TH": X, "sum_TH": X, "weight_H": W, "inverse_T": torch.ones(2), **change})


def test_no_rows_is_no_error():
    x, weight = torch.zeros(0, 8), torch.ones(8)
    y, total, inverse = forward(x, weight, eps=1e-5)
    assert backward(y, total, weight, inverse).shape == (0, 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("module", [LlamaRMSNorm, Gemma3RMSNorm])
def test_reference_has_the_roundings_of_transformers(module, dtype):
    torch.manual_seed(0)
    x, weight = (torch.randn(13, 576) * 3).to(dtype), torch.randn(576).to(dtype)
    norm = module(576, eps=1e-6)
    norm.weight = torch.nn.Parameter(weight)
    y, total, _ = reference.forward(x, weight, eps=1e-6, one_plus_weight=module is Gemma3RMSNorm)
    assert torch.equal(y, norm(x))
    assert total is x


@pytest.mark.parametrize("one_plus", [False, True])
def test_written_out_gradient_is_that_of_autograd(one_plus):
    torch.manual_seed(1)
    x, residual, dy, dsum = (torch.randn(5, 7, dtype=torch.float64, requires_grad=True) for _ in range(4))
    weight = torch.randn(7, dtype=torch.float64)
    y, total, inverse = reference.forward(x, weight, eps=1e-3, residual_TH=residual, one_plus_weight=one_plus)
    exact = torch.autograd.grad([y, total], residual, [dy, dsum])[0]
    found = reference.backward(dy, total, weight, inverse, dsum_TH=dsum, one_plus_weight=one_plus)
    torch.testing.assert_close(found, exact)


def test_results_are_written_into_the_views_given():
    torch.manual_seed(3)
    x, residual, dy, weight = torch.randn(3, 8), torch.randn(3, 8), torch.randn(3, 8), torch.randn(8)
    y, total, inverse = forward(x, weight, eps=1e-5, residual_TH=residual)
    wide, stream = torch.full((3, 12), 7.0), residual.clone()
    again, again_total, _ = forward(x, weight, eps=1e-5, residual_TH=stream, out=wide[:, :8], sum_out=stream)
    assert again.data_ptr() == wide.data_ptr()
    assert again_total is stream
    assert torch.equal(wide[:, :8], y)
    assert torch.equal(stream, total)
    assert (wide[:, 8:] == 7).all()

    dx = backward(dy, total, weight, inverse, dsum_TH=residual)
    dsum, wide = residual.clone(), torch.full((3, 12), 7.0)
    assert backward(dy, total, weight, inverse, dsum_TH=dsum, out=dsum, y_out=wide[:, :8]) is dsum
    assert torch.equal(dsum, dx)
    assert torch.equal(wide[:, :8], y)
    assert (wide[:, 8:] == 7).all()


@pytest.mark.full
def test_a_row_does_not_depend_on_its_neighbors():
    torch.manual_seed(4)
    x, weight = torch.randn(5, 96).bfloat16(), torch.randn(96).bfloat16()
    together = forward(x, weight, eps=1e-5)[0]
    alone = torch.cat([forward(row[None], weight, eps=1e-5)[0] for row in x])
    assert torch.equal(together, alone)
