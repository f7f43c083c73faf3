"""The plain engine's memory of models with state spaces, linear attention or experts, against what autograd keeps."""

import pytest
import torch
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM

from burnish_engine.advise.facts.workload import MicroBatchSize
from burnish_engine.advise.predict.plain.memory import (
    layer_kept_bytes,
    plain_memory,
)
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_train import AdapterSection, TrainSection
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.transformers_path.model_shape import measured_spec
from burnish_engine.models.transformers_path.plain import attach_adapter

from support.memory.live_bytes import LiveBytes

pytestmark = pytest.mark.usefixtures("one_thread")

FULL = AdapterSection(method="full")
SMALL = {"vocab_size": 200, "hidden_size": 128}
HEADS = {"intermediate_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0}
MAMBA_2 = {"mamba_n_heads": 8, "mamba_d_head": 32, "mamba_d_state": 32, "mamba_chunk_size": 32}
EXPERTS = {"num_experts": 8, "num_local_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
DELTA_RULE = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "head_dim": 32}
DELTA_RULE |= {"linear_key_head_dim": 32, "linear_value_head_dim": 32}
MIXERS = {
    "mamba": {"state_size": 16},
    "mamba2": {"state_size": 32, "num_heads": 8, "head_dim": 32, "n_groups": 1, "chunk_size": 32},
    "mamba2 in long chunks": {"state_size": 32, "num_heads": 8, "head_dim": 32, "n_groups": 1, "chunk_size": 256},
    "jamba": {**HEADS, "num_experts": 1, "attn_layer_period": 9, "attn_layer_offset": 8},
    "granitemoehybrid": {**HEADS, **MAMBA_2, "num_local_experts": 0, "shared_intermediate_size": 256},
    "falcon_h1": {**HEADS, **MAMBA_2, "mamba_d_ssm": 256},
    "granitemoehybrid experts": {
        **HEADS,
        **MAMBA_2,
        **EXPERTS,
        "intermediate_size": 64,
        "shared_intermediate_size": 512,
    },
    "qwen3_next": {**HEADS, **EXPERTS, **DELTA_RULE, "shared_expert_intermediate_size": 512},
    "qwen3_next attends": {**HEADS, **EXPERTS, **DELTA_RULE, "shared_expert_intermediate_size": 512},
    "qwen3_5_text": {**HEADS, **DELTA_RULE},
    "qwen2_moe": {**HEADS, **EXPERTS, "shared_expert_intermediate_size": 512},
}
"""Architectures whose layers are, or contain, state spaces or linear attention; those of Falcon H1 attend as well, and
those of Qwen3-Next alone where it says so. Experts that every token passes are wide, so that leaving them out shows."""
KINDS = {
    "qwen3_next": "linear_attention", "qwen3_next attends": "full_attention", "qwen3_5_text": "linear_attention",
}  # fmt: skip


def mixing_model(name, layers, dtype):
    family, kind = name.split()[0], KINDS.get(name, "mamba")
    kinds = {"layer_types": [kind] * layers} if name in KINDS or family == "granitemoehybrid" else {}
    config = AutoConfig.for_model(family, **SMALL, **MIXERS[name], **kinds, num_hidden_layers=layers)
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=dtype), config


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("name", "dtype", "whole"),
    [
        ("mamba", torch.bfloat16, False),
        ("mamba2", torch.float32, True),
        ("jamba", torch.float32, False),
        ("granitemoehybrid", torch.float32, False),
        ("falcon_h1", torch.bfloat16, True),
        ("granitemoehybrid experts", torch.float32, True),
        ("qwen3_next", torch.float32, False),
        ("qwen3_next attends", torch.float32, False),
        ("qwen3_5_text", torch.bfloat16, False),
        ("qwen3_5_text", torch.float32, True),
        ("qwen2_moe", torch.bfloat16, False),
    ],
)
def test_state_spaces_keep_what_was_measured_on_the_model_without_weights(name, dtype, whole):
    section = FULL if whole else AdapterSection(rank=4, targets=["all-linear"])
    held = []
    for layers in (2, 3):
        model, config = mixing_model(name, layers, dtype)
        tuned = model.train() if whole else attach_adapter(model.requires_grad_(False), section, seed=0).train()
        left_out, storages = {value.data_ptr() for value in tuned.parameters()}, {}

        def pack(tensor, left_out=left_out, storages=storages):
            if tensor.data_ptr() not in left_out:
                storages[tensor.untyped_storage().data_ptr()] = (tensor.untyped_storage().nbytes(), tensor)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            logits = tuned(input_ids=torch.full((1, 64), 7), use_cache=False).logits
        assert logits.requires_grad
        held.append(sum(size for size, _ in storages.values()))
    known = decoder_spec(config.to_dict()) if name == "qwen3_5_text" else None
    recipe, spec = Recipe(adapter=section, train=TrainSection(pack=False)), known or measured_spec(config.to_dict())
    predicted = [layer_kept_bytes(recipe, spec, layer, 64, dtype.itemsize) for layer in spec.layers]
    assert predicted == pytest.approx([held[1] - held[0]] * 3, rel=0.03)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("name", "tokens"), [("mamba", 64), ("mamba2 in long chunks", 256)])
def test_a_mixer_is_measured_alone_and_on_whole_chunks(name, tokens):
    """The mixer's input is not counted: the norm before it holds it. A part of a chunk takes as much as a whole one."""
    model, config = mixing_model(name, 2, torch.float32)
    part, kept = model.backbone.layers[0].mixer, {}  # trained, so that its first product needs its input
    given = torch.randn(1, tokens, 128, requires_grad=True)
    left_out = {value.data_ptr() for value in (given, *part.parameters())}

    def pack(tensor):
        if tensor.untyped_storage().data_ptr() not in left_out:
            kept[tensor.untyped_storage().data_ptr()] = (tensor.untyped_storage().nbytes(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        assert part(given).requires_grad
    counted = measured_spec(config.to_dict()).layers[0].mixer_kept.whole_fp32
    assert counted == pytest.approx(sum(size for size, _ in kept.values()) / tokens, rel=1e-3, abs=8)


@pytest.mark.full
@pytest.mark.parametrize(
    "name", ["mamba", "granitemoehybrid", "granitemoehybrid experts", "qwen3_next", "qwen3_next attends"]
)
def test_a_pass_through_state_spaces_takes_what_is_predicted(name):
    model, config = mixing_model(name, 3, torch.float32)
    section = AdapterSection(rank=4, targets=["all-linear"])
    tuned = attach_adapter(model.requires_grad_(False), section, seed=0).train()
    ids = torch.full((1, 64), 7)
    with LiveBytes() as live:
        for value in tuned.parameters():
            live._see(value.untyped_storage())
        functional.cross_entropy(tuned(input_ids=ids, use_cache=False).logits[0].float(), ids[0]).backward()
    recipe = Recipe(adapter=section, train=TrainSection(pack=False))
    made = plain_memory(recipe, measured_spec(config.to_dict()), MicroBatchSize(64, 64), cuda=False, precision="fp32")
    predicted = sum(part.bytes for part in made if part.name not in {"allocator", "libraries", "optimizer"})
    assert 0.97 < predicted / live.peak < 1.3
