"""What can be exported is decided before training, the same way as the export itself decides."""

import json

import pytest

from burnish_engine.advise.facts.catalog import catalog
from burnish_engine.advise.plan.exports import export_notes, exports_of, planned_exports, refusal
from burnish_engine.advise.plan.plan import plan_run
from burnish_engine.contract.facts.exports import GGUF_KINDS, export_text, next_export
from burnish_engine.contract.recipe.recipe import Recipe
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.checkpoint.spec import decoder_spec, rough_spec
from burnish_engine.models.transformers_path.model_shape import measured_spec

from support.machines.advice import CPU_16

QWEN3 = {
    "model_type": "qwen3", "vocab_size": 600, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip
MOE = {**QWEN3, "model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
NORMALIZED = {**MOE, "norm_topk_prob": True}
OTHER_MOE = {
    **MOE, "model_type": "qwen3_next", "shared_expert_intermediate_size": 32, "layer_types": ["full_attention"] * 2,
}  # fmt: skip
"""Config of a mixture whose family Burnish does not know in detail."""
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]


def works(config, **adapter):
    found = exports_of(config, decoder_spec(config), AdapterSection(**adapter))
    return {one.kind for one in found if one.works}


def test_a_known_family_goes_everywhere():
    assert works(QWEN3) == {"gguf", "ollama", "lmstudio", "safetensors", "adapter", "lora-gguf"}
    assert works(QWEN3, method="full") == {"gguf", "ollama", "lmstudio", "safetensors"}
    assert works(NORMALIZED) == works(QWEN3)


@pytest.mark.parametrize(
    ("original", "truncate", "longest", "refused"),
    [(64, False, 1024, True), (512, False, 1024, True), (64, True, 1024, False), (64, False, 32, False),
     (4096, False, 1024, False)],
)  # fmt: skip
def test_the_plan_says_what_the_proof_will_refuse(original, truncate, longest, refused):
    """llama.cpp rounds the bounds of gpt-oss' rope: nothing over the published 4,096 tokens, all over a few."""
    rope = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": original, "truncate": truncate}
    config = {
        **QWEN3, "model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 64,
        "head_dim": 64, "rope_theta": 150_000, "rope_scaling": rope, "max_position_embeddings": 131_072,
    }  # fmt: skip
    spec = decoder_spec(config)
    notes = export_notes(planned_exports(config, spec, AdapterSection()), spec, longest)
    assert len(notes) == refused
    assert all("will be refused" in note and f"{original:,} tokens" in note for note in notes)


def test_gpt_oss_goes_everywhere_from_its_own_four_bits():
    config = {
        **QWEN3, "model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 64,
        "quantization_config": {"quant_method": "mxfp4"},
    }  # fmt: skip
    assert works(config) == works(QWEN3)


@pytest.mark.parametrize(
    ("config", "adapter", "left", "word"),
    [
        (MOE, {"targets": ATTENTION}, {"safetensors", "adapter"}, "experts"),
        (MOE, {"targets": [*ATTENTION, "gate_up_proj"]}, {"safetensors", "adapter"}, "experts"),
        ({**QWEN3, "quantization_config": {"quant_method": "bitsandbytes"}}, {}, {"adapter"}, "bitsandbytes"),
        ({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4}, {}, {"adapter"}, "transposed"),
        ({**QWEN3, "hidden_act": "gelu"}, {}, {"safetensors", "adapter"}, "activation"),
        ({**QWEN3, "use_sliding_window": True, "max_window_layers": 1}, {}, {"safetensors", "adapter"}, "sliding"),
        ({**QWEN3, "num_hidden_layers": "two"}, {}, {"safetensors", "adapter"}, "in detail"),
    ],
)
def test_what_does_not_work_is_told_with_its_reason_and_what_is_next(config, adapter, left, word):
    assert works(config, **adapter) == left
    found = exports_of(config, decoder_spec(config), AdapterSection(**adapter))
    assert word in export_text(found)
    assert all(one.reason for one in found if not one.works)
    assert next_export(found).removeprefix("--to ") in left


def test_a_model_whose_layers_are_stored_transposed_is_merged_only_where_all_of_it_is_trained():
    assert works({"model_type": "gpt2"}, method="full") == {"safetensors"}


def test_a_reason_without_the_models_name_is_a_sentence():
    found = planned_exports(
        {**QWEN3, "quantization_config": {"quant_method": "gptq"}}, rough_spec(QWEN3), AdapterSection()
    )
    assert "The base model is quantized" in export_text(found)


@pytest.mark.parametrize(
    ("config", "experts"), [({**QWEN3, "quantization_config": {"quant_method": "gptq"}}, False), (OTHER_MOE, True),
                            (QWEN3, True)],
)  # fmt: skip
def test_an_adapter_for_llama_cpp_is_not_refused_for_merging(tmp_path, config, experts):
    """Nothing is merged for it, and what is offered instead works."""
    targets = ["mlp.experts.gate_up_proj"] if experts else None
    (tmp_path / "adapter_config.json").write_text(json.dumps({"target_parameters": targets}))
    found = refusal("lora-gguf", config, decoder_spec(config), AdapterSection(), trained=tmp_path)
    assert "merge" not in found.what
    assert "--to adapter" in found.remedy
    assert refusal("adapter", config, decoder_spec(config), AdapterSection(), trained=tmp_path) is None


def test_a_finished_adapter_says_itself_whether_experts_were_trained(tmp_path):
    def refused(config, targets):
        (tmp_path / "adapter_config.json").write_text(json.dumps({"target_parameters": targets}))
        return refusal("safetensors", config, decoder_spec(config), AdapterSection(), trained=tmp_path)

    assert refused(OTHER_MOE, ["mlp.experts.gate_up_proj"])
    assert refused(OTHER_MOE, None) is None
    assert refused(MOE, ["mlp.experts.gate_up_proj"]) is None


def test_experts_of_a_family_without_a_table_are_known_from_the_built_model():
    spec = measured_spec(OTHER_MOE)
    for targets, left in ((["auto"], {"adapter"}), (ATTENTION, {"adapter", "safetensors"})):
        found = planned_exports(OTHER_MOE, spec, AdapterSection(targets=targets))
        assert {one.kind for one in found if one.works} == left


def test_every_model_of_the_catalog_that_is_said_to_export_does_and_others_say_why():
    for model in catalog():
        found = planned_exports(None, model.spec, AdapterSection())
        typed = {one.works for one in found if one.kind in GGUF_KINDS}
        assert typed == {model.exports}, model.name
        assert bool(export_text(found)) is not model.exports


def test_a_plan_tells_it_once_and_in_words():
    spec = rough_spec(MOE)
    plan = plan_run(Recipe(adapter=AdapterSection(targets=ATTENTION)), spec, CPU_16, config=MOE)
    assert {one.kind for one in plan.exports if one.works} == {"safetensors", "adapter"}
    assert sum("exported" in note for note in plan.notes) == 1
    usual = plan_run(Recipe(), decoder_spec(QWEN3), CPU_16)
    assert all(one.works for one in usual.exports)
    assert not any("exported" in note for note in usual.notes)


def test_old_runs_without_the_decision_are_told_the_usual():
    assert next_export([]) == "--to gguf"
    assert export_text([]) == ""
