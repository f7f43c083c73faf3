"""Mixtures of experts with products in FP8: the numbers of rounded operands, under every plan with the same bits."""

import pytest
import torch

from burnish_engine.contract.recipe.eight_bit_use import EightBitUse
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES
from burnish_engine.models.decoder.experts import expert_linear
from burnish_kernels.grouped_codes.op import expert_scales, grouped_codes, unpack_codes
from burnish_kernels.grouped_linear import reference as grouped_linear

from support.models import parity, tiny_models
from support.models.catalog_models import pack_mxfp4

BATCH = parity.micro_batch()
WAYS = {
    "16 bits": {"eight_bits": EightBitUse("fp8", "fp8")},
    "NF4": {"eight_bits": EightBitUse("", "fp8"), "quantize": True},
}


@pytest.fixture(scope="module", params=tiny_models.MIXTURES)
def folders(request, tmp_path_factory):
    """A tiny checkpoint, gpt-oss's experts in MXFP4, and an adapter of its attention, dense layers and experts."""
    base = tiny_models.make(request.param, tmp_path_factory.mktemp(request.param) / "base")
    if request.param == "gpt-oss":
        pack_mxfp4(base)
    return base, tiny_models.lora(base, base.with_name("adapter"), rank=5, experts=2)


def coded(folders, way, **options):
    return parity.fast(*folders, dtype=torch.bfloat16, **WAYS[way], **options)


def rounded_product(x, weight, scales, order, *, by_token, transposed, out, dtype, scratch, **adapter):
    """The product in double precision of what the codes stand for."""
    dense = unpack_codes(weight, scales, 0, order.experts).double() * scales[:, None, None]
    outputs = dense.shape[2 if transposed else 1]
    found = torch.empty(order.positions, outputs, dtype=torch.float64, device=x.codes.device)
    adapter = {name: None if one is None else one.double() for name, one in adapter.items()}
    rows = x.codes.double() * x.scale[:, None]
    turned = dense.transpose(1, 2) if transposed else dense
    grouped_linear.grouped_linear(rows, turned, order, found, by_token=by_token, **adapter)
    return found.to(dtype) if out is None else out.copy_(found)


@pytest.mark.full
@pytest.mark.parametrize("way", WAYS)
def test_logits_and_gradients_are_those_of_rounded_operands(folders, way, monkeypatch):
    ours = coded(folders, way)
    logits, found = ours.logits(BATCH), ours.gradients(BATCH)
    monkeypatch.setattr(expert_linear, "grouped_codes", rounded_product)
    assert parity.distance(logits, ours.logits(BATCH)) < 0.01
    wanted = ours.gradients(BATCH)
    assert found[0] == pytest.approx(wanted[0], rel=1e-3)
    assert parity.distance(found[1], wanted[1]) < 0.05  # one rounding of an input that falls otherwise: 0.02 to 0.08


@pytest.mark.full
@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_near_those_of_16_bits(folders, way):
    quantize = WAYS[way].get("quantize", False)
    plain = parity.fast(*folders, dtype=torch.bfloat16, quantize=quantize).gradients(BATCH)
    found = coded(folders, way).gradients(BATCH)
    assert found[0] != plain[0]
    assert found[0] == pytest.approx(plain[0], rel=0.02)
    both = [torch.cat([one.flatten() for one in gradients.values()]) for _, gradients in (found, plain)]
    assert torch.cosine_similarity(*both, dim=0) > 0.7  # LFM2's near ties; the others have more than 0.95


@pytest.mark.full
@pytest.mark.parametrize(("way", "tokens"), [("16 bits", 0), ("NF4", 48)])
def test_what_is_kept_does_not_change_a_bit(folders, way, tokens):
    found = []
    for level in LEVEL_NAMES:
        ours = coded(folders, way)
        ours.loaded.decoder.chunk_feed_forward(tokens)
        found.append(ours.gradients(BATCH, level))
    for other in found[1:]:
        same_bits(other, found[0])


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("way", WAYS)
def test_experts_on_the_host_compute_the_same_bits(folders, way):
    here, there = (coded(folders, way, layers_on_host=layers) for layers in (frozenset(), frozenset({0, 1})))
    same_bits(there.gradients(BATCH, "input"), here.gradients(BATCH, "input"))


@pytest.mark.quick_cases(1)
def test_scales_are_those_of_the_weights_and_lie_on_the_device(folders):
    """Those of a streamed layer too, whose weights come later than its scales are needed."""
    for layer in coded(folders, "NF4", layers_on_host=frozenset({0})).loaded.decoder.layers[1:]:
        for stack in layer.weights.experts.stacks.values() if layer.weights.experts else ():
            assert torch.equal(stack.codes.scale_E, expert_scales(stack.weight))
            assert stack.frozen().codes is stack.codes


def nudged_product(*given, **options):
    """The product with one of ten results moved by the last bit of bf16."""
    found = grouped_codes(*given, **options)
    moved = torch.rand(found.shape, generator=torch.Generator().manual_seed(len(found))) < 0.1
    return found.mul_(torch.where(moved, 1 + 2.0**-7, 1.0).to(found))


@pytest.mark.full
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("way", WAYS)
def test_the_kernels_compute_what_rounded_operands_give(folders, way, device, monkeypatch):
    """As far as last bits let one tell: near ties of routers, and codes, amplify them in tiny models."""
    ours = coded(folders, way, device=torch.device(device))
    found, others = ours.gradients(BATCH), {}
    for product in (nudged_product, rounded_product):
        monkeypatch.setattr(expert_linear, "grouped_codes", product)
        others[product] = ours.gradients(BATCH)
    bar = parity.distance(others[nudged_product][1], found[1])
    assert 0 < bar < 0.5
    assert parity.distance(others[rounded_product][1], found[1]) < 2 * bar
    assert others[rounded_product][0] == pytest.approx(found[0], rel=5e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("way", WAYS)
def test_what_is_kept_does_not_change_a_bit_on_a_gpu(folders, way):
    found = [coded(folders, way, device=torch.device("cuda")).gradients(BATCH, level) for level in LEVEL_NAMES]
    for other in found[1:]:
        same_bits(other, found[0])


def same_bits(found, wanted):
    assert found[0] == wanted[0]
    assert all(torch.equal(gradient, wanted[1][name]) for name, gradient in found[1].items())
