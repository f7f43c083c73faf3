"""Mixtures of experts against transformers and PEFT with eager experts in fp32, and against themselves bit for bit."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES
from burnish_engine.models.decoder.experts.expert_linear import ExpertLinear
from burnish_engine.models.device.precision import exact_products
from burnish_kernels.moe_unpack.op import Mxfp4Experts, unpack_group

from support.models import parity, tiny_models
from support.models.catalog_models import pack_mxfp4

BATCH = parity.micro_batch()


@pytest.fixture(scope="module", params=tiny_models.MIXTURES)
def folders(request, tmp_path_factory):
    """A tiny checkpoint, and an adapter of its attention, dense layers and experts."""
    base = tiny_models.make(request.param, tmp_path_factory.mktemp(request.param) / "base")
    return base, tiny_models.lora(base, base.with_name("adapter"), rank=5, experts=2)


@pytest.fixture(scope="module")
def reference(folders):
    """PEFT's logits of the base, its logits of the tuned model, loss and gradients."""
    tuned = parity.peft(*folders)
    with tuned.disable_adapter():
        plain = parity.peft_logits(tuned, BATCH)
    return plain, parity.peft_logits(tuned, BATCH), *parity.peft_gradients(tuned, BATCH)


def same_gradients(ours, reference, tolerance=1e-5, **options):
    """Compare loss and gradients of ours with PEFT's."""
    _, _, loss, gradients = reference
    our_loss, found = ours.gradients(BATCH, **options)
    assert our_loss == pytest.approx(loss, rel=tolerance)
    wanted = parity.in_memory(gradients, ours.loaded.plan)
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        near = parity.distance(found[name], gradient) < tolerance if gradient.any() else not found[name].any()
        assert near, name


def same_bits(found, wanted):
    """Compare two results of `gradients`."""
    assert found[0] == wanted[0]
    assert all(torch.equal(gradient, wanted[1][name]) for name, gradient in found[1].items())


@pytest.mark.full
def test_logits_are_those_of_transformers_and_peft(folders, reference):
    assert parity.same_logits(parity.fast(folders[0]).logits(BATCH), reference[0], 1e-5)
    assert parity.distance(reference[1], reference[0]) > 0.01
    assert parity.same_logits(parity.fast(*folders).logits(BATCH), reference[1], 1e-5)


@pytest.mark.full
def test_packed_documents_know_nothing_of_each_other(folders):
    ours = parity.fast(*folders)
    alone = torch.cat([ours.logits(one) for one in parity.single(BATCH)])
    assert parity.same_logits(ours.logits(BATCH), alone, 1e-5)
    assert parity.same_logits(ours.logits(BATCH, rows=512), alone, 1e-5)


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("level", ["all", "input"])
def test_gradients_are_those_of_peft(folders, reference, level):
    """Gradients of the attention below the experts come through the router's weights too."""
    same_gradients(parity.fast(*folders), reference, keep=level)


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(("level", "tokens"), [("products", 37), ("narrow", 64)])
def test_gradients_are_those_of_peft_in_chunks(folders, reference, level, tokens, monkeypatch):
    ours = parity.fast(*folders)
    ours.loaded.decoder.chunk_feed_forward(tokens)
    real, rows = ExpertLinear.forward, []

    def forward(self, x, order, **options):
        rows.append(order.positions // order.slots)
        return real(self, x, order, **options)

    monkeypatch.setattr(ExpertLinear, "forward", forward)
    same_gradients(ours, reference, keep=level)
    assert 0 < max(rows) <= tokens


@pytest.mark.full
@pytest.mark.parametrize(("dtype", "tokens"), [(torch.float32, 0), (torch.float32, 48), (torch.bfloat16, 48)])
def test_what_is_kept_does_not_change_a_bit(folders, dtype, tokens):
    ours = parity.fast(*folders, dtype=dtype)
    ours.loaded.decoder.chunk_feed_forward(tokens)
    found = [ours.gradients(BATCH, level) for level in LEVEL_NAMES]
    for other in found[1:]:
        same_bits(other, found[0])


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("quantize", [False, True])
def test_experts_on_the_host_compute_the_same_bits(folders, quantize):
    layers = frozenset({0, 1})
    here, there = (parity.fast(*folders, quantize=quantize, layers_on_host=on_host) for on_host in ((), layers))
    assert torch.equal(there.logits(BATCH), here.logits(BATCH))
    same_bits(there.gradients(BATCH, "input"), here.gradients(BATCH, "input"))


ADAPTERS = {
    "attention": {"targets": ["q_proj", "v_proj"]},
    "experts": {"targets": [], "experts": 3},
    "first maps": {"targets": ["q_proj"], "experts": 2, "stacks": ["gate_up_proj"]},
    "second maps": {"targets": ["q_proj"], "experts": 2, "stacks": ["down_proj"]},
    "rsLoRA": {"targets": ["k_proj"], "experts": 4, "rslora": True},
    "dense": {"targets": ["q_proj", "up_proj", "down_proj"]},
    "DoRA": {"targets": ["q_proj", "gate_proj", "down_proj"], "dora": True},
}


@pytest.mark.full
@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("shape", ["qwen2-moe", "gpt-oss"])
def test_any_adapter_computes_what_peft_computes(bases, tmp_path, shape, name):
    """The router's part of the gradient is there with frozen experts as well."""
    base = bases(shape)
    adapter = tiny_models.lora(base, tmp_path / "adapter", rank=5, **ADAPTERS[name])
    tuned, ours = parity.peft(base, adapter), parity.fast(base, adapter)
    assert parity.same_logits(ours.logits(BATCH), parity.peft_logits(tuned, BATCH), 1e-5)
    same_gradients(ours, (None, None, *parity.peft_gradients(tuned, BATCH)), keep="products")


@pytest.mark.full
@pytest.mark.parametrize("favored", [[0, 1], [3, 2]])
def test_some_experts_take_all_tokens(bases, tmp_path, favored):
    """The others have no rows, and no gradients."""
    base = bases("gpt-oss")
    tensors = load_file(base / "model.safetensors")
    for name in [name for name in tensors if name.endswith("router.bias")]:
        tensors[name] = torch.tensor([50.0 if expert in favored else -50.0 for expert in range(4)])
    uneven = tmp_path / "base"
    uneven.mkdir()
    (uneven / "config.json").write_bytes((base / "config.json").read_bytes())
    save_file(tensors, uneven / "model.safetensors", metadata={"format": "pt"})
    adapter = tiny_models.lora(uneven, tmp_path / "adapter", rank=5, experts=2)
    tuned, ours = parity.peft(uneven, adapter), parity.fast(uneven, adapter)
    same_gradients(ours, (None, None, *parity.peft_gradients(tuned, BATCH)))
    _, found = ours.gradients(BATCH)
    empty = [expert for expert in range(4) if expert not in favored]
    of_experts = [gradient for name, gradient in found.items() if ".experts." in name]
    assert of_experts
    assert not any(gradient[empty].any() for gradient in of_experts)
    assert all(gradient[favored].any() for gradient in of_experts)


@pytest.mark.full
@pytest.mark.parametrize("shape", ["qwen2-moe", "lfm2-moe", "gpt-oss"])
def test_quantized_on_load_it_computes_with_the_unpacked_weights(bases, tmp_path, shape):
    """NF4 within the products, against transformers with the dequantized weights; and against our own unpacked."""
    base = bases(shape)
    adapter = tiny_models.lora(base, tmp_path / "adapter", rank=5, experts=2)
    tuned, ours = parity.peft(base, adapter, quantize=True), parity.fast(base, adapter, quantize=True)
    same_gradients(ours, (None, None, *parity.peft_gradients(tuned, BATCH)))
    unpacked = parity.fast(base, adapter, quantize=True)
    for layer in unpacked.loaded.decoder.layers:
        for stack in layer.weights.experts.stacks.values() if layer.weights.experts else ():
            stack.weight = unpack_group(stack.weight, 0, stack.experts, dtype=torch.float32)
    same_bits(unpacked.gradients(BATCH), ours.gradients(BATCH))


@pytest.mark.full
@pytest.mark.parametrize("quantize", [False, True])
def test_published_mxfp4_computes_what_transformers_unpacks(tmp_path, quantize):
    """The experts stay as they are stored, whatever becomes of the other weights."""
    base = pack_mxfp4(tiny_models.make("gpt-oss", tmp_path / "base"))
    adapter = tiny_models.lora(base, tmp_path / "adapter", rank=5, experts=2)
    ours = parity.fast(base, adapter, quantize=quantize)
    assert all(isinstance(layer.weights.experts.gate_up.weight, Mxfp4Experts) for layer in ours.loaded.decoder.layers)
    if not quantize:
        tuned = parity.peft(base, adapter)
        assert parity.same_logits(ours.logits(BATCH), parity.peft_logits(tuned, BATCH), 1e-5)
        same_gradients(ours, (None, None, *parity.peft_gradients(tuned, BATCH)))
    unpacked = parity.fast(base, adapter, quantize=quantize)
    for layer in unpacked.loaded.decoder.layers:
        for stack in layer.weights.experts.stacks.values():
            stack.weight = unpack_group(stack.weight, 0, stack.experts, dtype=torch.float32)
    same_bits(unpacked.gradients(BATCH), ours.gradients(BATCH))


@pytest.mark.full
def test_256_experts_of_which_a_token_visits_8(tmp_path):
    """As many as Qwen3.5 has; most of them have few tokens or none."""
    sizes = {"num_hidden_layers": 1, "mlp_only_layers": [], "num_experts": 256, "num_experts_per_tok": 8}
    base = tiny_models.make("qwen2-moe", tmp_path / "base", **sizes)
    adapter = tiny_models.lora(base, tmp_path / "adapter", rank=5, experts=2)
    same_gradients(parity.fast(base, adapter), (None, None, *parity.peft_gradients(parity.peft(base, adapter), BATCH)))


@pytest.mark.full
def test_a_gradient_is_added_to_what_is_there(bases, tmp_path):
    base = bases("qwen3-moe")
    ours = parity.fast(base, tiny_models.lora(base, tmp_path / "adapter", rank=5, experts=2))
    ours.gradients(BATCH)
    grad = ours.model.optimizer.grad
    kept = grad.clone()
    layout, buffer, counts = ours.upload(BATCH)
    levels = ["products"] * len(ours.loaded.decoder.layers)
    parity.MicroBatchStep(ours.model, layout, buffer, levels, torch.zeros(1)).run(counts)
    torch.testing.assert_close(grad, 2 * kept)


@pytest.mark.full
def test_which_experts_a_token_went_to_is_never_computed_again(bases, tmp_path, monkeypatch):
    from burnish_kernels.moe_route import op as moe_route

    base = bases("mixtral")
    ours = parity.fast(base, tiny_models.lora(base, tmp_path / "adapter", rank=5, experts=2))
    real, count = moe_route.forward, []

    def forward(*given, **options):
        count.append(1)
        return real(*given, **options)

    monkeypatch.setattr(moe_route, "forward", forward)
    for level in LEVEL_NAMES:
        count.clear()
        ours.gradients(BATCH, level)
        assert len(count) == len(ours.loaded.decoder.layers), level


@pytest.mark.gpu
def test_the_kernels_compute_the_same(folders, reference):
    """fp32 on a GPU, every family: the numbers of transformers and PEFT on the CPU."""
    exact_products()
    ours = parity.fast(*folders, device=torch.device("cuda"))
    assert parity.same_logits(ours.logits(BATCH), reference[1])
    for level in LEVEL_NAMES:
        same_gradients(ours, reference, 1e-4, keep=level)
    ours.loaded.decoder.chunk_feed_forward(37)
    same_gradients(ours, reference, 1e-4, keep="narrow")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("quantize", [False, True])
def test_what_is_kept_does_not_change_a_bit_on_a_gpu(folders, dtype, quantize):
    found = []
    for level in LEVEL_NAMES:
        ours = parity.fast(*folders, dtype=dtype, quantize=quantize, device=torch.device("cuda"))
        found.append(ours.gradients(BATCH, level))
    for other in found[1:]:
        same_bits(other, found[0])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_decoding_in_the_product_and_unpacking_before_give_the_same(folders, dtype, monkeypatch):
    """The same bits where both multiply with one tile: in fp32."""
    from burnish_engine.models.decoder.experts import expert_linear

    found = []
    for pays in (False, True):
        monkeypatch.setattr(expert_linear, "unpacking_pays", lambda *_given: pays)  # noqa: B023
        ours = parity.fast(*folders, dtype=dtype, quantize=True, device=torch.device("cuda"))
        found.append(ours.gradients(BATCH))
    if dtype == torch.float32:
        same_bits(*found)
    else:
        assert parity.distance(found[1][1], found[0][1]) < 0.01


def errors(base, adapter, truth, dtype, device):
    """Return the distance of logits and gradients from the truth: ours, and PEFT's on the same device."""
    theirs = parity.peft(base, adapter, dtype=dtype, device=device)
    ours = parity.fast(base, adapter, dtype=dtype, device=device)
    gradients = parity.in_memory(parity.peft_gradients(theirs, BATCH)[1], ours.loaded.plan)
    found = [(ours.logits(BATCH), ours.gradients(BATCH)[1]), (parity.peft_logits(theirs, BATCH), gradients)]
    return np.array([[parity.distance(one, true) for one, true in zip(both, truth, strict=True)] for both in found])


@pytest.mark.full
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", ["qwen3-moe", "gpt-oss"])
def test_bf16_is_about_as_close_to_the_truth_as_peft(tmp_path, name, device):
    """Near ties of routers fall differently in both, so the bound is wide; a wrong rounding point exceeds it."""
    base = tiny_models.make(name, tmp_path / "base", dtype=torch.bfloat16)
    adapter = tiny_models.lora(base, tmp_path / "adapter", experts=2)
    exact = parity.peft(base, adapter)
    plan = parity.fast(base, adapter).loaded.plan
    truth = parity.peft_logits(exact, BATCH), parity.in_memory(parity.peft_gradients(exact, BATCH)[1], plan)
    ours, theirs = errors(base, adapter, truth, torch.bfloat16, torch.device(device))
    assert (ours < 1.5 * theirs).all(), (ours, theirs)
