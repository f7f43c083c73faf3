"""Adapters of the plain engine in plain PEFT, whose conversion takes the names of dense layers for experts'."""

import pytest
import torch
from peft import PeftModel
from transformers import AutoConfig, AutoModelForCausalLM

from burnish_engine.contract.recipe.recipe_train import AdapterSection
from burnish_engine.export.weights.adapter import read_adapter
from burnish_engine.models.saved_adapters.saved_adapter import read_config
from burnish_engine.models.transformers_path import plain
from burnish_engine.models.transformers_path.peft_probe import why_peft_reads_less

CONFIG = AutoConfig.for_model(
    "deepseek_v3", vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=2, n_routed_experts=4, n_shared_experts=1, first_k_dense_replace=1, moe_intermediate_size=16,
    num_experts_per_tok=2, n_group=1, topk_group=1, q_lora_rank=8, kv_lora_rank=8, qk_rope_head_dim=8,
    qk_nope_head_dim=8, v_head_dim=8,
)  # fmt: skip
"""One dense layer, and one with a shared expert beside the others."""


def base():
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(CONFIG).eval()


@torch.no_grad()
def logits(model):
    return model.eval()(input_ids=torch.arange(20)[None]).logits


@pytest.mark.parametrize(("method", "targets"), [("lora", "auto"), ("rslora", "all-linear")])
def test_plain_peft_reads_dense_layers_and_shared_experts(tmp_path, method, targets):
    tuned = plain.attach_adapter(base(), AdapterSection(rank=4, method=method, targets=[targets]), 0)
    with torch.no_grad():
        for name, value in tuned.named_parameters():
            if "lora_B" in name:
                value.normal_(0.0, 0.1)
    plain.save_adapter(tuned, tmp_path)
    assert torch.dist(logits(tuned), logits(base())) > 0.01
    torch.testing.assert_close(logits(PeftModel.from_pretrained(base(), str(tmp_path))), logits(tuned))
    assert why_peft_reads_less(CONFIG.to_dict(), tmp_path) == ""
    again = plain.load_adapter(base(), tmp_path)
    torch.testing.assert_close(logits(again), logits(tuned), rtol=0, atol=0)
    assert not any(name.endswith(".weight") for name in read_config(tmp_path)["target_parameters"] or [])
    merged = read_adapter(tmp_path)  # scales by what the file says of the weights
    assert merged.updates["model.layers.0.mlp.up_proj.weight"].scale == 32 / (2 if method == "rslora" else 4)


def test_dora_is_not_read_by_plain_peft_and_that_is_said(tmp_path):
    tuned = plain.attach_adapter(base(), AdapterSection(rank=4, method="dora", targets=["all-linear"]), 0)
    plain.save_adapter(tuned, tmp_path)
    assert "--to safetensors" in why_peft_reads_less(CONFIG.to_dict(), tmp_path)
