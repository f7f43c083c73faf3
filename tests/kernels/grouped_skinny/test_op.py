"""The narrow products of the experts' adapters: refusals. What they compute is compared in the cases and in a layer."""

import pytest
import torch

from burnish_kernels.grouped_skinny.op import outer_accumulate, project
from burnish_kernels.moe_sort.op import sort_by_expert

ORDER = sort_by_expert(torch.tensor([[0, 2], [1, 2], [2, 0]], dtype=torch.int32), 4, tile_rows=4)


@pytest.fixture(autouse=True)
def reference(monkeypatch):
    """The path without a GPU; kernels have cases of their own."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"x": torch.zeros(6, 8)}, "x must"),
        ({"matrix_ERC": torch.zeros(3, 2, 8)}, "matrices"),
        ({"matrix_ERC": torch.zeros(4, 2, 8).half()}, "matrices"),
        ({"out": torch.zeros(6, 3)}, "out"),
    ],
)
def test_operands_of_a_projection_that_do_not_fit_are_named(changes, named):
    with pytest.raises(ValueError, match=named):
        project(
            **{"x": torch.zeros(3, 8), "matrix_ERC": torch.zeros(4, 2, 8), "order": ORDER, "by_token": True} | changes
        )


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"p_PR": torch.zeros(5, 2)}, "p must"),
        ({"q": torch.zeros(3, 8)}, "q must"),
        ({"out_ERC": torch.zeros(4, 2, 8).half()}, "fp32"),
        ({"weights_Tk": torch.zeros(2, 3)}, "weights"),
    ],
)
def test_operands_of_an_outer_product_that_do_not_fit_are_named(changes, named):
    given = {"p_PR": torch.zeros(6, 2), "q": torch.zeros(6, 8), "order": ORDER, "out_ERC": torch.zeros(4, 2, 8)}
    with pytest.raises(ValueError, match=named):
        outer_accumulate(**given | {"by_token": False} | changes)
