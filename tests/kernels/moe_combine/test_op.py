"""The sum over a token's experts: its order, its rounding, and refusals."""

import pytest
import torch

from burnish_kernels.moe_combine.op import combine
from burnish_kernels.moe_sort.op import sort_by_expert

ORDER = sort_by_expert(torch.tensor([[1, 0, 2], [2, 1, 0]], dtype=torch.int32), 3, tile_rows=4)
Y = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def reference(monkeypatch):
    """The path without a GPU; kernels have cases of their own."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def test_rows_come_back_to_their_tokens():
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    found = combine(Y, ORDER, weights_Tk=weights)
    assert torch.equal(found[0], Y[ORDER.inverse[0]])
    assert torch.equal(found[1], Y[ORDER.inverse[5]])


def test_without_weights_it_undoes_a_gather():
    x = torch.randn(2, 8).requires_grad_()
    x[ORDER.order.long() // 3].backward(Y)
    torch.testing.assert_close(combine(Y, ORDER), x.grad)


def test_the_sum_is_rounded_once():
    y = Y.bfloat16()
    wide = combine(y, ORDER, out=torch.empty(2, 8))
    assert torch.equal(combine(y, ORDER), wide.bfloat16())
    assert torch.equal(combine(y, ORDER, add_TH=wide.clone(), out=torch.empty(2, 8)), wide + wide)


def test_a_factor_of_what_is_added_rounds_the_product_first():
    add, scale = (Y[:2] * 1.01).bfloat16(), torch.tensor([0.3, 0.7], dtype=torch.bfloat16)
    found = combine(Y.bfloat16(), ORDER, add_TH=add, scale_T=scale)
    assert torch.equal(found, combine(Y.bfloat16(), ORDER, add_TH=add * scale[:, None]))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"y_PH": Y[:5]}, "y must"),
        ({"weights_Tk": torch.ones(3, 2)}, "weights"),
        ({"add_TH": torch.zeros(2, 9)}, "add"),
        ({"scale_T": torch.ones(2)}, "scale"),
        ({"add_TH": Y[:2], "scale_T": torch.ones(3)}, "scale"),
        ({"out": torch.zeros(2, 8, dtype=torch.float16)}, "out"),
    ],
)
def test_what_does_not_fit_is_named(changes, named):
    with pytest.raises(ValueError, match=named):
        combine(**{"y_PH": Y, "order": ORDER} | changes)
