"""The fast engine's memory against its real tensors: kept ones, weights, the peak of a pass; and against an H100."""

import itertools
import json
import random
from dataclasses import fields
from functools import cache
from math import prod
from pathlib import Path

import numpy as np
import pytest
import torch

from burnish_engine.advise.facts.planned_run import FastRun
from burnish_engine.advise.facts.shape import adapter_parameters, embedding_parameters
from burnish_engine.advise.facts.workload import MicroBatchSize, bucket_tokens, largest_bucket_tokens
from burnish_engine.advise.plan.memory_solver import peak_bytes
from burnish_engine.advise.predict.fast_experts import expert_sizes, order_bytes, scratch_bytes
from burnish_engine.advise.predict.fast_layer import LayerShape, evaluated_bytes, kept_bytes, offloaded_bytes
from burnish_engine.advise.predict.fast_memory import POOL_SHARE, host_bytes, memory_of
from burnish_engine.advise.predict.fast_parts import memory_parts
from burnish_engine.advise.predict.fast_shape import frozen_weights, head_chunk_tokens, stacks
from burnish_engine.advise.predict.level_mixes import arrange_layers, level_mixes
from burnish_engine.advise.predict.plan_options import PlanOptions, split_plan
from burnish_engine.bench.shapes import RandomWeights, shape
from burnish_engine.contract.recipe.eight_bit_use import EightBitUse
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES, MemoryPlan, parse_save_levels
from burnish_engine.contract.recipe.recipe import DevicesSection, ModelSection, Recipe
from burnish_engine.contract.recipe.recipe_data import DataSection
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.decoder.decoder_load import DecoderOptions, build_decoder, connect_magnitudes
from burnish_engine.models.decoder.experts.declared import SCRATCH_BYTES
from burnish_engine.models.decoder.experts.expert_weights import weight_tensors
from burnish_engine.models.decoder.frozen.format_choice import why_not_eight
from burnish_engine.models.decoder.frozen.matrix_weights import QuantizedWeight
from burnish_engine.models.decoder.layer_types import SequenceMetadata
from burnish_engine.models.decoder.lora_adapter import LoraAdapter, plan_adapter
from burnish_engine.models.families import family
from burnish_engine.models.families.adapter_targets import expert_rank
from burnish_engine.models.host_memory.offloader import Offloader
from burnish_engine.train.fast.packed_batch import BucketLayout, buckets, layout_for
from burnish_kernels.attention.documents import Documents
from burnish_kernels.attention.op import tile_rows

from support.allocator import Allocator
from support.live_bytes import peak_of_a_pass, watched_pass
from support.rank_memory import MemoryHere

GIB = 2**30
CPU = torch.device("cpu")
TOKENS = 96
COMMON = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 320,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
}
FAMILIES = {
    "llama": {"tie_word_embeddings": False},
    "qwen2": {},
    "qwen3": {},
    "gemma3_text": {"sliding_window": 32, "query_pre_attn_scalar": 64, "hidden_activation": "gelu_pytorch_tanh"},
    "phi3": {},
    "lfm2": {"layer_types": ["conv", "full_attention", "conv"], "block_auto_adjust_ff_dim": False},
    "olmo2": {},
    "lfm3": {"layer_types": ["conv", "full_attention", "sliding_attention"], "sliding_window": 32},
    "qwen3_moe": {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "mlp_only_layers": [1]},
    "olmoe": {"intermediate_size": 128, "num_experts": 6, "num_experts_per_tok": 2},
    "mixtral": {"intermediate_size": 128, "num_local_experts": 4},
    "lfm2_moe": {
        "layer_types": ["conv", "full_attention", "conv"], "num_dense_layers": 1, "num_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 128,
    },
    "gpt_oss": {"intermediate_size": 128, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 32},
}  # fmt: skip
MIXTURES = ["qwen3_moe", "olmoe", "mixtral", "lfm2_moe", "gpt_oss"]
ADAPTERS = {
    "all": AdapterSection(rank=8),
    "some": AdapterSection(rank=24, targets=["q_proj", "v_proj", "up_proj", "down_proj", "in_proj", "w1", "w2"]),
    "dora": AdapterSection(rank=8, method="dora", targets=["all-linear"]),
}


@pytest.fixture(autouse=True)
def plain_pytorch(monkeypatch):
    """Triton's interpreter, which the whole suite switches on, would take minutes here."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def spec_of(name):
    return decoder_spec({"model_type": name, **COMMON, **FAMILIES[name]})


def build(spec, section, dtype=torch.float32, **options):
    plan = adapter_of(spec, section)
    loaded = build_decoder(RandomWeights(spec, CPU), spec, DecoderOptions(dtype, CPU, TOKENS, plan, **options))
    shapes = [shape for adapted in plan.parts for shape in adapted.shapes.values()]
    connect_magnitudes(loaded, LoraAdapter(plan, [torch.ones(shape) for shape in shapes]))
    return loaded


def kept_cases():
    """Each pair of family, level, and adapter with type and tile; one family has every triple as `long`."""
    kinds = list(itertools.product(ADAPTERS, [(torch.float32, 0), (torch.bfloat16, 32)]))
    for (row, name), (column, level) in itertools.product(enumerate(FAMILIES), enumerate(LEVEL_NAMES)):
        turn = (row + column) % len(kinds)
        for number, (section, (dtype, tile)) in enumerate(kinds):
            if number == turn or name == "phi3":
                case = f"{name}-{level}-{section}-{dtype}-{tile}"
                marks = () if number == turn else pytest.mark.long
                yield pytest.param(name, level, section, dtype, tile, id=case, marks=marks)


@cache
def kept_decoder(name, section, dtype):
    return build(spec_of(name), ADAPTERS[section], dtype).decoder


@pytest.mark.parametrize(("name", "level", "section", "dtype", "tile"), kept_cases())
def test_what_a_pass_keeps_is_counted_to_the_byte(name, level, section, dtype, tile):
    decoder = kept_decoder(name, section, dtype)
    decoder.chunk_feed_forward(tile)
    spec, section = spec_of(name), ADAPTERS[section]
    docs = Documents.from_boundaries(np.array([0, 50, TOKENS]), TOKENS, tile_rows(spec.head_dim, dtype, CPU), CPU)
    pack, offloader = SequenceMetadata(torch.arange(TOKENS, dtype=torch.int32), docs), Offloader(CPU, TOKENS)
    with torch.no_grad():
        ids = torch.zeros(TOKENS, dtype=torch.int32)
        done = decoder.forward(ids, pack, levels=[level] * 3, offloader=offloader)
    kept = [getattr(saved, field.name) for saved in done.layers for field in fields(saved)]
    kept += [tensor for saved in done.layers for tensor in saved.own.values()]
    kept += [tensor for saved in done.layers for order in saved.expert_orders or () for tensor in vars(order).values()]
    storages = {tensor.untyped_storage() for tensor in kept if isinstance(tensor, torch.Tensor)}
    real = sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
    counted = [LayerShape(spec, section, dtype.itemsize, cuda=False, layer=layer) for layer in spec.layers]
    sizes = [expert_sizes(spec, one.experts) for one in counted]
    orders = sum(order_bytes(one, TOKENS, tile or TOKENS) for one in sizes if one)
    assert TOKENS * sum(kept_bytes(one, level, tiled=tile > 0) for one in counted) + orders == real
    assert TOKENS * sum(sum(offloaded_bytes(one, level)) for one in counted) == offloader.host_bytes
    for one, saved in zip(counted, done.layers, strict=True):
        left = [offloaded.host.nbytes // TOKENS for offloaded in saved.offloaded.values()]
        assert list(offloaded_bytes(one, level)) == left


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("section", ADAPTERS.values(), ids=ADAPTERS)
def test_frozen_weights_are_counted_to_the_byte(name, section):
    spec = spec_of(name)
    loaded = build(spec, section)
    found = frozen_weights(spec, section, "fp32", nf4=False)
    assert found.experts == experts_of(loaded)
    trained = [shape for adapted in loaded.plan.parts for shape in adapted.shapes.values()]
    assert adapter_parameters(spec, section) == sum(map(prod, trained))
    assert found.stored == outside(loaded) + loaded.compute_buffer.nbytes + found.experts


@pytest.mark.parametrize("name", FAMILIES)
def test_nf4_weights_are_counted_to_the_byte(name):
    spec, section = spec_of(name), ADAPTERS["all"]
    loaded = build(spec, section, torch.bfloat16, quantize=True)
    frozen = [stack.frozen for layer in loaded.decoder.layers for stack in layer.stacks]
    assert all(isinstance(one, QuantizedWeight) for one in frozen)
    constants = 256 * 4 + 4  # of each module: levels of the scales, and their mean
    packed = sum(part.nbytes - constants for one in frozen for part in one.parts)
    scratch = {one.scratch.data_ptr(): one.scratch.untyped_storage().nbytes() for one in frozen}
    assert len(scratch) == (1 if all(layer.is_mixture for layer in spec.layers) else 2)
    predicted = frozen_weights(spec, section, "bf16", nf4=True)
    made = [stack for layer in spec.layers for stack in stacks(spec, section, layer).values()]
    weights = sum(one.outputs * one.inputs for one in made)
    assert weights / 64 < predicted.tables < 1.03 * weights / 64
    assert predicted.experts == experts_of(loaded)
    real = outside(loaded) + loaded.compute_buffer.nbytes + packed + predicted.experts
    # The last scale of a matrix may stand for fewer weights: LFM3's gates have few rows.
    assert 0 <= real - predicted.stored <= (4 * len(loaded.plan.modules) if name == "lfm3" else 0)
    groups = scratch_bytes(spec, [*LayerShape(spec, section, 2, True, spec.layers[-1]).experts.values()], 2, nf4=True)
    assert predicted.scratch == sum(scratch.values()) + groups


EIGHT_BITS = {
    "FP8 stored": (False, EightBitUse("fp8", "")),
    "FP8": (False, EightBitUse("fp8", "fp8")),
    "NF4": (True, EightBitUse("", "fp8")),
    "INT8": (False, EightBitUse("int8", "int8")),
    "MXFP8": (False, EightBitUse("mxfp8", "mxfp8")),
    "NF4 to MXFP8": (True, EightBitUse("", "mxfp8")),
}
DENSE = [name for name in FAMILIES if not spec_of(name).num_experts]
CODED = [
    (name, way)
    for name in DENSE
    for way, (_, use) in EIGHT_BITS.items()
    if not (use.products and why_not_eight(use.products, Recipe(), spec_of(name), "bf16", None))
]


@pytest.mark.parametrize(("name", "way"), CODED)
def test_fp8_weights_are_counted_to_the_byte(name, way):
    """Codes with their scales, and the memory that they are unpacked or transposed into."""
    (nf4, eight_bits), spec, section = EIGHT_BITS[way], spec_of(name), ADAPTERS["all"]
    loaded = build(spec, section, torch.bfloat16, quantize=nf4, eight_bits=eight_bits)
    frozen = [stack.frozen for layer in loaded.decoder.layers for stack in layer.stacks]
    predicted = frozen_weights(spec, section, "bf16", nf4=nf4, eight_bits=eight_bits)
    if not eight_bits.products:
        scratch = [one.scratch for one in frozen]
    else:
        scratch = [tensor for one in frozen for tensor in (one.scratch.codes, one.scratch.turned)]
    storages = {one.untyped_storage()._cdata: one.untyped_storage().nbytes() for one in scratch}
    assert predicted.scratch == sum(storages.values())
    held = sum(tensor.nbytes for one in frozen for tensor in one.tensors(0, 0).values())
    if nf4:
        held += sum(one.scales.nbytes for one in frozen)
        held -= (256 * 4 + 4) * len(loaded.plan.modules)
    real = outside(loaded) + loaded.compute_buffer.nbytes + held
    assert predicted.stored == pytest.approx(real, rel=1e-3 if nf4 else 0)


@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("nf4", [False, True])
@pytest.mark.parametrize("ranks", [2, 3])
def test_shared_weights_are_counted_to_the_byte(name, nf4, ranks):
    """A rank's part, and the slots; together the ranks hold what one would on the host, and some padding."""
    spec, section, layers = spec_of(name), ADAPTERS["all"], frozenset({0, 1, 2})
    options = {"dtype": torch.bfloat16, "quantize": nf4, "layers_on_ranks": layers, "memory": MemoryHere(0, [], ranks)}
    ring = build(spec, section, **options).decoder.ring
    planned = run(Recipe(adapter=section), spec, MicroBatchSize(TOKENS, TOKENS), nf4=nf4, ranks=ranks)
    memory, places = memory_of(planned), PlanOptions(0, 256, layers_on_ranks=tuple(layers))
    hosted = PlanOptions(0, 256, layers_on_host=tuple(layers))
    assert memory.share_bytes(places) == ring.shares.bytes
    assert memory.slot_bytes(places) == sum(slot.nbytes for slot in ring._slots) == memory.slot_bytes(hosted)
    assert memory.weights_on_host(places) == ring.host_bytes == 0
    level = np.zeros((1, spec.num_layers), np.int8)
    more = memory.totals(level, places) - memory.totals(level, hosted)
    assert more == pytest.approx(ring.shares.bytes * (1 + POOL_SHARE), rel=1e-6)


@pytest.mark.parametrize(("name", "way"), CODED)
def test_fp8_weights_in_host_memory_are_counted_to_the_byte(name, way):
    (nf4, eight_bits), spec, section = EIGHT_BITS[way], spec_of(name), ADAPTERS["all"]
    options = {"dtype": torch.bfloat16, "quantize": nf4, "eight_bits": eight_bits}
    here, there = build(spec, section, **options), build(spec, section, **options, layers_on_host=frozenset({0, 1, 2}))
    planned = run(Recipe(adapter=section), spec, MicroBatchSize(TOKENS, TOKENS), nf4=nf4, eight_bits=eight_bits)
    places, memory = PlanOptions(0, 256, layers_on_host=(0, 1, 2)), memory_of(planned)
    assert [len(there.decoder.ring.host(layer)) for layer in range(3)] == memory.blocks.tolist()
    frozen = [stack.frozen for layer in here.decoder.layers for stack in layer.stacks]
    left = sum(tensor.nbytes for one in frozen for tensor in one.tensors(0, 0).values())
    assert memory.freed_bytes(places) == pytest.approx(left - (nf4 * 1028 * len(here.plan.modules)), rel=0.003)


@pytest.mark.parametrize(("name", "way", "level", "tile"), [
    ("llama-3.2-1b", "FP8", "products", 0), ("llama-3.2-1b", "FP8", "attention", 1024),
    ("llama-3.2-1b", "NF4", "narrow", 1024), ("llama-3.2-1b", "FP8 stored", "products", 0),
    ("qwen3-0.6b", "FP8", "input", 0), ("gemma-3-1b", "FP8", "products", 1024), ("lfm2.5-1.2b", "FP8", "products", 0),
    ("llama-3.2-1b", "MXFP8", "products", 0), ("lfm2.5-1.2b", "MXFP8", "attention", 1024),
    pytest.param("qwen3-0.6b", "NF4", "narrow", 0, marks=pytest.mark.long),
    pytest.param("lfm2.5-1.2b", "NF4", "attention", 0, marks=pytest.mark.long),
    pytest.param("llama-3.2-1b", "NF4 to MXFP8", "narrow", 1024, marks=pytest.mark.long),
    pytest.param("qwen3-0.6b", "MXFP8", "input", 0, marks=pytest.mark.long),
])  # fmt: skip
def test_the_peak_of_a_pass_in_8_bits(monkeypatch, name, way, level, tile):
    """The operands' codes come on top of what a pass in 16 bits holds."""
    pytest.importorskip("triton")
    (nf4, eight_bits), section, spec = EIGHT_BITS[way], AdapterSection(rank=16), shape(name)
    levels, chunk = (level,) * spec.num_layers, head_chunk_tokens(256, cuda=True)
    options = {
        "rows": 4096,
        "head_rows": chunk,
        "layers": levels,
        "mlp_rows": tile,
        "quantize": nf4,
        "eight_bits": eight_bits,
    }
    real = peak_of_a_pass(monkeypatch, name, section, **options)
    plan = MemoryPlan(layers=levels, mlp_rows=tile, head_rows=chunk)
    found = parts(Recipe(adapter=section), spec, MicroBatchSize(4096, 256), plan, nf4=nf4, eight_bits=eight_bits)
    predicted = sum(size for part, size in found.items() if part not in NO_TENSORS)
    assert predicted == pytest.approx(real, rel=0.01)


@pytest.mark.parametrize(("name", "tokens"), [("qwen3-30b-a3b", 3072), ("gpt-oss-20b", 2560)])
def test_experts_are_unpacked_where_they_have_many_rows(name, tokens):
    """Many are 192 an expert in NF4 and 320 in MXFP4; a pass of fewer tokens needs no memory to unpack into."""
    spec, section = shape(name), AdapterSection()
    found = [frozen_weights(spec, section, "bf16", nf4=True, tokens=count).scratch for count in (tokens - 1, tokens)]
    assert 0.6 * SCRATCH_BYTES < found[1] - found[0] <= SCRATCH_BYTES
    assert frozen_weights(spec, section, "bf16", nf4=True).scratch == found[1]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("nf4", [False, True])
def test_weights_in_host_memory_are_counted_to_the_byte(name, nf4):
    """Blocks on the host, slots on the device, and what leaves it."""
    spec, section = spec_of(name), ADAPTERS["all"]
    options = {"dtype": torch.bfloat16, "quantize": nf4}
    here, there = build(spec, section, **options), build(spec, section, **options, layers_on_host=frozenset({0, 1, 2}))
    ring = there.decoder.ring
    planned = run(Recipe(adapter=section), spec, MicroBatchSize(TOKENS, TOKENS), nf4=nf4)
    places = PlanOptions(0, 256, layers_on_host=(0, 1, 2))
    memory = memory_of(planned)
    assert [len(ring.host(layer)) for layer in range(3)] == memory.blocks.tolist()
    assert memory.weights_on_host(places) == ring.host_bytes
    assert memory.slot_bytes(places) == sum(slot.nbytes for slot in ring._slots)
    left = here.compute_buffer.nbytes - there.compute_buffer.nbytes
    if nf4:
        constants = 256 * 4 + 4
        frozen = [stack.frozen for layer in here.decoder.layers for stack in layer.stacks]
        left += sum(part.nbytes - constants for one in frozen for part in one.parts)
    left += experts_of(here)
    assert memory.freed_bytes(places) == pytest.approx(left, rel=0.003)
    alone, moved = (memory.totals(np.zeros((1, 3), np.int8), one)[0] for one in (PlanOptions(0, 256), places))
    assert alone - moved == pytest.approx(1.01 * (left - memory.slot_bytes(places)), rel=0.02)


def adapter_of(spec, section):
    known = family(spec.family)
    ranks = expert_rank(section, spec.experts_per_token)
    return plan_adapter(section, known.modules(spec), known.all_expert_stacks(spec), ranks)


def experts_of(loaded):
    """Bytes of the experts' matrices with their scales."""
    weights = [layer.weights.experts for layer in loaded.decoder.layers if layer.weights.experts]
    stacks = [stack.weight for one in weights for stack in one.stacks.values()]
    return sum(tensor.nbytes for stack in stacks for tensor in weight_tensors(stack).values())


def outside(loaded):
    """Bytes of the weights outside the stacks: embedding, head, norms, biases."""
    decoder, found = loaded.decoder, {}
    tensors = [decoder.embedding_VH, decoder.head_VH, decoder.final_norm_H]
    for layer in decoder.layers:
        tensors += layer.weights.vectors.values()
        tensors += [stack.bias_N for stack in layer.stacks if stack.bias_N is not None]
    tensors += [tensor for one in decoder.magnitudes for tensor in (one.scale_N, one.frozen_N)]
    for tensor in tensors:
        found[tensor.data_ptr()] = tensor.nbytes
    return sum(found.values())


MIXED = "host+attention:8,offloaded+narrow:8,products"
ONE_BY_ONE = [
    "all",
    "rotated",
    "products",
    "offloaded",
    "narrow",
    "attention",
    "host",
    "input",
    MIXED,
    "input+offloaded:9,host+input:9,narrow",
]
SHAPES = [("llama-3.2-1b", 96, 256), ("qwen3-0.6b", 16, 4096), ("gemma-3-1b", 8, 100), ("lfm2.5-1.2b", 16, 2000)]


def peak_cases():
    """Every mix of levels with the first shape, half of them with each of the others; the rest are `long`."""
    for (row, one), (column, layers) in itertools.product(enumerate(SHAPES), enumerate(ONE_BY_ONE)):
        marks = pytest.mark.long if row and (column + row) % 2 else ()
        yield pytest.param(*one, layers, 1024 * ((row + column // 2) % 2), marks=marks)


@pytest.mark.parametrize(("name", "rank", "learned", "layers", "tile"), peak_cases())
def test_the_peak_of_a_pass_at_real_sizes(monkeypatch, name, rank, learned, layers, tile):
    pytest.importorskip("triton")
    section, spec = AdapterSection(rank=rank, targets=["all-linear"]), shape(name)
    levels, chunk = parse_save_levels(layers, spec.num_layers), head_chunk_tokens(learned, cuda=True)
    real = peak_of_a_pass(monkeypatch, name, section, rows=4096, head_rows=chunk, layers=levels, mlp_rows=tile)
    plan = MemoryPlan(layers=levels, mlp_rows=tile, head_rows=chunk)
    found = parts(Recipe(adapter=section), spec, MicroBatchSize(4096, learned), plan)
    predicted = sum(size for part, size in found.items() if part not in NO_TENSORS)
    assert predicted == pytest.approx(real, rel=0.002)


@pytest.mark.parametrize("level", ["rotated", "products", "narrow", "attention", "input"])
@pytest.mark.parametrize(("name", "rows", "tile"), [
    ("olmoe-1b-7b", 4096, 0), ("lfm2-8b-a1b", 4096, 1024), ("qwen3-30b-a3b", 2048, 0),
])  # fmt: skip
def test_the_peak_of_a_pass_through_experts_at_real_sizes(monkeypatch, name, rows, tile, level):
    pytest.importorskip("triton")
    spec, section = shape(name), AdapterSection(rank=16)
    levels, chunk = (level,) * spec.num_layers, head_chunk_tokens(256, cuda=True)
    real = peak_of_a_pass(monkeypatch, name, section, rows=rows, head_rows=chunk, layers=levels, mlp_rows=tile)
    plan = MemoryPlan(layers=levels, mlp_rows=tile, head_rows=chunk)
    found = parts(Recipe(adapter=section), spec, MicroBatchSize(rows, 256), plan)
    predicted = sum(size for part, size in found.items() if part not in NO_TENSORS)
    assert predicted == pytest.approx(real, rel=0.002)


@pytest.mark.parametrize(("name", "rows", "level"), [
    ("olmoe-1b-7b", 4096, "products"), ("olmoe-1b-7b", 1024, "attention"),
    pytest.param("qwen3-30b-a3b", 16384, "attention", marks=pytest.mark.long),
    pytest.param("olmoe-1b-7b", 4096, "attention", marks=pytest.mark.long),
    pytest.param("olmoe-1b-7b", 1024, "products", marks=pytest.mark.long),
    pytest.param("qwen3-30b-a3b", 16384, "products", marks=pytest.mark.long),
])  # fmt: skip
def test_the_peak_of_a_pass_through_experts_in_nf4(monkeypatch, name, rows, level):
    """Experts are unpacked in groups, or at 128 rows an expert decoded in the product."""
    pytest.importorskip("triton")
    spec, section = shape(name, 4), AdapterSection(rank=16)
    levels, chunk = (level,) * 4, head_chunk_tokens(256, cuda=True)
    real = peak_of_a_pass(monkeypatch, name, section, rows=rows, head_rows=chunk, layers=levels, quantize=True)
    plan = MemoryPlan(layers=levels, head_rows=chunk)
    recipe = Recipe(adapter=section)
    recipe = recipe.model_copy(update={"train": recipe.train.model_copy(update={"micro_batch_tokens": rows})})
    found = parts(recipe, spec, MicroBatchSize(rows, 256), plan, nf4=True)
    predicted = sum(size for part, size in found.items() if part not in NO_TENSORS)
    assert predicted == pytest.approx(real, rel=0.003)


@pytest.mark.parametrize(("name", "targets", "layers"), [
    ("qwen3-0.6b", ["all-linear"], "offloaded"), ("qwen3-4b", ["all-linear"], "offloaded"),
    *(("llama-3.2-1b", ["o_proj", "down_proj"], level) for level in ("attention", "host", "input")),
])  # fmt: skip
def test_the_peak_of_a_long_pass_in_small_tiles(monkeypatch, name, targets, layers):
    """There attention's half is the most, also where its projections have no adapter."""
    section, spec = AdapterSection(rank=16, targets=targets), shape(name)
    levels = parse_save_levels(layers, spec.num_layers)
    real = peak_of_a_pass(monkeypatch, name, section, rows=16384, head_rows=256, layers=levels, mlp_rows=1024)
    plan = MemoryPlan(layers=levels, mlp_rows=1024, head_rows=256)
    found = parts(Recipe(adapter=section), spec, MicroBatchSize(16384, 256), plan)
    assert sum(size for part, size in found.items() if part not in NO_TENSORS) == pytest.approx(real, rel=0.002)


def random_plans():
    """Mixes as a solver may choose them, and some that none would; most of them are `long`, the slowest but one too."""
    random.seed(3)
    for number in range(48):
        name, rank = random.choice(["qwen3-0.6b", "llama-3.2-1b", "qwen3-4b", "gemma-3-1b"]), random.choice([16, 32])
        two = random.sample([level for level in LEVEL_NAMES if level != "all"], 2)
        mix = {
            "alike": lambda count, two=two: two[:1] * count,
            "blocks": lambda count, two=two: [two[index > count // 3] for index in range(count)],
            "mixed": lambda count, two=two: random.choices(two, k=count),
            "but the last": lambda count, two=two: [*two[:1] * (count - 1), two[1]],
        }[random.choice(["alike", "blocks", "mixed", "but the last"])]
        rows = random.choice([4096, 16384, 32768, 98304])
        tile = random.choice([0, 2048, 8192]) if 8192 < rows < 65536 else 4096 if rows > 8192 else 0
        chunk, levels = random.choice([256, 1024, 2048]), tuple(mix(shape(name).num_layers))
        marks = pytest.mark.long if (number % 4 and number != 34) or (rows > 65536 and number != 4) else ()
        yield pytest.param(name, rank, rows, chunk, tile, levels, marks=marks)
    for two, rows, tile in (("products", 16384, 0), ("offloaded+narrow", 16384, 0), ("host+attention", 4096, 1024)):
        levels = parse_save_levels(f"{two}:14,products", shape("lfm2.5-1.2b").num_layers)
        yield pytest.param("lfm2.5-1.2b", 16, rows, 1024, tile, levels)


@pytest.mark.parametrize(("name", "rank", "rows", "chunk", "tile", "levels"), random_plans())
def test_what_the_allocator_holds_is_predicted(monkeypatch, name, rank, rows, chunk, tile, levels):
    """Its rounding and the holes between tensors included; never more than 3 % above the prediction."""
    section, allocator = AdapterSection(rank=rank, targets=["all-linear"]), Allocator()
    watched_pass(monkeypatch, allocator, name, section, rows=rows, head_rows=chunk, layers=levels, mlp_rows=tile)
    assert allocator.held < 1.06 * allocator.most + max(2**28, 4 * rows * shape(name).hidden_size * 2)
    plan = MemoryPlan(layers=levels, mlp_rows=tile, head_rows=chunk)
    found = parts(Recipe(adapter=section), shape(name), MicroBatchSize(rows, rows), plan)
    standing = sum(found[part] for part in ("base weights", "adapter", "gradients", "optimizer"))
    predicted, held = sum(found.values()) - found["CUDA context"], standing + allocator.held
    assert -0.03 < predicted / held - 1 < 0.05


# Shape, tokens, NF4: GiB that torch held and that the process took on one H100 whose idle driver holds 0.47.
MEASURED = [
    ("qwen3-0.6b", 16384, False, 15.23, 16.44),
    ("qwen3-0.6b", 4096, False, 5.70, 6.91),
    ("llama-3.2-1b", 16384, False, 16.44, 17.65),
    ("llama-3.2-1b", 4096, False, 6.78, 7.99),
    ("qwen3-4b", 4096, True, 14.27, 15.48),
]


@pytest.mark.parametrize(("name", "tokens", "nf4", "held", "process"), MEASURED)
def test_what_was_measured_is_predicted(name, tokens, nf4, held, process):
    found = parts(Recipe(), shape(name), MicroBatchSize(tokens, tokens), nf4=nf4)
    total = sum(found.values())
    assert (total - found["CUDA context"]) / GIB == pytest.approx(held, rel=0.015)
    assert total / GIB == pytest.approx(process - 0.47, rel=0.015)


def measured_plans():
    """Plans chosen for many budgets, and what the process took of one H100 with them: tests/bench/memory_grid.py."""
    file = Path(__file__).parents[3] / "golden" / "memory" / "h100.jsonl"
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield pytest.param(row, id=f"{row['shape']} r{row['rank']} {row['tokens']} tokens {row['budget_gib']} GiB")


@pytest.mark.parametrize("row", measured_plans())
def test_plans_that_were_measured_are_predicted(row):
    """Within 5 %, and never more than 3 % too little."""
    spec, rows = shape(row["shape"]), bucket_tokens(row["tokens"], row["tokens"], packed=True)
    plan = MemoryPlan(**row["plan"] | {"layers": parse_save_levels(row["plan"]["layers"], spec.num_layers)})
    recipe = Recipe(adapter=AdapterSection(rank=row["rank"], targets=["all-linear"]))
    largest = MicroBatchSize(row["tokens"], row["tokens"], bucket=rows)
    found = parts(recipe, spec, largest, plan, nf4=row["nf4"])
    assert -0.03 < sum(found.values()) / GIB / row["process_gib"] - 1 < 0.05
    offloaded = plan.model_copy(update={"embedding_on_host": False, "head_on_host": False})  # tables were not counted
    assert host_bytes(run(recipe, spec, largest, nf4=row["nf4"]), offloaded) / GIB == pytest.approx(
        row["host_gib"], abs=0.001
    )


NO_TENSORS = {"graph pools", "fragmentation", "CUDA context"}


def run(recipe, spec, largest, **options):
    options = {"cuda": True, "precision": "bf16", "nf4": False} | options
    return FastRun(recipe, spec, largest, **options)


def parts(recipe, spec, largest, plan=None, **options):
    planned = run(recipe, spec, largest, **options)
    if plan is None:
        head = head_chunk_tokens(largest.supervised_tokens, cuda=planned.cuda)
        plan = MemoryPlan(layers=("products",) * spec.num_layers, head_rows=head)
    return {part.name: part.bytes for part in memory_parts(planned, plan)}


@pytest.mark.parametrize("what", [{"exchange": "bf16"}, {"exact": True}])
def test_what_gpus_exchange_with_is_in_the_peak(what):
    spec, largest = shape("llama-3.2-1b"), MicroBatchSize(4096, 256)
    shared = Recipe(devices=DevicesSection(strategy="data_parallel", gpus=[0, 1], **what))
    plan = MemoryPlan(layers=("products",) * spec.num_layers, head_rows=256)
    alone, found = parts(Recipe(), spec, largest, plan), parts(shared, spec, largest, plan)
    assert found["exchange of gradients"] >= 2 * found["gradients"]
    assert sum(found.values()) >= sum(alone.values()) + found["exchange of gradients"]
    total = memory_of(run(shared, spec, largest)).totals(*split_plan(plan))[0]
    assert sum(found.values()) == pytest.approx(total, abs=8)


def test_static_sizes_are_those_of_the_engine():
    random.seed(0)
    for _ in range(300):
        most = random.randint(1, 20_000)
        tokens = random.randint(1, most)
        for packed in (True, False):
            sizes = buckets(20_000, packed, most)
            layouts = [BucketLayout(rows, 128, 256) for rows in sizes]
            assert largest_bucket_tokens(most) == sizes[-1]
            assert bucket_tokens(tokens, most, packed=packed) == layout_for(tokens, layouts).capacity


def test_levels_go_from_large_to_small():
    spec = shape("qwen3-4b")
    sizes = {
        level: parts(
            Recipe(), spec, MicroBatchSize(4096, 1000), MemoryPlan(layers=(level,) * spec.num_layers, head_rows=1024)
        )
        for level in LEVEL_NAMES
    }
    kept = [sizes[level]["activations"] for level in LEVEL_NAMES if level != "offloaded"]
    assert kept == sorted(kept, reverse=True)
    assert sizes["attention"]["activations"] < sizes["products"]["activations"] / 4
    assert sizes["input"]["activations"] < sizes["host"]["activations"] < sizes["attention"]["activations"] / 3
    assert abs(sizes["offloaded"]["activations"] / sizes["narrow"]["activations"] - 1) < 0.01


@pytest.mark.parametrize("cuda", [True, False])
@pytest.mark.parametrize(("tile", "head", "embedding", "tables"), [(0, 512, False, False), (1024, 4096, True, True)])
def test_the_parts_sum_up_to_the_peak(cuda, tile, head, embedding, tables):
    spec = shape("llama-3.1-8b")
    planned = run(Recipe(), spec, MicroBatchSize(8192, 5000), cuda=cuda, nf4=True)
    for layers in (MIXED, "host:3,rotated:2,attention"):
        plan = MemoryPlan(
            layers=parse_save_levels(layers, spec.num_layers),
            mlp_rows=tile,
            head_rows=head,
            embedding_on_host=embedding,
            head_on_host=tables,
        )
        total = sum(part.bytes for part in memory_parts(planned, plan))
        assert total == pytest.approx(memory_of(planned).totals(*split_plan(plan))[0], abs=8)
        assert total == pytest.approx(peak_bytes(planned, plan), abs=8)


@pytest.mark.parametrize("tile", [0, 1024])
@pytest.mark.parametrize("name", ["qwen3-0.6b", "llama-3.2-1b", "gemma-3-1b"])
@pytest.mark.parametrize("level", LEVEL_NAMES)
def test_looking_at_held_out_rows_takes_less_than_a_pass(name, level, tile):
    """So that only passes are counted, even those of a single layer that keeps next to nothing."""
    spec = shape(name).model_copy(update={"layers": shape(name).layers[:1]})
    for targets in (["all-linear"], ["q_proj"]):
        planned = run(Recipe(adapter=AdapterSection(targets=targets)), spec, MicroBatchSize(4096, 16))
        levels, _ = split_plan(MemoryPlan(layers=(level,), mlp_rows=tile, head_rows=256))
        peaks, layer = (
            memory_of(planned).peaks(levels, tile),
            LayerShape(spec, planned.recipe.adapter, 2, cuda=True, layer=spec.layers[0]),
        )
        assert evaluated_bytes(layer, 4096, tile) < peaks.pass_peak[0]


@pytest.mark.parametrize(
    ("name", "rows", "tile"), [("qwen3-4b", 16384, 0), ("gemma-3-1b", 4096, 2048), ("lfm2.5-1.2b", 16384, 0)]
)
def test_the_bound_by_counts_alone_is_one(name, rows, tile):
    """The solver leaves out what it says does not fit."""
    spec = shape(name)
    memory = memory_of(run(Recipe(), spec, MicroBatchSize(rows, rows), nf4=True))
    counts = level_mixes(spec.num_layers, tuple(level for level in LEVEL_NAMES if level != "all"))
    for chunk in (256, 4096):
        least = memory.least_totals(counts.astype(float), [PlanOptions(tile, chunk)])[0]
        for clear in (0, 4):
            assert (least <= memory.totals(arrange_layers(counts, clear), PlanOptions(tile, chunk))).all()


@pytest.mark.parametrize(("name", "embedding", "head", "saved"), [
    ("llama-3.1-8b", True, False, 1), ("llama-3.1-8b", True, True, 2), ("qwen3-4b", True, True, 1),
    ("qwen3-4b", True, False, 0),
])  # fmt: skip
def test_tables_in_host_memory_are_not_on_the_device(name, embedding, head, saved):
    spec, largest = shape(name), MicroBatchSize(4096, 1000)
    plan = MemoryPlan(layers=("products",) * spec.num_layers, head_rows=1024)
    away = plan.model_copy(update={"embedding_on_host": embedding, "head_on_host": head})
    here, there = parts(Recipe(), spec, largest, plan), parts(Recipe(), spec, largest, away)
    size = saved * 2 * embedding_parameters(spec)
    assert here["base weights"] - there["base weights"] == size
    assert host_bytes(run(Recipe(), spec, largest), away) == size


def test_a_tile_of_the_feed_forward_bounds_its_wide_tensors():
    spec = shape("llama-3.1-8b")
    plans = [MemoryPlan(layers=("attention",) * 32, mlp_rows=rows, head_rows=256) for rows in (0, 8192, 1024)]
    sizes = [parts(Recipe(), spec, MicroBatchSize(32768, 256), plan)["workspace"] for plan in plans]
    assert sizes[0] > 1.5 * sizes[1] > 1.5 * sizes[2]


def test_adapter_optimizer_and_gradients_are_fp32():
    recipe = Recipe(model=ModelSection(quantize="nf4"), data=DataSection(max_length=512))
    found = parts(recipe, shape("qwen3-0.6b"), MicroBatchSize(2048, 1000), nf4=True, precision="fp16")
    assert found["adapter"] == 4 * adapter_parameters(shape("qwen3-0.6b"), recipe.adapter)
    assert found["optimizer"] == 2 * found["adapter"] == 2 * found["gradients"]
