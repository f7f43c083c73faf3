"""Adapters on experts: merged expert by expert as PEFT merges them, whatever form the files hold the experts in."""

import json

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

from burnish_engine.contract.errors import SetupError, UsageError
from burnish_engine.export.checks.trained_weights import Origin, TrainedWeights
from burnish_engine.export.weights import experts
from burnish_engine.export.weights.adapter import read_adapter
from burnish_engine.export.weights.folders import export_safetensors
from burnish_engine.export.weights.merge import MergedWeights
from burnish_engine.models.checkpoint.source import open_model
from burnish_engine.models.transformers_path.plain import load_base

from support.models.export import CPU, edit_json, tuned_model
from support.models.small_mixtures import GPT_OSS, PUBLISHED, adapt_experts, make_mixture

QWEN, OLMOE, MIXTRAL = "Qwen/Qwen3-30B-A3B", "allenai/OLMoE-1B-7B-0924", "mistralai/Mixtral-8x7B-v0.1"
LFM2 = "LiquidAI/LFM2-8B-A1B"
IDS = torch.arange(40).reshape(1, 40)


def forms():
    """Every family in the form that it is published in; gpt-oss's bf16 too, and one with fused stacks."""
    return [(name, "") for name in PUBLISHED] + [(GPT_OSS, "mxfp4"), (QWEN, "fused")]


def make(name, form, folder, **changes):
    source = make_mixture(name, folder, mxfp4=form == "mxfp4", **changes)
    return fuse(source) if form == "fused" else source


def fuse(source):
    """Store each stack as one tensor, as some files of Qwen3-MoE have them."""
    held = load_file(source.folder / "model.safetensors")
    model = load_base(source, "bf16", CPU)
    held = {name: value for name, value in held.items() if ".experts." not in name}
    held |= {name: value.detach().clone() for name, value in model.named_parameters() if ".experts." in name}
    save_file(held, source.folder / "model.safetensors", {"format": "pt"})
    return open_model(str(source.folder))


def peft_merged(source, adapter):
    """The model with PEFT's own merge: another way to the same weights."""
    return PeftModel.from_pretrained(load_base(source, "fp32", CPU), str(adapter)).merge_and_unload()


@pytest.mark.full
@pytest.mark.parametrize(("name", "form"), forms())
def test_the_folder_is_what_peft_merges(name, form, tmp_path):
    source = make(name, form, tmp_path / "base")
    adapter = adapt_experts(source, tmp_path / "adapter")
    merged = open_model(str(export_safetensors(source, adapter, tmp_path / "merged")))
    assert "quantization_config" not in merged.config
    wanted, found = peft_merged(source, adapter).state_dict(), load_base(merged, "fp32", CPU).state_dict()
    assert found.keys() == wanted.keys()
    plain = load_base(source, "fp32", CPU).state_dict()
    changed = 0
    for key, value in found.items():
        torch.testing.assert_close(value, wanted[key].bfloat16().float(), rtol=2**-7, atol=1e-6)
        changed += "experts" in key and not torch.equal(plain[key], wanted[key])
    assert changed == 2 * sum(layer.is_mixture for layer in source.spec.layers)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("name", "form"), forms())
def test_both_ways_to_merge_agree(name, form, tmp_path):
    source = make(name, form, tmp_path / "base")
    adapter = adapt_experts(source, tmp_path / "adapter", rank=2, method="rslora")
    trained = TrainedWeights(Origin(source, adapter))
    weights, expected = MergedWeights(source, adapter), trained.experts.expected()
    for stack in weights.stacks.values():
        for part in stack.parts:
            found = expected[f"blk.{stack.stack.layer}.ffn_{part}_exps.weight"]
            assert found.is_changed
            assert len(found.matrices) == stack.stack.experts
            for expert, load in found.matrices.items():
                torch.testing.assert_close(weights.load_expert(stack, expert, part), load(), rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_ranks_and_scales_of_their_own_are_kept(tmp_path):
    source = make_mixture(QWEN, tmp_path / "base")
    config = LoraConfig(
        r=4, lora_alpha=8, target_modules=["q_proj"], task_type="CAUSAL_LM",
        target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj", "mlp.gate.weight"],
        rank_pattern={"mlp.experts.down_proj": 1, "mlp.experts.gate_up_proj": 2},
        alpha_pattern={r"layers\.1\.mlp\.experts\.gate_up_proj": 20},
    )  # fmt: skip
    tuned = get_peft_model(load_base(source, "fp32", CPU), config)
    torch.manual_seed(2)
    for key, value in tuned.named_parameters():
        if "lora_B" in key:
            value.data.normal_(0, 0.05)
    tuned.save_pretrained(tmp_path / "adapter")
    found = read_adapter(tmp_path / "adapter")
    assert {update.rank for name, update in found.stacks.items() if name.endswith("down_proj")} == {1}
    assert found.updates["model.layers.0.mlp.gate.weight"].a.shape == (4, source.spec.hidden_size)
    wanted = peft_merged(source, tmp_path / "adapter").state_dict()
    weights, trained = MergedWeights(source, tmp_path / "adapter"), TrainedWeights(Origin(source, tmp_path / "adapter"))
    for stack in weights.stacks.values():
        rows = [weights.load_expert(stack, 3, part) for part in stack.parts]
        torch.testing.assert_close(torch.cat(rows), wanted[stack.path][3], rtol=1e-5, atol=1e-6)
    router = "model.layers.1.mlp.gate.weight"
    torch.testing.assert_close(weights.load(router), wanted[router], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(trained.load(router), wanted[router], rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_a_router_that_files_call_otherwise_is_merged(tmp_path):
    source = make_mixture(MIXTRAL, tmp_path / "base")
    config = LoraConfig(
        r=2, target_modules=["q_proj"], target_parameters=["mlp.gate.weight"], task_type="CAUSAL_LM"
    )  # fmt: skip
    tuned = get_peft_model(load_base(source, "fp32", CPU), config)
    for key, value in tuned.named_parameters():
        if "lora_B" in key:
            value.data.normal_(0, 0.05)
    tuned.save_pretrained(tmp_path / "adapter")
    stored, name = "model.layers.0.block_sparse_moe.gate.weight", "model.layers.0.mlp.gate.weight"
    wanted = peft_merged(source, tmp_path / "adapter").state_dict()[name]
    weights, trained = MergedWeights(source, tmp_path / "adapter"), TrainedWeights(Origin(source, tmp_path / "adapter"))
    torch.testing.assert_close(weights.load(stored), wanted, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(trained.load(stored), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.full
def test_experts_in_mxfp4_stay_so_where_only_attention_is_adapted(tmp_path):
    source = make_mixture(GPT_OSS, tmp_path / "base", mxfp4=True)
    adapter = adapt_experts(source, tmp_path / "adapter", targets=["q_proj", "o_proj"])
    out = export_safetensors(source, adapter, tmp_path / "merged")
    base, merged = load_file(source.folder / "model.safetensors"), load_file(out / "model.safetensors")
    assert base.keys() == merged.keys()
    assert all(torch.equal(merged[name], base[name]) for name in base if name.endswith(("_blocks", "_scales")))
    with torch.no_grad():
        wanted, found = tuned_model(source, adapter)(IDS).logits, tuned_model(open_model(str(out)), None)(IDS).logits
    assert (wanted - found).abs().max() < 0.05  # one rounding to bf16
    assert json.loads((out / "config.json").read_text())["quantization_config"]["quant_method"] == "mxfp4"


def test_one_expert_is_in_memory_at_a_time(tmp_path, monkeypatch):
    source = make_mixture(GPT_OSS, tmp_path / "base", mxfp4=True)
    adapter, largest = adapt_experts(source, tmp_path / "adapter"), []
    real = experts.mxfp4_values

    def watched(blocks, scales):
        largest.append(blocks.numel() * 2)
        return real(blocks, scales)

    monkeypatch.setattr(experts, "mxfp4_values", watched)
    export_safetensors(source, adapter, tmp_path / "merged")
    assert max(largest) <= source.spec.experts.size * source.spec.hidden_size


def test_an_adapter_of_another_mixture_is_told(tmp_path):
    source = make_mixture(QWEN, tmp_path / "base")
    other = make_mixture(QWEN, tmp_path / "other", num_experts=4)
    with pytest.raises(SetupError, match="is of 4 experts"):
        MergedWeights(source, adapt_experts(other, tmp_path / "adapter"))


@pytest.mark.full
def test_a_number_in_place_of_an_experts_matrix_is_told(tmp_path):
    adapter = adapt_experts(make_mixture(QWEN, tmp_path / "base"), tmp_path / "adapter")
    tensors = load_file(adapter / "adapter_model.safetensors")
    first = next(name for name in tensors if name.endswith("experts.lora_A.weight"))
    save_file(tensors | {first: torch.tensor(1.0)}, adapter / "adapter_model.safetensors")
    with pytest.raises(SetupError, match="matrices A and B"):
        read_adapter(adapter)


def test_a_stack_that_was_not_written_is_an_error(tmp_path):
    source = make_mixture(GPT_OSS, tmp_path / "base")
    weights = MergedWeights(source, adapt_experts(source, tmp_path / "adapter"))
    for name in weights.names:
        if not name.endswith("layers.1.mlp.experts.down_proj"):
            weights.load(name)
    with pytest.raises(SetupError, match=r"first model\.layers\.1\.mlp\.experts\.down_proj"):
        weights.check_all_used()


def test_parts_that_do_not_fit_the_rank_are_told(tmp_path):
    source = make_mixture(QWEN, tmp_path / "base")
    adapter = adapt_experts(source, tmp_path / "adapter")
    edit_json(adapter / "adapter_config.json", rank_pattern={"down_proj": 5, "gate_up_proj": 5})
    with pytest.raises(SetupError, match="rank 5 for each expert"):
        read_adapter(adapter)


def test_parameters_in_an_unknown_order_are_refused(tmp_path):
    source = make_mixture(QWEN, tmp_path / "base")
    adapter = adapt_experts(source, tmp_path / "adapter")
    edit_json(adapter / "adapter_config.json", target_parameters=["mlp.experts.down_proj"])
    with pytest.raises(UsageError, match="changes 2 parameters"):
        read_adapter(adapter)
