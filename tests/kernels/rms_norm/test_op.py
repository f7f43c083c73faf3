"""RMSNorm refuses what it cannot compute."""

import pytest
import torch

from burnish_kernels.rms_norm.op import rms_norm


@pytest.mark.parametrize(
    ("x", "weight", "words"),
    [
        (torch.zeros(2, 3, 4), torch.ones(4), "N, H"),
        (torch.zeros(2, 4), torch.ones(3), "weight"),
        (torch.zeros(2, 4), torch.ones(4, dtype=torch.float16), "weight"),
        (torch.zeros(4, 2).t(), torch.ones(4), "contiguous"),
        (torch.zeros(2, 4), torch.ones(4, requires_grad=True), "frozen"),
    ],
)
def test_bad_arguments_are_named(x, weight, words):
    with pytest.raises(ValueError, match=words):
        rms_norm(x, weight, eps=1e-5)


def test_no_rows_is_no_error():
    x = torch.zeros(0, 8, requires_grad=True)
    y, _ = rms_norm(x, torch.ones(8), eps=1e-5)
    y.sum().backward()
    assert x.grad.shape == (0, 8)
