"""The gated short convolution: transformers' operator, documents that know nothing of each other, and refusals."""

import pytest
import torch
from torch.nn import functional

from burnish_kernels.short_conv.op import backward, forward

START, END = torch.tensor([0, 0, 0, 3, 4, 4], dtype=torch.int32), torch.tensor([3, 3, 3, 4, 6, 6], dtype=torch.int32)
BCX, WEIGHT = torch.randn(6, 24, generator=torch.Generator().manual_seed(0)), torch.randn(8, 3)


@pytest.fixture(autouse=True)
def reference(monkeypatch):
    """The path without a GPU; kernels have cases of their own."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_document_gives_the_bits_of_a_padded_convolution(dtype):
    """As in `Lfm2ShortConv`, each product rounded."""
    bcx, weight, bias = BCX.to(dtype), WEIGHT.to(dtype), torch.randn(8).to(dtype)
    b, c, x = bcx.t().chunk(3)
    wanted = functional.conv1d((b * x)[None], weight[:, None], bias, padding=2, groups=8)[0, :, : len(bcx)]
    whole = torch.zeros(6, dtype=torch.int32)
    torch.testing.assert_close(forward(bcx, weight, whole, bias_H=bias), (c * wanted).t())


def test_packed_documents_are_those_alone_bit_for_bit():
    gradient = torch.randn(6, 8)
    together = forward(BCX, WEIGHT, START), backward(gradient, BCX, WEIGHT, START, END)
    for first, end in ((0, 3), (3, 4), (4, 6)):
        own, length = slice(first, end), end - first
        edges = torch.zeros(length, dtype=torch.int32), torch.full((length,), length, dtype=torch.int32)
        alone = forward(BCX[own], WEIGHT, edges[0]), backward(gradient[own], BCX[own], WEIGHT, *edges)
        assert all(torch.equal(one[own], other) for one, other in zip(together, alone, strict=True))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"bcx_TC": torch.zeros(6, 25)}, "bcx"),
        ({"weight_HL": torch.zeros(8, 17)}, "taps"),
        ({"weight_HL": torch.zeros(3, 8).t()}, "contiguous"),
        ({"start_T": START.long()}, "start"),
        ({"start_T": START[:5]}, "start"),
        ({"bias_H": torch.zeros(7)}, "bias"),
        ({"out": torch.zeros(6, 9)}, "out"),
        ({"out": torch.zeros(8, 6).t()}, "contiguous"),
    ],
)
def test_operands_that_do_not_fit_are_named(changes, named):
    with pytest.raises(ValueError, match=named):
        forward(**{"bcx_TC": BCX, "weight_HL": WEIGHT, "start_T": START} | changes)


def test_gradients_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match="dy"):
        backward(torch.zeros(6, 9), BCX, WEIGHT, START, END)
    with pytest.raises(ValueError, match="out"):
        backward(torch.zeros(6, 8), BCX, WEIGHT, START, END, out=torch.zeros(6, 8))
