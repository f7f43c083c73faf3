"""Routing: transformers' routers bit for bit, ties, gradients through the weights, and refusals."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssConfig, GptOssTopKRouter
from transformers.models.lfm2_moe.modeling_lfm2_moe import Lfm2MoeConfig, Lfm2MoeTopKRouter
from transformers.models.mixtral.modeling_mixtral import MixtralConfig, MixtralTopKRouter
from transformers.models.olmoe.modeling_olmoe import OlmoeConfig, OlmoeTopKRouter
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeConfig, Qwen3MoeTopKRouter

from burnish_kernels.moe_route.op import Router, backward, forward

EXPERTS, HIDDEN = 12, 16
LOCAL = {"num_local_experts": EXPERTS, "num_experts_per_tok": 3, "hidden_size": HIDDEN}
OWN = {"num_experts": EXPERTS, "num_experts_per_tok": 3, "hidden_size": HIDDEN}
LFM2 = OWN | {"num_hidden_layers": 1, "layer_types": ["conv"], "routed_scaling_factor": 1.7, "use_expert_bias": True}
THEIRS = {
    "qwen3": (Qwen3MoeTopKRouter, Qwen3MoeConfig(**OWN, norm_topk_prob=True), Router("softmax_topk", 3)),
    "olmoe": (OlmoeTopKRouter, OlmoeConfig(**OWN), Router("softmax_topk", 3, normalize=False)),
    "mixtral": (MixtralTopKRouter, MixtralConfig(**LOCAL), Router("softmax_topk", 3, rounded=False)),
    "gpt-oss": (GptOssTopKRouter, GptOssConfig(**LOCAL), Router("topk_softmax", 3)),
    "lfm2": (Lfm2MoeTopKRouter, Lfm2MoeConfig(**LFM2), Router("sigmoid", 3, scale=1.7)),
}


@pytest.fixture(autouse=True)
def reference(monkeypatch):
    """The path without a GPU; kernels have cases of their own."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def theirs(name, dtype, hidden):
    """A router of transformers with random weights, what it returns, and the bias on its selection."""
    kind, config, _ = THEIRS[name]
    torch.manual_seed(3)
    module = kind(config).to(dtype)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    bias = torch.randn(EXPERTS) * 0.2 if name == "lfm2" else None
    return module, module(hidden, bias) if name == "lfm2" else module(hidden), bias


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", THEIRS)
def test_experts_and_weights_are_those_of_transformers_bit_for_bit(name, dtype):
    hidden = torch.randn(50, HIDDEN, generator=torch.Generator().manual_seed(1)).to(dtype)
    _, (logits, weights, ids), bias = theirs(name, dtype, hidden)
    found_ids, found = forward(logits.detach(), THEIRS[name][2], bias_E=bias)
    scores = logits.detach() if bias is None else logits.detach().sigmoid() + bias
    apart = scores.float().sort(descending=True).values.diff().abs()[:, :3].min(dim=1).values > 1e-6
    assert apart.float().mean() > 0.6
    assert torch.equal(found_ids[apart].long(), ids[apart])
    assert torch.equal(found[apart], weights.detach().float()[apart])


@pytest.mark.parametrize("name", THEIRS)
def test_the_gradient_is_that_of_transformers(name):
    hidden = torch.randn(30, HIDDEN, generator=torch.Generator().manual_seed(2)).requires_grad_()
    module, (logits, weights, _), bias = theirs(name, torch.float32, hidden)
    dweights = torch.randn(weights.shape, generator=torch.Generator().manual_seed(3))
    (wanted,) = torch.autograd.grad(weights, hidden, dweights)
    ids, _ = forward(logits.detach(), THEIRS[name][2], bias_E=bias)
    dlogits = backward(dweights, logits.detach(), ids, THEIRS[name][2])
    torch.testing.assert_close(functional.linear(dlogits, module.weight.t()), wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ["softmax_topk", "topk_softmax", "sigmoid"])
def test_equal_scores_go_to_the_lower_index(kind):
    logits = torch.tensor([[0.0, 1.0, 1.0, 0.0, 1.0, 0.0]])
    assert forward(logits, Router(kind, 4))[0].tolist() == [[1, 2, 4, 0]]


@pytest.mark.parametrize(("rounded", "chosen"), [(True, 0), (False, 1)])
def test_sigmoids_are_compared_as_they_are_rounded(rounded, chosen):
    logits = torch.tensor([[6.0, 6.03125]]).bfloat16()
    assert forward(logits, Router("sigmoid", 1, rounded=rounded))[0].tolist() == [[chosen]]


def test_the_bias_selects_and_does_not_weigh():
    logits = torch.tensor([[3.0, 0.0, -1.0]])
    ids, weights = forward(logits, Router("sigmoid", 1, normalize=False), bias_E=torch.tensor([0.0, 0.0, 5.0]))
    assert ids.tolist() == [[2]]
    assert weights[0, 0] == torch.sigmoid(torch.tensor(-1.0))


@pytest.mark.parametrize(
    ("logits", "router", "bias", "named"),
    [
        (torch.zeros(2, 4), Router("softmax_topk", 5), None, "experts"),
        (torch.zeros(2, 4), Router("softmax_topk", 0), None, "experts"),
        (torch.zeros(2, 4), replace(Router("sigmoid", 1), kind="hash"), None, "hash"),
        (torch.zeros(2, 4), Router("softmax_topk", 2), torch.zeros(4), "sigmoid"),
        (torch.zeros(2, 4), Router("sigmoid", 2), torch.zeros(3), "bias"),
        (torch.zeros(4, 2).t(), Router("sigmoid", 2), None, "side by side"),
    ],
)
def test_what_does_not_fit_is_named(logits, router, bias, named):
    with pytest.raises(ValueError, match=named):
        forward(logits, router, bias_E=bias)
