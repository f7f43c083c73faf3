"""The experts' activation: transformers' functions, the gradient at bounds, and refusals."""

import pytest
import torch
from torch.nn import functional
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssConfig, GptOssExperts

from burnish_kernels.moe_act.op import GPT_OSS, ExpertActivation, backward, forward
from burnish_kernels.moe_sort.op import sort_by_expert

GATE_UP = torch.randn(8, 12, generator=torch.Generator().manual_seed(0)) * 5
ORDER = sort_by_expert(torch.tensor([[0, 2], [1, 2], [2, 0], [0, 1]], dtype=torch.int32), 3, tile_rows=4)
WEIGHTS = torch.rand(4, 2, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def reference(monkeypatch):
    """The path without a GPU; kernels have cases of their own."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def test_the_clamped_activation_is_that_of_gpt_oss():
    experts = GptOssExperts(GptOssConfig(hidden_size=8, intermediate_size=6, num_local_experts=2))
    torch.testing.assert_close(forward(GATE_UP, GPT_OSS), experts._apply_gate(GATE_UP))


def test_halves_and_interleaved_ones_are_the_same_numbers():
    gate, up = GATE_UP.chunk(2, dim=1)
    alternating = torch.stack((gate, up), dim=2).flatten(1)
    assert torch.equal(forward(GATE_UP, ExpertActivation()), forward(alternating, ExpertActivation(interleaved=True)))
    torch.testing.assert_close(forward(GATE_UP, ExpertActivation()), functional.silu(gate) * up)


def test_a_value_at_its_bound_passes_its_gradient_on_and_one_beyond_does_not():
    gate_up = torch.tensor([[7.0, 7.0], [8.0, 1.0], [1.0, -8.0], [1.0, -7.0]])
    order = sort_by_expert(torch.zeros(4, 1, dtype=torch.int32), 1)
    found, _ = backward(torch.ones(4, 1), gate_up, torch.ones(4, 1), order, GPT_OSS)
    assert (found != 0).tolist() == [[True, True], [False, True], [True, False], [True, True]]


def test_the_weights_gradient_holds_the_second_maps_bias():
    torch.manual_seed(0)
    down, bias, dout = torch.randn(3, 5, 6), torch.randn(3, 5), torch.randn(4, 5)
    ids = torch.tensor([[0, 2], [1, 2], [2, 0], [0, 1]], dtype=torch.int32)
    rows = ORDER.order.long()
    expert_of_row = ids.view(-1)[rows].long()
    weights, gate_up = WEIGHTS.clone().requires_grad_(), GATE_UP.clone().requires_grad_()
    outputs = torch.einsum("pi,phi->ph", forward(gate_up, GPT_OSS), down[expert_of_row]) + bias[expert_of_row]
    (outputs * weights.view(-1)[rows, None] * dout[rows // 2]).sum().backward()
    dact = torch.einsum("ph,phi->pi", dout[rows // 2], down[expert_of_row])
    found, dweights = backward(dact, GATE_UP, WEIGHTS, ORDER, GPT_OSS, dout_TH=dout, bias_EH=bias, ids_Tk=ids)
    torch.testing.assert_close(found, gate_up.grad)
    torch.testing.assert_close(dweights, weights.grad)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"gate_up_PJ": torch.zeros(8, 11)}, "gate_up"),
        ({"dact_PI": torch.zeros(8, 5)}, "dact"),
        ({"weights_Tk": torch.zeros(8)}, "weights"),
        ({"out": torch.zeros(12, 8).t()}, "out"),
        ({"dout_TH": torch.zeros(4, 5)}, "bias"),
        ({"activation": ExpertActivation("relu")}, "relu"),
    ],
)
def test_what_does_not_fit_is_named(changes, named):
    given = {"dact_PI": torch.zeros(8, 6), "gate_up_PJ": GATE_UP, "weights_Tk": WEIGHTS, "order": ORDER}
    with pytest.raises(ValueError, match=named):
        backward(**given | {"activation": ExpertActivation()} | changes)
