"""Which matrices get an adapter, and which recipes are refused since they miss some without saying so."""

import pytest

from burnish_engine.contract.errors import UsageError
from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.models.checkpoint.spec import decoder_spec
from burnish_engine.models.families import FAMILIES
from burnish_engine.models.families.adapter_targets import check_spec_targets, planned_coverage
from burnish_engine.models.families.matrices import TAKEN_FOR_EXPERTS
from burnish_engine.models.transformers_path.peft_import import import_peft

LLAMAS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SIZES = {
    "vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-6,
}  # fmt: skip
CONFIGS = {
    "llama": SIZES,
    "phi3": SIZES,
    "lfm2": {**SIZES, "layer_types": ["conv", "full_attention", "conv"], "block_auto_adjust_ff_dim": False},
    "qwen3_moe": {**SIZES, "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2, "head_dim": 16},
    "gpt_oss": {**SIZES, "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16},
}


def spec(family):
    return decoder_spec({"model_type": family, **CONFIGS[family]})


def shares(family, targets, **section):
    """Kind of layer -> share of its weights that is reached."""
    found = planned_coverage(spec(family), AdapterSection(targets=targets, **section)).kinds
    return {one.kind: one.reached / one.weights for one in found}


@pytest.mark.parametrize("family", CONFIGS)
def test_the_default_reaches_every_kind_of_layer_but_routers(family):
    assert check_spec_targets(spec(family), AdapterSection()) == []
    found = shares(family, AdapterSection().targets)
    assert all(share > 0.98 for kind, share in found.items() if kind != "router")
    assert found.get("router", 0.0) == 0.0


@pytest.mark.parametrize(
    ("family", "targets", "missed"),
    [
        ("lfm2", LLAMAS, ["w1", "in_proj", "out_proj"]),
        ("phi3", LLAMAS, ["qkv_proj", "gate_up_proj"]),
        ("qwen3_moe", LLAMAS, ["gate_up_proj"]),
        ("gpt_oss", LLAMAS, ["gate_up_proj"]),
        ("qwen3_moe", ["all-linear"], ["experts"]),
        ("gpt_oss", ["all-linear"], ["experts"]),
        ("llama", ["q_proj", "router"], ["down_proj"]),
    ],
)
def test_targets_that_miss_parts_without_saying_so_are_refused(family, targets, missed):
    with pytest.raises(UsageError) as told:
        check_spec_targets(spec(family), AdapterSection(targets=targets))
    assert all(name in told.value.what for name in missed)
    assert '["auto"]' in told.value.remedy


@pytest.mark.parametrize("family", ["llama", "lfm2", "qwen3_moe"])
def test_what_a_recipe_names_is_trained_and_nothing_else(family):
    section = AdapterSection(targets=["q_proj", "v_proj"])
    assert check_spec_targets(spec(family), section) == []
    found = shares(family, section.targets)
    assert 0 < found.pop("attention") < 1
    assert set(found.values()) == {0.0}


def test_old_lists_of_names_that_reach_everything_still_do():
    assert check_spec_targets(spec("llama"), AdapterSection(targets=LLAMAS)) == []
    assert shares("llama", LLAMAS) == shares("llama", ["auto"]) == {"attention": 1.0, "feed-forward": 1.0}


def test_names_beside_what_reaches_everything_are_told():
    (note,) = check_spec_targets(spec("llama"), AdapterSection(targets=[*LLAMAS, "w1"]))
    assert "w1" in note
    with pytest.raises(UsageError, match="None of the adapter targets"):
        check_spec_targets(spec("llama"), AdapterSection(targets=["w1"]))


@pytest.mark.parametrize(("family", "router"), [("qwen3_moe", "gate"), ("gpt_oss", "router")])
def test_of_a_named_router_it_is_told_that_it_stays_as_it_is(family, router):
    attention = ["q_proj", "k_proj", "v_proj", "o_proj"]
    (note,) = check_spec_targets(
        spec(family), AdapterSection(targets=[*attention, router, "gate_up_proj", "down_proj"])
    )
    assert router in note and "no matrices" not in note
    with pytest.raises(UsageError) as told:
        check_spec_targets(spec(family), AdapterSection(targets=["q_proj", router]))
    assert router in told.value.what and "does not have" not in told.value.what
    with pytest.raises(UsageError, match="gets adapters"):
        check_spec_targets(spec(family), AdapterSection(targets=[router]))


@pytest.mark.parametrize("section", [{"dropout": 0.1}, {"method": "dora"}])
def test_adapters_on_fused_experts_are_plain_lora(section):
    with pytest.raises(UsageError, match="fused"):
        check_spec_targets(spec("qwen3_moe"), AdapterSection(**section))
    assert check_spec_targets(spec("qwen3_moe"), AdapterSection(targets=["q_proj"], **section)) == []
    assert check_spec_targets(spec("llama"), AdapterSection(**section)) == []


def test_families_say_whose_layers_peft_takes_for_experts():
    import_peft()
    from peft.utils import transformers_weight_conversion as conversion

    taken = {
        name
        for name in FAMILIES
        if TAKEN_FOR_EXPERTS
        & conversion._MOE_TARGET_MODULE_MAPPING.get(conversion._MODEL_TO_CONVERSION_PATTERN.get(name), {}).keys()
    }
    assert taken == {name for name, one in FAMILIES.items() if one.peft_converts}


def test_paths_tell_matrices_of_the_same_name_apart():
    layered = decoder_spec({"model_type": "qwen3_moe", **CONFIGS["qwen3_moe"], "mlp_only_layers": [0]})
    assert check_spec_targets(layered, AdapterSection(targets=["experts.down_proj"])) == []
    found = planned_coverage(layered, AdapterSection(targets=["experts.down_proj"])).kinds
    assert {one.kind for one in found if one.reached} == {"experts"}


def test_training_every_weight_has_no_targets_to_refuse():
    section = AdapterSection(method="full", targets=["nothing"])
    assert check_spec_targets(spec("lfm2"), section) == []
    assert set(shares("lfm2", ["nothing"], method="full").values()) == {1.0}
