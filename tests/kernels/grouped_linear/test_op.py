"""The experts' linear maps: a whole layer against transformers, packed weights, and refusals."""

import os

import pytest
import torch
from torch.nn import functional
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeConfig, Qwen3MoeSparseMoeBlock

from burnish_kernels.grouped_linear.op import grouped_linear
from burnish_kernels.grouped_skinny.op import outer_accumulate, project
from burnish_kernels.moe_act import op as moe_act
from burnish_kernels.moe_combine.op import combine
from burnish_kernels.moe_route import op as moe_route
from burnish_kernels.moe_sort.op import sort_by_expert
from burnish_kernels.moe_unpack.cases import random_stack
from burnish_kernels.moe_unpack.op import unpack_group

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
TOKENS, EXPERTS, SLOTS, HIDDEN, SIZE, RANKS, SCALE = 29, 6, 2, 16, 24, 3, 0.5
ORDER = sort_by_expert(torch.tensor([[0, 2], [1, 2], [2, 0]], dtype=torch.int32), 3, tile_rows=4)
X, WEIGHT = torch.randn(3, 16), torch.randn(3, 8, 16)


@pytest.fixture(autouse=True)
def reference(monkeypatch):
    """The path without a GPU; kernels have cases of their own."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def draw(*size, seed=0):
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


def peft_layer(hidden, adapters):
    """Qwen3-MoE's block of transformers with W + s B A for weights."""
    config = Qwen3MoeConfig(hidden_size=HIDDEN, moe_intermediate_size=SIZE, num_experts=EXPERTS,
                            num_experts_per_tok=SLOTS, norm_topk_prob=True)  # fmt: skip
    config._experts_implementation = "eager"
    block = Qwen3MoeSparseMoeBlock(config)
    for index, parameter in enumerate(block.parameters()):
        parameter.data = draw(*parameter.shape, seed=index) * 0.3
    gate_up, down = block.experts.gate_up_proj.data, block.experts.down_proj.data
    a1, b1, a2, b2 = adapters
    del block.experts.gate_up_proj, block.experts.down_proj
    block.experts.gate_up_proj = gate_up + SCALE * b1 @ a1
    block.experts.down_proj = down + SCALE * b2 @ a2
    out = block(hidden)
    return (out[0] if isinstance(out, tuple) else out), block.gate.weight.data, gate_up, down


def layer(x, dout, router_weight, gate_up, down, adapters):
    """Every kernel in its place: output and experts, then the gradients of x and adapters in the order of a layer."""
    router, activation = moe_route.Router("softmax_topk", SLOTS), moe_act.ExpertActivation()
    a1, b1, a2, b2 = adapters
    logits = functional.linear(x, router_weight)
    ids, weights = moe_route.forward(logits, router)
    order = sort_by_expert(ids, EXPERTS, tile_rows=16)
    xa = project(x, a1, order, by_token=True)
    gate_up_rows = grouped_linear(x, gate_up, order, by_token=True, narrow_PR=xa, adapter_ENR=SCALE * b1)
    act = moe_act.forward(gate_up_rows, activation)
    acta = project(act, a2, order, by_token=False)
    y = grouped_linear(act, down, order, by_token=False, narrow_PR=acta, adapter_ENR=SCALE * b2)
    out = combine(y, order, weights_Tk=weights)

    da1, db1, da2, db2 = (torch.zeros(one.shape, device=one.device) for one in adapters)
    dyb = project(dout, SCALE * b2.transpose(1, 2), order, by_token=True)
    options = {"by_token": True, "transposed": True, "narrow_PR": dyb, "adapter_ENR": a2.transpose(1, 2)}
    dact = grouped_linear(dout, down, order, **options)
    dgate_up, dweights = moe_act.backward(dact, gate_up_rows, weights, order, activation)
    outer_accumulate(dyb, act, order, da2, by_token=False, weights_Tk=weights)
    outer_accumulate(acta, dout, order, db2.transpose(1, 2), by_token=True, scale=SCALE, weights_Tk=weights)
    dgb = project(dgate_up, SCALE * b1.transpose(1, 2), order, by_token=False)
    options = {"by_token": False, "transposed": True, "narrow_PR": dgb, "adapter_ENR": a1.transpose(1, 2)}
    dx_rows = grouped_linear(dgate_up, gate_up, order, **options)
    outer_accumulate(dgb, x, order, da1, by_token=True)
    outer_accumulate(xa, dgate_up, order, db1.transpose(1, 2), by_token=False, scale=SCALE)
    dlogits = moe_route.backward(dweights, logits, ids, router)
    dx = combine(dx_rows, order, add_TH=dlogits @ router_weight)
    return out, ids, [dx, da1, db1, da2, db2]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("way", ["kernels", "reference"])
@pytest.mark.parametrize("crowded", [False, True], ids=["spread", "two experts take every token"])
def test_a_layer_and_all_its_gradients_are_those_of_transformers(crowded, way, monkeypatch):
    if way == "kernels":
        if not INTERPRETED:
            pytest.skip("the interpreter is on only where TRITON_INTERPRET=1")
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    x = draw(TOKENS, HIDDEN, seed=9)
    if crowded:
        x = x[:1] + 0.01 * x  # all tokens choose the same experts, the others stay empty
    shapes = ((EXPERTS, RANKS, HIDDEN), (EXPERTS, 2 * SIZE, RANKS), (EXPERTS, RANKS, SIZE), (EXPERTS, HIDDEN, RANKS))
    adapters = [draw(*shape, seed=20 + index) * 0.3 for index, shape in enumerate(shapes)]
    leaves = [x.clone().requires_grad_(), *(one.clone().requires_grad_() for one in adapters)]
    wanted, router_weight, gate_up, down = peft_layer(leaves[0][None], leaves[1:])
    dout = draw(TOKENS, HIDDEN, seed=30)
    gradients = torch.autograd.grad(wanted[0], leaves, dout)

    out, ids, found = layer(x, dout, router_weight, gate_up, down, adapters)
    torch.testing.assert_close(out, wanted[0].detach(), rtol=1e-5, atol=1e-5)
    for ours, exact in zip(found, gradients, strict=True):
        assert (ours - exact).norm() <= 1e-5 * exact.norm()
    assert (torch.bincount(ids.view(-1).long(), minlength=EXPERTS) == 0).any() == crowded


@pytest.mark.gpu
@pytest.mark.parametrize("packed", [False, True], ids=["16 bits", "four bits"])
def test_a_captured_layer_gives_the_bits_of_an_eager_one_for_other_tokens(packed):
    """Nothing is asked of the device while it runs: the graph sorts and multiplies whatever tokens it is given."""
    tokens, hidden, size = 300, 128, 192
    shapes = ((EXPERTS, RANKS, hidden), (EXPERTS, 2 * size, RANKS), (EXPERTS, RANKS, size), (EXPERTS, hidden, RANKS))
    given = [draw(*shape, seed=index).bfloat16().cuda() for index, shape in enumerate(shapes)]
    router_weight = draw(EXPERTS, hidden, seed=5).bfloat16().cuda()
    if packed:
        maps = [random_stack("mxfp4", EXPERTS, *shape, "cuda") for shape in ((2 * size, hidden), (hidden, size))]
    else:
        maps = [draw(EXPERTS, *shape).bfloat16().cuda() for shape in ((2 * size, hidden), (hidden, size))]
    x, dout = (draw(tokens, hidden, seed=index).bfloat16().cuda() for index in (6, 7))
    layer(x, dout, router_weight, *maps, given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, ids, gradients = layer(x, dout, router_weight, *maps, given)
    for seed in (8, 9):
        x.copy_(draw(tokens, hidden, seed=seed))
        graph.replay()
        wanted, wanted_ids, exact = layer(x, dout, router_weight, *maps, given)
        assert torch.equal(ids, wanted_ids)
        assert torch.equal(out, wanted)
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(gradients, exact, strict=True))


@pytest.mark.parametrize("kind", ["nf4", "nf4-double", "mxfp4"])
def test_packed_weights_are_those_unpacked_before(kind):
    stack = random_stack(kind, 3, 8, 64, "cpu")
    x = draw(3, 64).bfloat16()
    dense = unpack_group(stack, 0, 3, dtype=torch.bfloat16)
    wanted = grouped_linear(x, dense, ORDER, by_token=True)
    assert torch.equal(grouped_linear(x, stack, ORDER, by_token=True), wanted)
    scratch = torch.empty(2, 8, 64, dtype=torch.bfloat16)
    assert torch.equal(grouped_linear(x, stack, ORDER, by_token=True, scratch_GNK=scratch), wanted)


def test_scales_of_another_shape_are_named(monkeypatch):
    if not INTERPRETED:
        pytest.skip("the interpreter is on only where TRITON_INTERPRET=1")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    stack = random_stack("nf4-double", 3, 8, 64, "cpu")
    with pytest.raises(ValueError, match="scales"):
        grouped_linear(draw(3, 64), stack, ORDER, by_token=True, scales=torch.zeros(2, 8))


def test_only_rows_of_the_given_experts_are_written():
    out = torch.full((6, 8), 7.0)
    grouped_linear(X, WEIGHT[1:2], ORDER, by_token=True, first=1, out=out)
    own = torch.zeros(6, dtype=torch.bool)
    own[ORDER.offsets[1] : ORDER.offsets[2]] = True
    assert (out[~own] == 7).all()
    assert not (out[own] == 7).any()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"x": X[:2]}, "x must"),
        ({"weight": WEIGHT[0]}, "weights"),
        ({"weight": WEIGHT[:0]}, "experts 0 to 0"),
        ({"weight": WEIGHT.half()}, "float16"),
        ({"first": 1}, "experts 1 to 4"),
        ({"narrow_PR": torch.zeros(6, 2)}, "both"),
        ({"narrow_PR": torch.zeros(5, 2), "adapter_ENR": torch.zeros(3, 8, 2)}, "narrow"),
        ({"narrow_PR": torch.zeros(6, 2), "adapter_ENR": torch.zeros(3, 2, 8)}, "adapter"),
        ({"bias_EN": torch.zeros(3, 16)}, "bias"),
        ({"out": torch.zeros(6, 16)}, "out"),
    ],
)
def test_what_does_not_fit_is_named(changes, named):
    with pytest.raises(ValueError, match=named):
        grouped_linear(**{"x": X, "weight": WEIGHT, "order": ORDER, "by_token": True} | changes)


def test_a_scratch_of_another_shape_is_named():
    with pytest.raises(ValueError, match="scratch"):
        grouped_linear(draw(3, 64), random_stack("mxfp4", 3, 8, 64, "cpu"), ORDER, by_token=True, scratch_GNK=WEIGHT)
