"""Arguments of gathering rows; its results are tested with all operations'."""

import pytest
import torch

from burnish_kernels.gather import op

TABLE = torch.randn(6, 4)


def test_rows_come_in_the_order_asked_for():
    ids = torch.tensor([5, 0, 5, 2])
    assert torch.equal(op.gather_rows(TABLE, ids), TABLE[ids])
    assert op.gather_rows(TABLE, ids[:0]).shape == (0, 4)


@pytest.mark.parametrize(
    ("table", "ids", "words"),
    [
        (TABLE.t(), torch.tensor([0]), "columns side by side"),
        (TABLE[0], torch.tensor([0]), "columns side by side"),
        (TABLE, torch.tensor([[0]]), "int32 or int64"),
        (TABLE, torch.tensor([0.0]), "int32 or int64"),
        (TABLE, torch.zeros(1, dtype=torch.int64, device="meta"), "not page-locked"),
    ],
)
def test_what_does_not_fit_is_refused(table, ids, words):
    with pytest.raises(ValueError, match=words):
        op.gather_rows(table, ids)


@pytest.mark.parametrize("out", [torch.empty(2, 4), torch.empty(1, 4, dtype=torch.float64), torch.empty(4, 8).t()[:1]])
def test_the_place_for_the_result_must_fit(out):
    with pytest.raises(ValueError, match="out must be"):
        op.gather_rows(TABLE, torch.tensor([0]), out)
