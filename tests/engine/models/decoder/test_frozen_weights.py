"""Layers whose frozen weights are in host memory: the same bits as on the device, whatever layers keep."""

import itertools
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from burnish_engine.contract.recipe.eight_bit_use import EightBitUse
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES
from burnish_engine.data.tokens.tokenize import Document
from burnish_engine.models.decoder.decoder_load import DecoderOptions, load_decoder
from burnish_engine.models.decoder.frozen.matrix_weights import QuantizedWeight, ResidentWeight, StreamedWeight
from burnish_engine.models.generation.decoder_generate import DecoderGenerator
from burnish_kernels.moe_unpack.op import Mxfp4Experts

from support.memory.late_copies import LateCopies
from support.memory.rank_memory import MemoryHere
from support.models import parity, tiny_models
from support.models.bitsandbytes_files import save_quantized
from support.models.catalog_models import pack_mxfp4

BATCH = parity.micro_batch()
WAYS = {
    "fp32": {"dtype": torch.float32},
    "bf16": {"dtype": torch.bfloat16},
    "NF4": {"dtype": torch.bfloat16, "quantize": True},
    "FP8": {"dtype": torch.bfloat16, "eight_bits": EightBitUse("fp8", "")},
    "FP8 products": {"dtype": torch.bfloat16, "eight_bits": EightBitUse("fp8", "fp8")},
    "NF4, FP8 products": {"dtype": torch.bfloat16, "quantize": True, "eight_bits": EightBitUse("", "fp8")},
    "MXFP8 products": {"dtype": torch.bfloat16, "eight_bits": EightBitUse("mxfp8", "mxfp8")},
    "NF4, MXFP8 products": {"dtype": torch.bfloat16, "quantize": True, "eight_bits": EightBitUse("", "mxfp8")},
}
PLACES = {"all": range(6), "every other": (1, 3, 5), "the lowest": (0, 1, 2), "two": (2, 5)}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Six layers with biases, all adapted."""
    base = tiny_models.make("qwen2", tmp_path_factory.mktemp("qwen2") / "base", num_hidden_layers=6)
    return base, tiny_models.lora(base, base.with_name("adapter"), rank=5)


def made(folders, layers=(), **options):
    """Our decoder; copies end as late as they may."""
    ours = parity.fast(*folders, layers_on_host=frozenset(layers), **options)
    if ours.loaded.decoder.device.type == "cpu":
        ours.loaded.decoder.ring.copies = LateCopies(parity.CPU)
    return ours


def shared(folders, layers, **options):
    """Our decoder on the second of three ranks that share layers; the others were loaded too."""
    windows, loaded = [], []
    for rank in (0, 2, 1):
        memory = MemoryHere(rank, windows, 3)
        loaded.append(parity.fast(*folders, layers_on_ranks=frozenset(layers), memory=memory, **options))
    loaded[-1].loaded.decoder.ring.copies = LateCopies(parity.CPU)
    return loaded[-1]


def same(found, wanted):
    """Whether losses and gradients have the same bits."""
    equal = all(torch.equal(gradient, wanted[1][name]) for name, gradient in found[1].items())
    return found[0] == wanted[0] and found[1].keys() == wanted[1].keys() and equal


def host_cases():
    """Each way with all layers and one other choice, each choice with two ways; the rest is `long`."""
    for (row, way), (column, places) in itertools.product(enumerate(WAYS), enumerate(PLACES)):
        yield pytest.param(way, places, marks=() if column in {0, 1 + row % 3} else pytest.mark.long)


@pytest.mark.full
@pytest.mark.parametrize(("way", "places"), host_cases())
def test_weights_from_the_host_compute_the_same_bits(model, way, places):
    here, there = made(model, **WAYS[way]), made(model, PLACES[places], **WAYS[way])
    assert torch.equal(there.logits(BATCH), here.logits(BATCH))
    for keep in ("products", "input"):
        wanted = here.gradients(BATCH, keep)
        for _ in range(2):
            assert same(there.gradients(BATCH, keep), wanted)
    assert len(there.loaded.decoder.ring.layers) == len(PLACES[places])


@pytest.mark.full
@pytest.mark.parametrize("way", WAYS)
def test_weights_that_ranks_share_compute_the_same_bits(model, way):
    here, there = made(model, **WAYS[way]), shared(model, PLACES["all"], **WAYS[way])
    assert torch.equal(there.logits(BATCH), here.logits(BATCH))
    wanted = here.gradients(BATCH, "input")
    for _ in range(2):
        assert same(there.gradients(BATCH, "input"), wanted)


@pytest.mark.full
@pytest.mark.parametrize("way", ["fp32", "NF4"])
@pytest.mark.parametrize("rows", [0, 48])
def test_with_any_save_level(model, way, rows):
    wanted = []
    for layers in ((), range(6)):
        ours = made(model, layers, **WAYS[way])
        ours.loaded.decoder.chunk_feed_forward(rows)
        found = [ours.gradients(BATCH, keep) for keep in LEVEL_NAMES]
        wanted = wanted or found[:1]
        assert all(same(one, wanted[0]) for one in found)


@pytest.mark.full
@pytest.mark.parametrize("name", ["lfm2", "lfm3", "qwen3-5", "gemma3", "phi3", "apertus", *tiny_models.MIXTURES])
@pytest.mark.parametrize("way", ["fp32", "NF4"])
def test_of_any_family(tmp_path, name, way):
    """Layers of several kinds have blocks of several sizes; experts are a part of theirs."""
    base = tiny_models.make(name, tmp_path / "base")
    folders = base, tiny_models.lora(base, tmp_path / "adapter", experts=2 if name in tiny_models.MIXTURES else None)
    here = made(folders, **WAYS[way])
    count = len(here.loaded.decoder.layers)
    wanted = here.gradients(BATCH, "attention")
    for make in (made, shared):
        assert same(make(folders, range(count), **WAYS[way]).gradients(BATCH, "attention"), wanted), make.__name__


@pytest.mark.full
def test_published_experts_from_the_host_compute_the_same_bits(tmp_path):
    base = pack_mxfp4(tiny_models.make("gpt-oss", tmp_path / "base"))
    adapter = tiny_models.lora(tiny_models.make("gpt-oss", tmp_path / "dense"), tmp_path / "adapter", experts=2)
    here, there = made((base, adapter), **WAYS["bf16"]), made((base, adapter), range(2), **WAYS["bf16"])
    experts = there.loaded.decoder.layers[0].weights.experts
    assert isinstance(experts.gate_up.weight, Mxfp4Experts)
    assert experts.gate_up.weight.blocks.untyped_storage().data_ptr() == there.loaded.decoder.ring.slot(0).data_ptr()
    assert torch.equal(there.logits(BATCH), here.logits(BATCH))
    assert same(there.gradients(BATCH, "input"), here.gradients(BATCH, "input"))


def test_only_upper_layers_adapted(model, tmp_path):
    """Lower layers are not differentiated, so they are not copied again."""
    config = LoraConfig(target_modules=["q_proj", "down_proj"], layers_to_transform=[3, 5], task_type="CAUSAL_LM")
    tuned = get_peft_model(tiny_models.load(model[0]), config)
    for name, value in tuned.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(value.detach(), 0.0, 0.05)
    tuned.save_pretrained(tmp_path / "adapter")
    folders = model[0], tmp_path / "adapter"
    there = made(folders, range(6))
    assert same(there.gradients(BATCH), made(folders).gradients(BATCH))
    assert there.loaded.decoder.ring.copies.begun == 6 + 1


@pytest.mark.full
def test_a_slot_that_is_overwritten_too_early_is_seen(model):
    """The tests above can fail: here the next copy begins before the slot's layer has computed."""
    ours = made(model, range(6))
    ring = ours.loaded.decoder.ring

    @contextmanager
    def too_early(layer):
        ring.copies.wait(ring.coming.pop(layer, None))
        ring._copy_next()
        yield

    ring.present = too_early
    assert not same(ours.gradients(BATCH), made(model).gradients(BATCH))


def test_nothing_of_such_a_layer_but_adapters_and_norms_is_on_the_device(model):
    """ReplySlots are shared; weights on the host have their final form."""
    for way, kind in (("bf16", StreamedWeight), ("NF4", QuantizedWeight)):
        loaded = made(model, range(1, 6), **WAYS[way]).loaded
        frozen = [[stack.frozen for stack in layer.stacks] for layer in loaded.decoder.layers]
        assert all(isinstance(one, kind) for layer in frozen[1:] for one in layer)
        assert all(isinstance(one, QuantizedWeight if way == "NF4" else ResidentWeight) for one in frozen[0])
        places = [[tensor.data_ptr() for one in layer for tensor in _tensors(one)] for layer in frozen[1:]]
        assert places[0] == places[2] == places[4] != places[1] == places[3]
        assert loaded.decoder.ring.host_bytes == 5 * len(loaded.decoder.ring.host(1))


def _tensors(frozen):
    if isinstance(frozen, StreamedWeight):
        return [frozen.matrix]
    return [tensor for part in frozen.parts for tensor in part.tensors().values()]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("double", [True, False])
def test_a_checkpoint_in_nf4_goes_straight_to_the_host(model, tmp_path, double):
    """One in which some weights were left in 16 bits too."""
    kept = ["model.layers.0.mlp.up_proj", "model.layers.1.self_attn.k_proj", "model.layers.1.mlp.down_proj"]
    folder = save_quantized(model[0], tmp_path / "stored", kept, double=double)
    folders = folder, model[1]
    wanted = made(folders, **WAYS["NF4"]).gradients(BATCH)
    assert same(made(folders, (0, 1, 4), **WAYS["NF4"]).gradients(BATCH), wanted)


@pytest.mark.full
@pytest.mark.parametrize("way", ["fp32", "NF4"])
def test_replies_and_evaluation(model, way):
    """With the adapter and without it; in between a pass of training."""
    here, there = made(model, **WAYS[way]), made(model, range(6), **WAYS[way])
    found = []
    for ours in (here, there):
        generator = DecoderGenerator(ours.loaded.decoder)
        logits = []
        for use in (True, False):
            generator.use_adapter(use)
            with generator.inference():
                state, first = generator.start([[5, 6, 7], [9]], 4)
                ours_next = generator.advance(state, [1, 2])
            logits += [first.clone(), ours_next.clone()]
            ours.gradients(BATCH)
        layout = ours.layout(BATCH, 128)
        documents = [document(row) for row in parity.single(BATCH)]
        logits.append(torch.tensor(parity.held_out_loss(ours.loaded.decoder, documents, 128, layout)))
        found.append(logits)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert not torch.equal(found[0][0], found[0][2])


def document(batch):
    return Document(batch.input_ids.astype(np.int32), np.ones(batch.tokens, dtype=bool), 0, "held out")


@pytest.mark.gpu
@pytest.mark.parametrize("way", WAYS)
def test_on_a_gpu_they_are_page_locked(model, way):
    device = torch.device("cuda")
    loaded = load_decoder(
        parity.model_source(model[0]),
        DecoderOptions(device=device, positions=64, layers_on_host=frozenset(range(6)), **WAYS[way]),
    )
    ring = loaded.decoder.ring
    assert not ring.problem
    assert all(host.is_pinned() for host in ring.layers.values())
    assert loaded.pages.bytes == ring.host_bytes
    here, there = made(model, device=device, **WAYS[way]), made(model, range(6), device=device, **WAYS[way])
    assert same(there.gradients(BATCH, "host"), here.gradients(BATCH, "host"))
