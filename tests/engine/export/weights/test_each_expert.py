"""Adapters with every expert's matrices apart: PEFT reads them as experts, and gets the same logits."""

import json
from types import SimpleNamespace

import pytest
from safetensors.torch import load_file

from burnish_engine.contract.errors import UsageError
from burnish_engine.export.weights.each_expert import export_adapter_by_expert
from burnish_engine.models.saved_adapters.saved_adapter import setting_of

from support.models import parity, tiny_models

BATCH = parity.micro_batch()


@pytest.mark.full
@pytest.mark.parametrize("shape", ["qwen3-moe", "mixtral"])
@pytest.mark.parametrize(("experts", "rslora"), [(2, False), (5, False), (2, True)])
def test_peft_finds_the_same_in_the_matrices_apart(bases, tmp_path, shape, experts, rslora):
    """One layer of Qwen3's is dense and has matrices of the same names as experts."""
    from peft import PeftModel

    base, targets = bases(shape), ["q_proj", "down_proj"] if shape == "qwen3-moe" else ["q_proj"]
    adapter = tiny_models.lora(base, tmp_path / "adapter", rank=5, experts=experts, targets=targets, rslora=rslora)
    out = export_adapter_by_expert(parity.model_source(base), adapter, tmp_path / "out" / "adapter")
    names = load_file(out / "adapter_model.safetensors").keys()
    assert not any(".base_layer" in name or name.endswith(".experts.lora_A.weight") for name in names)
    assert any(".experts.3." in name for name in names)
    theirs = PeftModel.from_pretrained(tiny_models.load(base), str(out)).eval()
    assert parity.same_logits(parity.peft_logits(theirs, BATCH), parity.fast(base, adapter).logits(BATCH), 1e-5)
    assert parity.distance(parity.peft_logits(theirs, BATCH), parity.fast(base).logits(BATCH)) > 0.01


def test_what_has_no_such_form_is_refused(bases, tmp_path):
    dense, oss = bases("qwen3"), bases("gpt-oss")
    cases = [(dense, tiny_models.lora(dense, tmp_path / "a")), (oss, tiny_models.lora(oss, tmp_path / "b", experts=2))]
    shared = bases("qwen2-moe")
    cases.append((shared, tiny_models.lora(shared, tmp_path / "d", experts=2)))
    for base, adapter in cases:
        with pytest.raises(UsageError, match=r"reaches no experts|never have the experts apart|its logits are others"):
            export_adapter_by_expert(parity.model_source(base), adapter, tmp_path / "out")
    with pytest.raises(UsageError, match="name their experts"):
        export_adapter_by_expert(SimpleNamespace(spec=None), tmp_path / "a", tmp_path / "out")
    mixture = bases("mixtral")
    adapter = tiny_models.lora(mixture, tmp_path / "c", experts=2)
    with pytest.raises(UsageError, match="not empty"):
        export_adapter_by_expert(parity.model_source(mixture), adapter, adapter)
    assert json.loads((adapter / "adapter_config.json").read_text())["target_parameters"]


def test_what_peft_would_read_otherwise_is_refused(bases, tmp_path):
    mixture = bases("mixtral")
    first = tiny_models.lora(mixture, tmp_path / "a", experts=2, stacks=["gate_up_proj"])
    alphas = tiny_models.lora(mixture, tmp_path / "b", experts=2)
    file = alphas / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "alpha_pattern": {"experts.down_proj": 3}}))
    for adapter, reason in ((first, "first maps alone"), (alphas, "alphas")):
        with pytest.raises(UsageError, match=reason):
            export_adapter_by_expert(parity.model_source(mixture), adapter, tmp_path / "out")
    second = tiny_models.lora(mixture, tmp_path / "c", experts=2, stacks=["down_proj"])
    assert export_adapter_by_expert(parity.model_source(mixture), second, tmp_path / "out").is_dir()


def test_dense_layers_keep_their_rank_beside_experts_of_the_same_names(bases, tmp_path):
    base = bases("lfm2-moe")
    adapter = tiny_models.lora(base, tmp_path / "adapter", rank=5, experts=2, targets=["q_proj", "w1", "w2", "w3"])
    out = export_adapter_by_expert(parity.model_source(base), adapter, tmp_path / "out")
    config = json.loads((out / "adapter_config.json").read_text())
    for name, tensor in load_file(out / "adapter_model.safetensors").items():
        if name.endswith(".lora_A.weight"):
            module = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
            assert setting_of(out, config, "rank_pattern", module, config["r"]) == len(tensor), name
            alpha = setting_of(out, config, "alpha_pattern", module, config["lora_alpha"])
            assert alpha / len(tensor) == pytest.approx(16 / len(tensor))
