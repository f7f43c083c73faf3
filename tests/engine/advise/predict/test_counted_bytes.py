"""The fast engine's memory against its real tensors, to the byte: what a pass keeps, and weights wherever they are."""

import itertools
from dataclasses import fields
from functools import cache
from math import prod

import numpy as np
import pytest
import torch

from burnish_engine.advise.facts.shape import adapter_parameters
from burnish_engine.advise.facts.workload import MicroBatchSize
from burnish_engine.advise.predict.fast_experts import expert_sizes, order_bytes, scratch_bytes
from burnish_engine.advise.predict.fast_layer import LayerShape, kept_bytes, offloaded_bytes
from burnish_engine.advise.predict.fast_memory import POOL_SHARE, memory_of
from burnish_engine.advise.predict.fast_shape import frozen_weights, stacks
from burnish_engine.advise.predict.plan_options import PlanOptions
from burnish_engine.bench.shapes import RandomWeights, shape
from burnish_engine.contract.recipe.memory_plan import LEVEL_NAMES
from burnish_engine.contract.recipe.recipe import Recipe
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
from burnish_kernels.attention.documents import Documents
from burnish_kernels.attention.op import tile_rows

from support.memory.planned_memory import EIGHT_BITS, run
from support.memory.rank_memory import MemoryHere

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
    "gemma4_unified_text": {
        "layer_types": ["full_attention", "sliding_attention", "full_attention"], "sliding_window": 32,
        "global_head_dim": 128, "num_global_key_value_heads": 1, "attention_k_eq_v": True,
        "hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": 320,
    },
    "gemma4_text": {
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"], "sliding_window": 32,
        "global_head_dim": 128, "hidden_size_per_layer_input": 0, "enable_moe_block": True, "num_experts": 6,
        "top_k_experts": 2, "moe_intermediate_size": 128,
    },
    "phi3": {},
    "lfm2": {"layer_types": ["conv", "full_attention", "conv"], "block_auto_adjust_ff_dim": False},
    "olmo2": {},
    "apertus": {"hidden_act": "xielu", "tie_word_embeddings": False},
    "qwen3_5_text": {
        "layer_types": ["linear_attention", "full_attention", "linear_attention"], "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 64,
    },
    "lfm3": {"layer_types": ["conv", "full_attention", "sliding_attention"], "sliding_window": 32},
    "qwen3_5_moe_text": {
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 32,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"], "num_experts": 6,
        "num_experts_per_tok": 2, "moe_intermediate_size": 128, "shared_expert_intermediate_size": 192,
    },
    "qwen3_moe": {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "mlp_only_layers": [1]},
    "qwen2_moe": {
        "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "mlp_only_layers": [1],
        "shared_expert_intermediate_size": 192,
    },
    "olmoe": {"intermediate_size": 128, "num_experts": 6, "num_experts_per_tok": 2},
    "mixtral": {"intermediate_size": 128, "num_local_experts": 4},
    "lfm2_moe": {
        "layer_types": ["conv", "full_attention", "conv"], "num_dense_layers": 1, "num_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 128,
    },
    "gpt_oss": {"intermediate_size": 128, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 32},
}  # fmt: skip
MIXTURES = ["gemma4_text", "qwen3_moe", "qwen2_moe", "qwen3_5_moe_text", "olmoe", "mixtral", "lfm2_moe", "gpt_oss"]
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


@pytest.mark.full
@pytest.mark.parametrize(("name", "level", "section", "dtype", "tile"), kept_cases())
def test_what_a_pass_keeps_is_counted_to_the_byte(name, level, section, dtype, tile):
    decoder = kept_decoder(name, section, dtype)
    decoder.chunk_feed_forward(tile)
    spec, section = spec_of(name), ADAPTERS[section]
    docs = Documents.from_boundaries(np.array([0, 50, TOKENS]), TOKENS, tile_rows(spec.largest_head, dtype, CPU), CPU)
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


@pytest.mark.full
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


@pytest.mark.full
@pytest.mark.parametrize("name", FAMILIES)
def test_nf4_weights_are_counted_to_the_byte(name):
    spec, section = spec_of(name), ADAPTERS["all"]
    loaded = build(spec, section, torch.bfloat16, quantize=True)
    frozen = [stack.frozen for layer in loaded.decoder.layers for stack in layer.stacks]
    assert all(isinstance(one, QuantizedWeight) for one in frozen)
    constants = 256 * 4 + 4  # of each module: levels of the scales, and their mean
    packed = sum(part.nbytes - constants for one in frozen for part in one.parts)
    scratch = {one.scratch.data_ptr(): one.scratch.untyped_storage().nbytes() for one in frozen}
    assert len(scratch) == (2 if any("gate_up" in layer.weights.stacks for layer in loaded.decoder.layers) else 1)
    predicted = frozen_weights(spec, section, "bf16", nf4=True)
    made = [stack for layer in spec.layers for stack in stacks(spec, section, layer).values()]
    weights = sum(one.outputs * one.inputs for one in made)
    assert weights / 64 < predicted.tables < 1.03 * weights / 64
    assert predicted.experts == experts_of(loaded)
    real = outside(loaded) + loaded.compute_buffer.nbytes + packed + predicted.experts
    # The last scale of a matrix may stand for fewer weights: gates of LFM3 and Qwen3.5 have few rows.
    has_few_rows = name in {"lfm3", "qwen3_5_text", "qwen3_5_moe_text"}
    assert 0 <= real - predicted.stored <= (4 * len(loaded.plan.modules) if has_few_rows else 0)
    groups = scratch_bytes(spec, [*LayerShape(spec, section, 2, True, spec.layers[-1]).experts.values()], 2, nf4=True)
    assert predicted.scratch == sum(scratch.values()) + groups


DENSE = [name for name in FAMILIES if not spec_of(name).num_experts]
CODED = [
    (name, way)
    for name in FAMILIES
    for way, (_, use) in EIGHT_BITS.items()
    if not (use.products and why_not_eight(use.products, Recipe(), spec_of(name), "bf16", None))
]


@pytest.mark.quick_cases(8)
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
    groups = SCRATCH_BYTES if spec.num_experts and eight_bits.products else 0  # a processor has no memory for them
    assert predicted.scratch - groups == pytest.approx(sum(storages.values()), abs=groups * 1e-3)
    held = sum(tensor.nbytes for one in frozen for tensor in one.tensors(0, 0).values()) + experts_of(loaded)
    if nf4:
        held += sum(one.scales.nbytes for one in frozen)
        experts = [layer.weights.experts for layer in loaded.decoder.layers if layer.weights.experts]
        held += sum(stack.codes.scale_E.nbytes for one in experts for stack in one.stacks.values())
        held -= (256 * 4 + 4) * len(loaded.plan.modules)
    real = outside(loaded) + loaded.compute_buffer.nbytes + held
    assert predicted.stored == pytest.approx(real, rel=1e-3 if nf4 else 0)


@pytest.mark.full
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
    assert memory.weights_on_host(places) - memory.tables_on_host(places) == ring.host_bytes == 0
    level = np.zeros((1, spec.num_layers), np.int8)
    more = memory.totals(level, places) - memory.totals(level, hosted)
    assert more == pytest.approx(ring.shares.bytes * (1 + POOL_SHARE), rel=1e-6)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("name", "way"), CODED)
def test_fp8_weights_in_host_memory_are_counted_to_the_byte(name, way):
    (nf4, eight_bits), spec, section = EIGHT_BITS[way], spec_of(name), ADAPTERS["all"]
    options = {"dtype": torch.bfloat16, "quantize": nf4, "eight_bits": eight_bits}
    here, there = build(spec, section, **options), build(spec, section, **options, layers_on_host=frozenset({0, 1, 2}))
    planned = run(Recipe(adapter=section), spec, MicroBatchSize(TOKENS, TOKENS), nf4=nf4, eight_bits=eight_bits)
    places, memory = PlanOptions(0, 256, layers_on_host=(0, 1, 2)), memory_of(planned)
    assert [len(there.decoder.ring.host(layer)) for layer in range(3)] == memory.blocks.tolist()
    frozen = [stack.frozen for layer in here.decoder.layers for stack in layer.stacks]
    left = sum(tensor.nbytes for one in frozen for tensor in one.tensors(0, 0).values()) + experts_of(here)
    assert memory.freed_bytes(places) == pytest.approx(left - (nf4 * 1028 * len(here.plan.modules)), rel=0.003)


@pytest.mark.parametrize(("name", "tokens"), [("qwen3-30b-a3b", 3072), ("gpt-oss-20b", 2560)])
def test_experts_are_unpacked_where_they_have_many_rows(name, tokens):
    """Many are 192 an expert in NF4 and 320 in MXFP4; a pass of fewer tokens needs no memory to unpack into."""
    spec, section = shape(name), AdapterSection()
    found = [frozen_weights(spec, section, "bf16", nf4=True, tokens=count).scratch for count in (tokens - 1, tokens)]
    assert 0.6 * SCRATCH_BYTES < found[1] - found[0] <= SCRATCH_BYTES
    assert frozen_weights(spec, section, "bf16", nf4=True).scratch == found[1]


@pytest.mark.full
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
    assert memory.weights_on_host(places) - memory.tables_on_host(places) == ring.host_bytes
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
    """Bytes of the weights outside the stacks: embedding, head, norms, biases, inputs of the layers' own."""
    decoder, found = loaded.decoder, {}
    tensors = [decoder.embedding_VH, decoder.head.matrix_VH, decoder.final_norm_H]
    for layer in decoder.layers:
        tensors += layer.weights.vectors.values()
        tensors += [stack.bias_N for stack in layer.stacks if stack.bias_N is not None]
    tensors += [tensor for one in decoder.magnitudes for tensor in (one.scale_N, one.frozen_N)]
    tensors += decoder.layer_inputs.tensors.values() if decoder.layer_inputs else []
    for tensor in tensors:
        found[tensor.data_ptr()] = tensor.nbytes
    return sum(found.values())
