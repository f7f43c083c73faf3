"""DoRA on our decoder against PEFT: logits, loss and every gradient; its factors follow what is trained."""

from types import SimpleNamespace

import pytest
import torch

from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES
from burnish_engine.contract.recipe.recipe_train import AdapterSection, TrainSection
from burnish_engine.models.decoder import magnitudes
from burnish_engine.models.decoder.decoder_load import DecoderOptions, load_decoder
from burnish_engine.models.decoder.lora_adapter import plan_adapter
from burnish_engine.models.families import family
from burnish_engine.train.fast.fast_model import make_trainable
from burnish_kernels.nf4 import op as nf4

from support.models import parity, tiny_models

BATCH = parity.micro_batch()
SHAPES = ["qwen2", "qwen3", "gemma3", "phi4-mini", "lfm2-bias", "granite", "olmo2", "ministral3", "qwen3-5"]
"""Biases, rotated in place and not, norms after the halves, stacked projections, convolutions, a scaled stream."""


@pytest.fixture(scope="module", params=SHAPES)
def folders(request, tmp_path_factory):
    base = tiny_models.make(request.param, tmp_path_factory.mktemp(request.param) / "base")
    return base, tiny_models.lora(base, base.with_name("dora"), rank=5, dora=True)


@pytest.mark.full
def test_logits_loss_and_gradients_are_those_of_peft(folders):
    theirs, ours = parity.peft(*folders), parity.fast(*folders)
    assert parity.same_logits(ours.logits(BATCH), parity.peft_logits(theirs, BATCH), 1e-5)
    loss, gradients = parity.peft_gradients(theirs, BATCH)
    assert any("magnitude" in name for name in gradients)
    for level in ("all", "input"):
        our_loss, found = ours.gradients(BATCH, level)
        assert our_loss == pytest.approx(loss, rel=1e-5)
        assert parity.worst(found, gradients) < 1e-5


def test_rows_measured_a_few_at_a_time_have_the_same_lengths(monkeypatch):
    """As those of large weights are; a remainder is among them."""
    monkeypatch.setattr(magnitudes, "_NUMBERS_AT_ONCE", 1000)
    a_RK, weight_NK = torch.randn(6, 40), torch.randn(96, 40)
    stack = SimpleNamespace(N=96, K=40, adapters=(), firsts=())
    measured = magnitudes.Magnitudes(stack, weight_NK)
    measured.frozen_N.fill_(-1.0)
    measured.measure(torch.cat((weight_NK, a_RK)))
    torch.testing.assert_close(measured.frozen_N, weight_NK.norm(dim=1))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("rows", [0, 48])
def test_what_is_kept_does_not_change_a_bit(folders, rows):
    ours = parity.fast(*folders)
    ours.loaded.decoder.chunk_feed_forward(rows)
    loss, first = ours.gradients(BATCH, LEVEL_NAMES[0])
    for level in LEVEL_NAMES[1:]:
        again, gradients = ours.gradients(BATCH, level)
        assert again == loss
        assert all(torch.equal(gradient, first[name]) for name, gradient in gradients.items())


@pytest.mark.full
@pytest.mark.parametrize("name", ["llama", "lfm2"])
def test_over_a_base_in_4_bits_it_is_pefts_over_the_same_numbers(bases, tmp_path, name):
    """PEFT's base gets the numbers that the 4 bits stand for."""
    base = bases(name)
    adapter = tiny_models.lora(base, tmp_path / "dora", rank=5, dora=True)
    rounded = tiny_models.load(base)
    with torch.no_grad():
        for name, module in rounded.named_modules():
            if isinstance(module, torch.nn.Linear) and name != "lm_head":
                module.weight.copy_(nf4.dequantize(nf4.quantize(module.weight), dtype=torch.float32))
    rounded.save_pretrained(tmp_path / "rounded")
    theirs = parity.peft(tmp_path / "rounded", adapter)
    ours = parity.fast(base, adapter, quantize=True)
    assert parity.same_logits(ours.logits(BATCH), parity.peft_logits(theirs, BATCH), 1e-5)
    assert parity.worst(ours.gradients(BATCH)[1], parity.peft_gradients(theirs, BATCH)[1]) < 1e-5


def new(base, **options):
    source, section = parity.model_source(base), AdapterSection(rank=4, method="dora")
    plan = plan_adapter(section, family(source.spec.family).modules(source.spec))
    loaded = load_decoder(source, DecoderOptions(torch.float32, parity.CPU, 256, plan, **options))
    model = make_trainable(loaded, section=TrainSection())
    model.initialize(3)
    return parity.Fast(loaded, model)


@pytest.mark.full
@pytest.mark.parametrize("quantize", [False, True])
@pytest.mark.parametrize("rows", [0, 48])
def test_streamed_layers_give_the_same_bits(bases, tmp_path, quantize, rows):
    base = bases("qwen2")
    adapter = tiny_models.lora(base, tmp_path / "dora", rank=5, dora=True)
    found = []
    for away in ((), (0,), (0, 1)):
        ours = parity.fast(base, adapter, quantize=quantize, layers_on_host=frozenset(away))
        ours.loaded.decoder.chunk_feed_forward(rows)
        found.append((ours.logits(BATCH), *ours.gradients(BATCH, "host"), ours.logits(BATCH)))
    for logits, loss, gradients, again in found:
        assert torch.equal(logits, found[0][0])
        assert torch.equal(again, logits)
        assert loss == found[0][1]
        assert all(torch.equal(gradient, found[0][2][name]) for name, gradient in gradients.items())


@pytest.mark.parametrize("quantize", [False, True])
def test_a_new_adapter_changes_nothing(bases, quantize):
    ours = new(bases("qwen2"), quantize=quantize)
    plain = parity.fast(bases("qwen2"), quantize=quantize).logits(BATCH)
    assert parity.same_logits(ours.logits(BATCH), plain, 1e-6)
    assert all((tensor > 0).all() for name, tensor in ours.model.adapter.named().items() if "magnitude" in name)


def test_factors_follow_the_weights_that_are_written(bases):
    ours = new(bases("llama"))
    before = ours.logits(BATCH)
    named = ours.model.adapter.named()
    with torch.no_grad():
        for name, tensor in named.items():
            if ".lora_B." in name:
                tensor.normal_(0.0, 0.05)
    ours.model.write_compute_copies()
    turned = ours.logits(BATCH)
    assert not parity.same_logits(turned, before, 1e-3)
    stack = ours.loaded.decoder.layers[0].weights.gate_up
    matrix, (adapter, _) = stack.frozen.buffer(), stack.stack.adapters
    b, a = matrix[adapter.span, stack.inputs :][:, : adapter.padded], matrix[stack.outputs :][: adapter.padded]
    weight = matrix[adapter.span, : stack.inputs] + b @ a[:, : stack.inputs]
    lengths = stack.magnitudes.scale_N[adapter.span, None] * weight
    torch.testing.assert_close(lengths.norm(dim=1), named[next(name for name in named if "gate_proj.lora_mag" in name)])


@pytest.mark.full
def test_a_magnitude_counts_where_the_weight_itself_is_as_it_was(bases):
    """The Bs of a new adapter are 0; rows ten times as long are ten times the weight."""
    ours, other = new(bases("llama")), new(bases("llama"))
    before = ours.logits(BATCH)
    with torch.no_grad():
        for name, tensor in ours.model.adapter.named().items():
            if "down_proj.lora_magnitude" in name:
                tensor.mul_(10.0)
        for layer in other.loaded.decoder.layers:
            down = layer.weights.down
            down.frozen.buffer()[: down.outputs, : down.inputs].mul_(10.0)
    ours.model.write_compute_copies()
    other.loaded.decoder.measure_rows()
    other.model.initialize(3)
    assert not parity.same_logits(ours.logits(BATCH), before, 1e-2)
    assert parity.same_logits(ours.logits(BATCH), other.logits(BATCH), 1e-5)


def test_a_magnitude_of_0_and_a_row_of_zeros_give_no_nan(bases):
    ours = new(bases("llama"))
    with torch.no_grad():
        for name, tensor in ours.model.adapter.named().items():
            if "magnitude" in name:
                tensor[3] = 0.0
    for layer in ours.loaded.decoder.layers:
        layer.weights.down.frozen.buffer()[5, : layer.weights.down.inputs] = 0.0
    ours.loaded.decoder.measure_rows()
    ours.model.write_compute_copies()
    assert all(gradient.isfinite().all() for gradient in ours.gradients(BATCH)[1].values())
